import type { AppendedEvents } from '@runplane/contracts';
import { coalescedBounds, coalescerOf, type Coalescer, type Db, type Verdict } from '@runplane/database';
import { feedStreams } from '@runplane/outbox';
import { appendBatches, type AppendVerdict, type RunnerBatch } from './append-batch.sql';
import { listExistingRuns, type ProducerState } from './producer.sql';
import { absentRun } from './require';
import { toolCallsIn } from './run-event.sql';
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
      last: toolCallsIn(events) > 0, // refused for their number, they are counted anew and may go after all
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
  const absent = skipped.length === 0 ? new Set<string>() : await listAbsent(db, skipped);
  return calls.map((call, i) => verdictOn(db, call, verdicts[i] ?? { kind: 'skipped' }, absent, steps));
}

/**
 * The skipped calls' runs that are not there. The batch is committed: a look that fails must not become the answer to what was written,
 * so that all of them count as busy then, and are told by themselves.
 */
async function listAbsent(db: Db, skipped: readonly RunnerBatch[]): Promise<ReadonlySet<string>> {
  try {
    const existing = await listExistingRuns(db.sql, skipped);
    return new Set(skipped.map(nameOf).filter((name) => !existing.has(name)));
  } catch {
    return new Set();
  }
}

const nameOf = ({ tenantId, runId }: RunnerBatch): string => `${tenantId}/${runId}`;

function verdictOn(
  db: Db,
  call: RunnerBatch,
  verdict: AppendVerdict,
  absent: ReadonlySet<string>,
  steps: AppendSteps,
): Verdict<AppendedEvents> {
  switch (verdict.kind) {
    case 'ok':
      return { kind: 'answer', answer: appendedEvents(call, verdict.lastSeq) };
    case 'refused':
      return { kind: 'answer', answer: steps.refused(db, call, verdict.run) };
    case 'skipped':
      return absent.has(nameOf(call)) ? { kind: 'answer', answer: refuseAbsent(db, call) } : { kind: 'busy' };
  }
}

async function refuseAbsent(db: Db, call: RunnerBatch): Promise<never> {
  throw await absentRun(db.sql, call);
}

export function appendedEvents({ events }: RunnerBatch, lastSeq: number): AppendedEvents {
  return { firstSeq: lastSeq - events.length + 1, lastSeq, eventIds: events.map((event) => event.id), replayed: false };
}
