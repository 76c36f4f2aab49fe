import { SUBMISSION_ATTEMPTS_MAX, SUBMISSION_HEAD_STATES } from '@runplane/contracts';
import { column, maybeRow, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import type { SessionKey } from '@runplane/sessions';
import { z } from 'zod';
import { bound } from './bound.sql';

const FoundRow = z.object({ tenantId: column.text, sessionId: column.text });

/** Sessions whose oldest submission was claimed as often as it may, and whose last claim is over: the longest ago first. */
export function listExhausted(on: SqlExecutor, limit: number): Promise<SessionKey[]> {
  return rows(
    on,
    FoundRow,
    sql`SELECT h.tenant_id AS "tenantId", h.session_id AS "sessionId" FROM runplane.submission_heads h
        WHERE h.attempts >= ${bound(SUBMISSION_ATTEMPTS_MAX)} AND h.ready_at <= (SELECT runplane.app_now())
        ORDER BY h.ready_at, h.tenant_id, h.session_id LIMIT ${bound(limit)}`,
  );
}

const ExhaustedRow = z.object({
  operationId: column.text,
  state: column.state(SUBMISSION_HEAD_STATES),
  lastError: column.text.nullable(),
  isOver: column.bool,
});

/** Locks such a head and looks again; undefined: it is not so, or not any more. */
export async function lockExhausted(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<z.infer<typeof ExhaustedRow> | undefined> {
  takingLock(tx, 'submissionHead', `${tenantId}/${sessionId}`);
  const head = await maybeRow(
    tx,
    ExhaustedRow,
    sql`WITH l AS MATERIALIZED (
          SELECT * FROM runplane.submission_heads WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE
        )
        SELECT operation_id AS "operationId", state::text AS "state", last_error AS "lastError",
          attempts >= ${SUBMISSION_ATTEMPTS_MAX}::int AND ready_at <= runplane.app_now() AS "isOver" FROM l`,
  );
  return head?.isOver === true ? head : undefined;
}

/** Leaves such a head alone for a while, so that those behind it have their turn. Who claims does not find it in any case. */
export async function putOffExhausted(on: SqlExecutor, { tenantId, sessionId }: SessionKey, ms: number): Promise<void> {
  await on.query(
    sql`WITH l AS MATERIALIZED (
          SELECT tenant_id, session_id FROM runplane.submission_heads
          WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND attempts + 0 >= ${SUBMISSION_ATTEMPTS_MAX}::int
            AND ready_at <= (SELECT runplane.app_now()) FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE runplane.submission_heads h SET ready_at = runplane.app_now() + ${ms}::int * interval '1 millisecond' FROM l
        WHERE h.tenant_id = l.tenant_id AND h.session_id = l.session_id RETURNING 1 AS "done"`,
  );
}
