import { randomUUID } from 'node:crypto';
import type { AcceptSubmission, ClaimedSubmission } from '@runplane/contracts';
import { sql, type Db } from '@runplane/database';
import { TENANT } from '@runplane/runs/testing';
import { acceptSubmission, createSessions, type SubmissionKey } from '@runplane/sessions';
import { claimSubmissions } from '../claim-submissions';

// Builders for tests of submissions: a kind of its own keeps a test's submissions from the others'.

export const aKind = (): string => `kind-${randomUUID()}`;

/** Accepts a submission; of a session of its own where none is named. */
export async function aSubmission(
  db: Db,
  { sessionId, operationId = `op-${randomUUID()}`, tenantId = TENANT, ...submission }: Partial<AcceptSubmission & SubmissionKey> = {},
): Promise<SubmissionKey> {
  const id = sessionId ?? `s-${randomUUID()}`;
  if (sessionId === undefined) await createSessions(db).createSession({ tenantId, header: { id } });
  await acceptSubmission(db, {
    tenantId,
    sessionId: id,
    operationId,
    submission: { kind: 'work', payload: { operationId }, ...submission },
  });
  return { tenantId, sessionId: id, operationId };
}

export async function aClaimedSubmission(
  db: Db,
  over: Partial<AcceptSubmission & SubmissionKey> = {},
  claim: { leaseMs?: number } = {},
): Promise<ClaimedSubmission> {
  const kind = over.kind ?? aKind();
  await aSubmission(db, { ...over, kind });
  const [claimed] = await claimSubmissions(db, { tenantId: TENANT, kind, owner: `worker-${randomUUID()}`, ...claim });
  if (claimed === undefined) throw new Error('the submission was not claimed');
  return claimed;
}

/** Lets the claim of a session's submission, or its pause, end now, as time would. */
export async function passSubmissionTime(db: Db, { sessionId }: { sessionId: string }): Promise<void> {
  const past = sql`runplane.app_now() - interval '1 second'`;
  await db.sql.query(
    sql`UPDATE runplane.submission_heads SET ready_at = ${past}, expires_at = CASE WHEN expires_at IS NOT NULL THEN ${past} END WHERE session_id = ${sessionId}::text`,
  );
}
