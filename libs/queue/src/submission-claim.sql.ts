import {
  PAGE_BYTES_MAX,
  SUBMISSION_ATTEMPTS_MAX,
  SUBMISSION_BATCH_ROWS_MAX,
  SUBMISSION_LOOK_HEADS_MAX,
  SUBMISSION_PASSED_OVER_MS,
} from '@runplane/contracts';
import { column, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { bound } from './bound.sql';

// Claims of submissions. Each is one lock-first statement on submission_heads: the row of a session that names its oldest unfinished submission, so
// that a claim can be of no other (FIFO-1). Rows are found by indexes that hold the whole order of the claim, and locked SKIP LOCKED; whatever
// makes another submission the oldest locks the same row. `ready_at` of a claimed head is the end of its claim: who has not come back by then is
// passed by. Attempts are counted here; a head that was claimed too often is in none of these indexes, and submission-exhausted.sql.ts ends it.

const ClaimedRow = z.object({
  tenantId: column.text,
  sessionId: column.text,
  operationId: column.text,
  kind: column.text,
  place: column.int8,
  epoch: column.int,
  attempts: column.int,
  lastError: column.text.nullable(),
  claimRemainingMs: column.int,
  submissionId: column.text.nullable(),
  earlierAttempts: column.int.nullable(),
  payload: column.json.nullable(),
  source: column.jsonObject.nullable(),
  expectedRevision: column.int8.nullable(),
  acceptedSequence: column.int8.nullable(),
});
export type ClaimedRow = z.infer<typeof ClaimedRow>;

/** Of a tenant, of one kind or of all; or of one kind over all tenants. */
export type SubmissionScope = { readonly tenantId: string; readonly kind?: string | undefined } | { readonly kind: string };

export interface SubmissionClaim {
  readonly scope: SubmissionScope;
  readonly owner: string;
  readonly leaseMs: number;
  readonly limit: number;
  /** Only of sessions whose lease is free, over, or this owner's. */
  readonly leaseOwner: string | undefined;
  /** How many heads are looked at for that. */
  readonly looksMax?: number | undefined;
}

export const CLAIM_ENDED = 'the claim ended without a word of its holder';

const isDue = sql`h.attempts < ${bound(SUBMISSION_ATTEMPTS_MAX)} AND h.ready_at <= (SELECT runplane.app_now())`;
/** The same for a row that is found by its key: in these words no index of claims fits. */
const isStillDue = sql`h.attempts + 0 < ${bound(SUBMISSION_ATTEMPTS_MAX)} AND h.ready_at <= (SELECT runplane.app_now())`;

/** The words and the order of one of the indexes. */
function inScope(scope: SubmissionScope): { where: Sql; order: Sql } {
  if (!('tenantId' in scope)) return { where: sql`h.kind = ${scope.kind}::text`, order: sql`h.ready_at, h.tenant_id, h.session_id` };
  const order = sql`h.ready_at, h.session_id`;
  if (scope.kind === undefined) return { where: sql`h.tenant_id = ${scope.tenantId}::text`, order };
  // The index of both alone is in this collation: by one of the others an idle claim would read the backlog of other kinds, or of other tenants.
  return { where: sql`h.tenant_id COLLATE "C" = ${scope.tenantId}::text AND h.kind COLLATE "C" = ${scope.kind}::text`, order };
}

const KEY = sql`h.tenant_id, h.session_id, h.operation_id`;

/** The first due heads, locked one after the other until there are enough; for the plan there are few in any case. */
function lockFirst({ scope, limit }: SubmissionClaim): Sql {
  const { where, order } = inScope(scope);
  return sql`l AS MATERIALIZED (
    SELECT * FROM (
      SELECT ${KEY}, h.ready_at FROM runplane.submission_heads h
      WHERE ${where} AND ${isDue} ORDER BY ${order} LIMIT ${bound(SUBMISSION_BATCH_ROWS_MAX)} FOR NO KEY UPDATE SKIP LOCKED
    ) h LIMIT ${limit}::int
  )`;
}

/**
 * The first due heads of sessions whose lease lets this owner write: so many heads are looked at and no more. Where that does not bring enough, heads of
 * the other sessions step back a little, so that the next look finds what stands behind them; never otherwise, since who may claim them would find them
 * gone whenever he looks. Each is locked by its key, and looked at again there.
 */
function lockFree({ scope, limit, looksMax = SUBMISSION_LOOK_HEADS_MAX }: SubmissionClaim, leaseOwner: string): Sql {
  const { where, order } = inScope(scope);
  const locked = (free: boolean): Sql => sql`(SELECT * FROM looked WHERE free = ${free}::bool ORDER BY n) p CROSS JOIN LATERAL (
      SELECT ${KEY}, h.ready_at, h.ctid AS version FROM runplane.submission_heads h
      WHERE h.tenant_id = p.tenant_id AND h.session_id = p.session_id AND ${where} AND ${isStillDue} FOR NO KEY UPDATE SKIP LOCKED
    ) h`;
  const mayHideMore = sql`SELECT count(*) >= ${bound(looksMax)} AND count(*) FILTER (WHERE free) < ${limit}::int FROM looked`;
  return sql`looked AS MATERIALIZED (
    SELECT h.tenant_id, h.session_id, h.n,
      coalesce(x.lease_owner = ${leaseOwner}::text OR x.lease_owner IS NULL OR x.lease_expires_at <= (SELECT runplane.app_now()), false) AS free
    FROM (
      SELECT h.tenant_id, h.session_id, row_number() OVER (ORDER BY ${order}) AS n FROM runplane.submission_heads h
      WHERE ${where} AND ${isDue} ORDER BY ${order} LIMIT ${bound(looksMax)}
    ) h LEFT JOIN LATERAL (
      SELECT x.lease_owner, x.lease_expires_at FROM runplane.session_heads x WHERE x.tenant_id = h.tenant_id AND x.session_id = h.session_id OFFSET 0 -- each by its key
    ) x ON true
  ), passed_over AS (
    -- By their places on disk: as a join it would read every head while there are few. One that has moved since this statement began is left where it is.
    UPDATE runplane.submission_heads t SET ready_at = runplane.app_now() + ${SUBMISSION_PASSED_OVER_MS}::int * interval '1 millisecond'
    WHERE t.ctid = ANY (ARRAY(SELECT h.version FROM ${locked(false)} WHERE (${mayHideMore})))
  ), l AS MATERIALIZED (SELECT h.* FROM ${locked(true)} LIMIT ${limit}::int)`;
}

/**
 * Claims heads and gives what is to be done with them. `submissionId` null: the submission was accepted after the statement began, so that its text
 * must be read by another one. The second and further ones are left where the payloads would make the answer too large.
 */
export function claimHeads(on: SqlExecutor, claim: SubmissionClaim): Promise<ClaimedRow[]> {
  const { owner, leaseMs, leaseOwner } = claim;
  return rows(
    on,
    ClaimedRow,
    sql`
    WITH ${leaseOwner === undefined ? lockFirst(claim) : lockFree(claim, leaseOwner)},
    d AS MATERIALIZED (SELECT l.*, row_number() OVER (ORDER BY l.ready_at, l.tenant_id, l.session_id)::int AS turn, runplane.app_now() AS now FROM l),
    w AS MATERIALIZED (
      SELECT d.*, s.submission_id, s.attempts AS earlier_attempts, s.payload::text AS payload, s.source::text AS source, s.expected_revision, s.accepted_sequence,
        s.last_error, sum(octet_length(s.payload::text)) OVER (ORDER BY d.turn) - octet_length(s.payload::text) AS bytes_before
      FROM d LEFT JOIN runplane.submissions s ON s.tenant_id = d.tenant_id AND s.session_id = d.session_id AND s.operation_id = d.operation_id
    ), taken AS (
      UPDATE runplane.submission_heads h SET state = 'claimed', owner = ${owner}::text, epoch = h.epoch + 1, attempts = h.attempts + 1,
        expires_at = w.now + ${leaseMs}::int * interval '1 millisecond', ready_at = w.now + ${leaseMs}::int * interval '1 millisecond',
        last_error = CASE h.state WHEN 'claimed' THEN ${CLAIM_ENDED}::text ELSE h.last_error END
      FROM w WHERE h.tenant_id = w.tenant_id AND h.session_id = w.session_id AND coalesce(w.bytes_before, 0) < ${bound(PAGE_BYTES_MAX)}
      RETURNING ${KEY}, h.kind, h.place, h.epoch, h.attempts, h.last_error, h.expires_at
    )
    SELECT h.tenant_id AS "tenantId", h.session_id AS "sessionId", h.operation_id AS "operationId", h.kind AS "kind", h.place::text AS "place",
      h.epoch AS "epoch", h.attempts AS "attempts", coalesce(h.last_error, w.last_error) AS "lastError",
      runplane.ms_until(h.expires_at, w.now) AS "claimRemainingMs", w.submission_id AS "submissionId", w.earlier_attempts AS "earlierAttempts",
      w.payload AS "payload", w.source AS "source", w.expected_revision::text AS "expectedRevision", w.accepted_sequence::text AS "acceptedSequence"
    FROM taken h JOIN w ON w.tenant_id = h.tenant_id AND w.session_id = h.session_id ORDER BY w.turn`,
  );
}
