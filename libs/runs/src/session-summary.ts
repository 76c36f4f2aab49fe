import type { Run, SessionSummary } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { findSummary, requireSession, sessionNotFound, type SessionKey } from '@runplane/sessions';
import { findLatestResourceRun, findLastEventTime } from './session-runs.sql';

/**
 * A session as lists show it, with what the reader has of it. `lastActivityAt` takes in the newest event of the active run, which the session's
 * own row learns of only every few seconds (foldSessionActivityOnce). Errors: SessionNotFound. Reads only, no lock.
 */
export async function getSessionSummary(
  at: At,
  { tenantId, sessionId, readerId }: SessionKey & { readerId?: string | undefined },
): Promise<SessionSummary> {
  const on = executorOf(at);
  const session = await findSummary(on, { tenantId, sessionId, readerId });
  if (session === undefined) {
    await requireSession(on, { tenantId, sessionId });
    throw sessionNotFound(sessionId);
  }
  const eventAt = session.activeRunId === null ? undefined : await findLastEventTime(on, { tenantId, runId: session.activeRunId });
  // Times of the wire have one form: as texts they are in the order of time.
  return eventAt === undefined || eventAt <= session.lastActivityAt ? session : { ...session, lastActivityAt: eventAt };
}

/** The newest run of a session that has a resource bundle, or null: its next turn may use the same. Errors: SessionNotFound. Reads only. */
export async function getLatestSessionResourceRun(at: At, key: SessionKey): Promise<Run | null> {
  const on = executorOf(at);
  await requireSession(on, key);
  return (await findLatestResourceRun(on, key)) ?? null;
}
