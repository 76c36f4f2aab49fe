import { newId, partitionOf } from '@runplane/contracts';
import type { PublishRecord } from '@runplane/outbox';
import { payloadOf } from '../append/payload';

export const TENANT = 'bench';
export const TOPIC = 'events';
/** Runs whose events are in turn; enough for every shard and partition to have its share. */
const RUNS = 200;

export interface BenchRun {
  readonly runId: string;
  readonly partitionKey: string;
  readonly shard: number;
}

export const someRuns = (): BenchRun[] =>
  Array.from({ length: RUNS }, () => {
    const runId = newId('run');
    return { runId, ...partitionOf(TENANT, runId) };
  });

/** The same text for every case. */
export const DATA = JSON.stringify(payloadOf(newId('cmd')));

/** What a relay hands to its publisher, from memory. */
export function recordsOf(runs: readonly BenchRun[], count: number): PublishRecord[] {
  return Array.from({ length: count }, (_, index) => {
    const { runId, partitionKey } = runs[index % runs.length] as BenchRun;
    return {
      place: { tx: 1n, position: BigInt(index) },
      topic: TOPIC,
      partitionKey,
      stream: 'run',
      streamId: runId,
      sequence: Math.floor(index / runs.length) + 1,
      eventId: newId('evt'),
      type: 'assistant_message',
      tenantId: TENANT,
      projectId: 'bench',
      sessionId: null,
      runId,
      commandId: null,
      data: DATA,
      time: '2026-11-29T00:00:00.000Z',
    };
  });
}
