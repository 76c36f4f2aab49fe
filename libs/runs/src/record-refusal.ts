import { isDomainError, REFUSAL_RECORD_EVERY_MS } from '@runplane/contracts';
import { inTransaction, isTx, type At, type Db, type Tx } from '@runplane/database';
import { appendServerEvents, hasRecentRecord, phase } from './run-event.sql';
import { lockRun, type RunKey } from './run.sql';

// A refused write of a runner leaves a trace in the run's log: which phase, which epoch, from where, never its content. It is written after
// the refusal, in a transaction of its own, at most one per run, epoch and minute (LOG-3 allows it after the run's end).

export interface Refusal extends RunKey {
  readonly epoch: number;
  readonly phase: 'late-write-rejected' | 'stale-writer-refused';
  /** What was attempted: event-append, command-status, run-status, command-ack. */
  readonly source: string;
}

/** Writes the record unless a recent one stands there, or the epoch is made up. Locks: run. */
export async function recordRefusal(tx: Tx, refusal: Refusal): Promise<void> {
  const run = await lockRun(tx, refusal);
  if (run === undefined || refusal.epoch > run.claimEpoch) return; // nobody holds, or held, an epoch that was never given
  const { epoch, source } = refusal;
  if (await hasRecentRecord(tx, refusal, { phase: refusal.phase, epoch, everyMs: REFUSAL_RECORD_EVERY_MS })) return;
  await appendServerEvents(tx, refusal, [phase(refusal.phase, { epoch, source, currentEpoch: run.claimEpoch, status: run.status })]);
}

/**
 * The same after a call that ran alone. Inside a caller's transaction nothing is recorded: the refusal rolls it back. A record that cannot
 * be written changes nothing about the refusal.
 */
export async function recordRefusalAfter(at: At, refusal: Refusal): Promise<void> {
  if (isTx(at)) return;
  await inTransaction(at, (tx) => recordRefusal(tx, refusal)).catch((error: unknown) => {
    at.options.onError(error instanceof Error ? error : new Error(String(error)), 'the record of a refused write');
  });
}

/** Runs one call of a runner in a transaction of its own and records its refusal. */
export function runnerCall<T>(db: Db, call: RunnerCall, work: (tx: Tx) => Promise<T>): Promise<T> {
  return recordingRefusal(db, call, () => inTransaction(db, work));
}

export type RunnerCall = RunKey & { epoch: number; source: string };

/** Runs one call of a runner, alone or with others, and records its refusal. */
export async function recordingRefusal<T>(db: Db, call: RunnerCall, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const code = isDomainError(error) ? error.code : undefined;
    const { tenantId, runId, epoch, source } = call;
    if (code === 'run_closed') await recordRefusalAfter(db, { tenantId, runId, epoch, source, phase: 'late-write-rejected' });
    if (code === 'lease_lost') await recordRefusalAfter(db, { tenantId, runId, epoch, source, phase: 'stale-writer-refused' });
    throw error;
  }
}
