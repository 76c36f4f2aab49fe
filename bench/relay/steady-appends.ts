import { setTimeout as delay } from 'node:timers/promises';
import type { Db } from '@runplane/database';
import { appendRunEvents } from '@runplane/runs';
import { claimTurns, TENANT } from '../append/claimed-turns';
import { payloadOf } from '../append/payload';

export interface Steady {
  readonly perSecond: number;
  readonly seconds: number;
}

/** Events, and when the append of each was answered (machineMs). */
export type Committed = readonly (readonly [eventId: string, atMs: number])[];

const RUNS = 20;

/** The same clock for all processes of a machine; it only goes forward. */
export const machineMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** Appends of one event each, at a steady rate, to one run after the other; none waits for the one before. */
export async function appendSteadily(db: Db, { perSecond, seconds }: Steady): Promise<Committed> {
  const turns = await claimTurns(db, RUNS);
  const appends: Promise<[string, number]>[] = [];
  const started = machineMs();
  for (let n = 0; n < perSecond * seconds; n += 1) {
    await delay(Math.max(0, started + (n * 1_000) / perSecond - machineMs()));
    const { runId, commandId, epoch } = turns[n % RUNS] as (typeof turns)[number];
    const producerSequence = Math.floor(n / RUNS) + 1;
    const events = [{ type: 'assistant_message', payload: payloadOf(commandId) }];
    appends.push(
      appendRunEvents(db, { tenantId: TENANT, runId, epoch, producerSequence, events }).then(({ eventIds: [id = ''] }) => [
        id,
        machineMs(),
      ]),
    );
  }
  return await Promise.all(appends);
}
