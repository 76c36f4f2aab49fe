import { TURN_SUBMISSION_KINDS } from '@runplane/contracts';
import { column, oneRow, rows, sql, takingLock, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';
import { unfinishedOf } from '../submission-rows.sql';

const done = z.object({ done: column.int });
const CountRow = z.object({ open: column.int, openTurns: column.int });

/** The unfinished submissions of a session whose head is locked, those without an event too. */
export function countOpenSubmissions(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<{ open: number; openTurns: number }> {
  return oneRow(
    tx,
    CountRow,
    sql`SELECT count(*)::int AS "open", (count(*) FILTER (WHERE kind = ANY (${[...TURN_SUBMISSION_KINDS]}::text[])))::int AS "openTurns"
        FROM runplane.submissions s WHERE ${unfinishedOf('s', sql`${tenantId}::text`, sql`${sessionId}::text`)}`,
  );
}

/**
 * Makes the head of a session's queue agree with its submissions, where a rebuild has found what was not as the log says: a head whose submission
 * has ended or never was, one that waits and is not the oldest, none where work waits. What is claimed and unfinished stays with its holder, and a
 * head that is right is not written. The session's head must be locked. Not for a session that is being copied: what is unfinished in it is ended
 * before anybody sees it.
 */
export async function correctSubmissionHead(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<void> {
  takingLock(tx, 'submissionHead', `${tenantId}/${sessionId}`);
  await rows(
    tx,
    done,
    sql`WITH h AS MATERIALIZED (
          SELECT operation_id, place, state, epoch FROM runplane.submission_heads
          WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE
        ), pending AS MATERIALIZED (
          SELECT operation_id, kind, place, claim_epoch FROM runplane.submissions s
          WHERE ${unfinishedOf('s', sql`${tenantId}::text`, sql`${sessionId}::text`)}
        ), n AS MATERIALIZED (
          SELECT * FROM pending ORDER BY place LIMIT 1
        ), moved AS (
          UPDATE runplane.submission_heads t SET operation_id = n.operation_id, kind = n.kind, place = n.place, state = 'waiting', owner = NULL,
            expires_at = NULL, epoch = greatest(t.epoch, n.claim_epoch) + 1, attempts = 0, ready_at = runplane.app_now(), last_error = NULL
          FROM h CROSS JOIN n
          WHERE t.tenant_id = ${tenantId}::text AND t.session_id = ${sessionId}::text AND CASE h.state
            WHEN 'claimed' THEN NOT EXISTS (SELECT FROM pending p WHERE p.operation_id = h.operation_id)
            ELSE (h.operation_id, h.place) IS DISTINCT FROM (n.operation_id, n.place) END
        ), removed AS (
          DELETE FROM runplane.submission_heads t
          WHERE t.tenant_id = ${tenantId}::text AND t.session_id = ${sessionId}::text AND NOT EXISTS (SELECT FROM n)
        ), made AS (
          INSERT INTO runplane.submission_heads (tenant_id, session_id, operation_id, kind, place, epoch, ready_at)
          SELECT l.tenant_id, l.session_id, n.operation_id, n.kind, n.place, greatest(n.claim_epoch, l.claim_epoch) + 1, runplane.app_now()
          FROM n JOIN runplane.session_heads l ON l.tenant_id = ${tenantId}::text AND l.session_id = ${sessionId}::text
          WHERE NOT EXISTS (SELECT FROM h)
        )
        SELECT 1 AS "done"`,
  );
}
