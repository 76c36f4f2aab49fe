import { RunCancelling, RunNotActive, SessionRequired } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { findSession, type SessionKey } from '@runplane/sessions';
import { runClosed } from './create-command';
import { leaseLost } from './heartbeat';
import { requireLockedRun } from './require';
import { decideWriter } from './run-decisions';
import type { RunKey, RunRow } from './run.sql';

export interface SessionTurn {
  readonly run: RunRow;
  readonly key: SessionKey;
  /** Of the open turn. */
  readonly commandId: string | null;
}

/**
 * The session whose open turn the holder of this epoch works on. Checked under the run's lock, which whoever would take the turn away has to wait
 * for (OWN-3). Locks: run. Errors: RunNotFound, RunDeleted, LeaseLost, RunClosed, SessionRequired, RunNotActive.
 */
export async function requireTurn(tx: Tx, { tenantId, runId }: RunKey, epoch: number): Promise<SessionTurn> {
  const run = await requireLockedRun(tx, { tenantId, runId });
  const writer = decideWriter(run, epoch);
  if (writer.kind === 'lease-lost') throw leaseLost({ runId, epoch, currentEpoch: run.claimEpoch });
  if (writer.kind === 'closed') throw runClosed(run);
  const { sessionId } = run;
  if (sessionId === null) throw new SessionRequired(`Run ${runId} belongs to no session, and has no log to write to.`, { runId });
  const key: SessionKey = { tenantId, sessionId };
  const session = await findSession(tx, key);
  if (session?.activeRunId !== runId) {
    const activeRunId = session?.activeRunId ?? null;
    throw new RunNotActive(`Run ${runId} does not have the open turn of session ${sessionId}.`, { runId, sessionId, activeRunId });
  }
  return { run, key, commandId: session.activeCommandId };
}

/** Errors: RunCancelling. */
export function assertAsks({ id, status }: Pick<RunRow, 'id' | 'status'>): void {
  if (status === 'cancelling') throw new RunCancelling(`Run ${id} is being cancelled: it asks nobody any more.`, { runId: id });
}
