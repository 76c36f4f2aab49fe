import type { AppendedEvents } from '@runplane/contracts';
import { coalescerOf, type Coalescer, type Db, type Verdict } from '@runplane/database';
import { feedStreams } from '@runplane/outbox';
import { appendBatches, type AppendVerdict, type RunnerBatch } from './append-batch.sql';
import { coalescedBounds } from './coalesced-bounds';
import { listExistingRuns, type ProducerState } from './producer.sql';
import { absentRun } from './require';
import { runStream } from './run.sql';

/** What the append of one call does, and the coalescer must not do otherwise. */
export interface AppendSteps {
  /** By the statement that waits. */
  readonly alone: (db: Db, batch: RunnerBatch) => Promise<AppendedEvents>;
  /** Answers a call that the guards refused; `run`: as they saw it. */
  readonly refused: (db: Db, batch: RunnerBatch, run: ProducerState) => Promise<AppendedEvents>;
}

/**
 * Where the appends of one process meet: those that arrive together share a statement, with a verdict for each. Calls of one run are numbered
 * in the order of their arrival. See Coalescer for who waits for what.
 */
export function appendCoalescer(db: Db, steps: AppendSteps): Coalescer<RunnerBatch, AppendedEvents> {
  return coalescerOf(db, 'append', () => ({
    describe: ({ tenantId, runId, epoch, sequence, events, bytes }) => ({
      lane: `${tenantId}/${runId}`,
      single: sequence === undefined ? undefined : String(epoch),
      rows: events.length,
      bytes,
    }),
    together: (calls) => appendTogether(db, calls, steps),
    alone: (batch) => steps.alone(db, batch),
    isRepeatable: ({ sequence }) => sequence !== undefined,
    ...coalescedBounds(db),
  }));
}

async function appendTogether(db: Db, calls: readonly RunnerBatch[], steps: AppendSteps): Promise<Verdict<AppendedEvents>[]> {
  const verdicts = await appendBatches(db.sql, calls);
  const written = calls.filter((_, i) => verdicts[i]?.kind === 'ok');
  db.changed([...new Set(written.flatMap((call) => [runStream(call), ...feedStreams(call.tenantId)]))]);
  const skipped = calls.filter((_, i) => verdicts[i]?.kind === 'skipped');
  const existing = skipped.length === 0 ? new Set<string>() : await listExistingRuns(db.sql, skipped);
  return calls.map((call, i) => verdictOn(db, call, verdicts[i] ?? { kind: 'skipped' }, existing, steps));
}

function verdictOn(
  db: Db,
  call: RunnerBatch,
  verdict: AppendVerdict,
  existing: ReadonlySet<string>,
  steps: AppendSteps,
): Verdict<AppendedEvents> {
  switch (verdict.kind) {
    case 'ok':
      return { kind: 'answer', answer: appendedEvents(call, verdict.lastSeq) };
    case 'refused':
      return { kind: 'answer', answer: steps.refused(db, call, verdict.run) };
    case 'skipped':
      return existing.has(`${call.tenantId}/${call.runId}`) ? { kind: 'busy' } : { kind: 'answer', answer: refuseAbsent(db, call) };
  }
}

async function refuseAbsent(db: Db, call: RunnerBatch): Promise<never> {
  throw await absentRun(db.sql, call);
}

export function appendedEvents({ events }: RunnerBatch, lastSeq: number): AppendedEvents {
  return { firstSeq: lastSeq - events.length + 1, lastSeq, eventIds: events.map((event) => event.id), replayed: false };
}
