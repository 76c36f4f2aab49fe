import { column, rows, sql, takingLock, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';

const done = z.object({ done: column.int });

/**
 * Makes the queue's head of a session name a submission that waits, where the log says that the one it names has ended or was never there, or that
 * there is work and no head. A head that is right is not touched, whoever holds it. The session's head must be locked. A session that is being
 * copied gets none: what is unfinished in it will be ended before anybody sees it.
 */
export async function correctSubmissionHead(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<void> {
  const key = sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;
  takingLock(tx, 'submissionHead', `${tenantId}/${sessionId}`);
  await rows(
    tx,
    done,
    sql`DELETE FROM runplane.submission_heads h
        WHERE ${key} AND NOT EXISTS (
          SELECT FROM runplane.submissions s
          WHERE s.tenant_id = h.tenant_id AND s.session_id = h.session_id AND s.operation_id = h.operation_id AND s.state = 'pending')
        RETURNING 1 AS "done"`,
  );
  await rows(
    tx,
    done,
    sql`INSERT INTO runplane.submission_heads (tenant_id, session_id, operation_id, kind, place, epoch)
        SELECT s.tenant_id, s.session_id, s.operation_id, s.kind, s.place, s.claim_epoch + 1 FROM runplane.submissions s
        WHERE ${key} AND s.state = 'pending' AND NOT EXISTS (
          SELECT FROM runplane.session_heads l WHERE l.tenant_id = s.tenant_id AND l.session_id = s.session_id AND l.copying)
        ORDER BY s.place LIMIT 1
        ON CONFLICT (tenant_id, session_id) DO NOTHING RETURNING 1 AS "done"`,
  );
}
