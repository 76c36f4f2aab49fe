import { QUEUED_TURN_KIND, QUEUED_TURN_RECHECK_MS, SUBMISSION_BACKOFF_MS_MIN } from '@runplane/contracts';
import { column, maybeRow, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import { submissionStreams, TURN_QUEUED } from './projections/submission';
import type { SessionKey } from './session.sql';
import { unfinishedOf } from './submission-rows.sql';

// Turns in the queue of a session. One at its head is held back while the session has an open turn, and called when that ends: both under the
// session's lock, so that none is held back behind an end that has called already. What other writers of the row miss, the recheck finds.

const ofHead = ({ tenantId, sessionId }: SessionKey) =>
  sql`h.tenant_id = ${tenantId}::text AND h.session_id = ${sessionId}::text AND h.kind = ${QUEUED_TURN_KIND}::text AND h.state = 'waiting'`;

/** How soon one is called whose tries have failed: ends of turns that come fast must not use up the others. */
const calledInMs = sql`CASE h.attempts WHEN 0 THEN 0 ELSE least(${SUBMISSION_BACKOFF_MS_MIN}::int * 2 ^ (h.attempts - 1), ${QUEUED_TURN_RECHECK_MS}::int) END`;

/** Makes the turn at the head of the queue claimable, soon where tries of it have failed. Locks: session (held) → session head → submission head. */
export async function callQueuedTurn(tx: Tx, key: SessionKey): Promise<void> {
  const name = `${key.tenantId}/${key.sessionId}`;
  takingLock(tx, 'sessionHead', name);
  takingLock(tx, 'submissionHead', name);
  await tx.query(
    sql`WITH l AS MATERIALIZED (
          SELECT FROM runplane.session_heads WHERE tenant_id = ${key.tenantId}::text AND session_id = ${key.sessionId}::text FOR NO KEY UPDATE
        )
        UPDATE runplane.submission_heads h SET ready_at = least(h.ready_at, runplane.app_now() + ${calledInMs} * interval '1 millisecond') FROM l WHERE ${ofHead(key)} RETURNING 1 AS "done"`,
  );
  for (const stream of [TURN_QUEUED, ...submissionStreams(key.tenantId)]) tx.changed(stream);
}

/** Leaves the turn at the head of the queue alone until the session's open turn ends, or for so long. Locks: session (held) → submission head. */
export async function holdBackQueuedTurn(tx: Tx, key: SessionKey, forMs: number | null = null): Promise<void> {
  takingLock(tx, 'submissionHead', `${key.tenantId}/${key.sessionId}`);
  const waitMs = Math.min(Math.max(forMs ?? QUEUED_TURN_RECHECK_MS, 1_000), QUEUED_TURN_RECHECK_MS);
  await tx.query(
    sql`UPDATE runplane.submission_heads h SET ready_at = greatest(h.ready_at, runplane.app_now() + ${waitMs}::int * interval '1 millisecond')
        WHERE ${ofHead(key)} RETURNING 1 AS "done"`,
  );
}

const QueueLook = z.object({
  open: column.int,
  submissionId: column.text.nullable(),
  payload: column.json.nullable(),
});

/** How many submissions of a session are unfinished, and the turn that it knows by an operation's id; undefined: there is no such session. */
export function lookIntoQueue(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  operationId: string,
): Promise<z.infer<typeof QueueLook> | undefined> {
  return maybeRow(
    on,
    QueueLook,
    sql`SELECT l.open_submissions AS "open", s.submission_id AS "submissionId", s.payload::text AS "payload"
        FROM runplane.session_heads l
        LEFT JOIN runplane.submissions s ON s.tenant_id = l.tenant_id AND s.session_id = l.session_id AND s.operation_id = ${operationId}::text
          AND s.kind = ${QUEUED_TURN_KIND}::text
        WHERE l.tenant_id = ${tenantId}::text AND l.session_id = ${sessionId}::text AND l.deleted_at IS NULL`,
  );
}

/** Unfinished submissions of the session before a place. */
export async function countAhead(on: SqlExecutor, { tenantId, sessionId }: SessionKey, place: number): Promise<number> {
  const row = await maybeRow(
    on,
    z.object({ ahead: column.int }),
    sql`SELECT count(*)::int AS "ahead" FROM runplane.submissions s
        WHERE ${unfinishedOf('s', sql`${tenantId}::text`, sql`${sessionId}::text`)} AND s.place < ${String(place)}::bigint`,
  );
  return row?.ahead ?? 0;
}
