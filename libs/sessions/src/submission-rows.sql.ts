import { SUBMISSION_HEAD_STATES, SUBMISSION_STATES } from '@runplane/contracts';
import { column, joinSql, maybeRow, rawSql, rows, sql, takingLock, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import { cutPage, Found, withinBytes } from './page.sql';
import type { SessionKey } from './session.sql';

// Submissions as they are read, with what stands on the head row of their session while they are the oldest.

/**
 * Unfinished submissions of one session, in the words of their own index (COLLATE "C") and of no other: planned for any session each of them would look
 * as good, and read all that a session ever had.
 *
 * Input     s: the alias of runplane.submissions; the others: what its columns are compared with.
 */
export const unfinishedOf = (s: string, tenantId: Sql, sessionId: Sql): Sql =>
  sql`${rawSql(s)}.tenant_id COLLATE "C" = ${tenantId} AND ${rawSql(s)}.session_id COLLATE "C" = ${sessionId} AND ${rawSql(s)}.state = 'pending'`;

const SubmissionRow = z.object({
  tenantId: column.text,
  sessionId: column.text,
  operationId: column.text,
  submissionId: column.text,
  kind: column.text,
  state: column.state(SUBMISSION_STATES),
  payload: column.json,
  source: column.jsonObject,
  contentHash: column.text,
  expectedRevision: column.int8.nullable(),
  acceptedSequence: column.int8,
  tx: column.bigint.nullable(),
  position: column.bigint.nullable(),
  storeId: column.text,
  place: column.int8,
  attempts: column.int,
  lastError: column.text.nullable(),
  owner: column.text.nullable(),
  epoch: column.int.nullable(),
  claimInMs: column.int.nullable(),
  readyInMs: column.int.nullable(),
  createdAt: column.time,
  endedAt: column.time.nullable(),
  endedSequence: column.int8.nullable(),
  runId: column.text.nullable(),
});
export type SubmissionRow = z.infer<typeof SubmissionRow>;

const COLUMNS = sql`
  s.tenant_id AS "tenantId", s.session_id AS "sessionId", s.operation_id AS "operationId", s.submission_id AS "submissionId", s.kind AS "kind",
  s.state::text AS "state", s.payload::text AS "payload", s.source::text AS "source", s.content_hash AS "contentHash",
  s.expected_revision::text AS "expectedRevision", s.accepted_sequence::text AS "acceptedSequence", e.tx::text AS "tx", e.position::text AS "position",
  (SELECT store_id FROM runplane.store) AS "storeId", s.place::text AS "place", s.attempts + coalesce(h.attempts, 0) AS "attempts",
  coalesce(h.last_error, s.last_error) AS "lastError", h.owner AS "owner", h.epoch AS "epoch",
  runplane.ms_until(h.expires_at, runplane.app_now()) AS "claimInMs", runplane.ms_until(h.ready_at, runplane.app_now()) AS "readyInMs",
  runplane.wire_time(s.created_at) AS "createdAt",
  runplane.wire_time(s.ended_at) AS "endedAt", s.ended_sequence::text AS "endedSequence",
  x.data->>'run_id' AS "runId"`;

const JOINED = sql`LEFT JOIN runplane.submission_heads h ON h.tenant_id = s.tenant_id AND h.session_id = s.session_id AND h.operation_id = s.operation_id
  LEFT JOIN runplane.session_events e ON e.tenant_id = s.tenant_id AND e.session_id = s.session_id AND e.sequence = s.accepted_sequence
  LEFT JOIN runplane.session_events x ON x.tenant_id = s.tenant_id AND x.session_id = s.session_id AND x.sequence = s.ended_sequence`;

/** One submission of a session that is there, without a lock; undefined when the session, or the submission in it, is not there. */
export function findSubmission(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  operationId: string,
): Promise<SubmissionRow | undefined> {
  return maybeRow(
    on,
    SubmissionRow,
    sql`SELECT ${COLUMNS} FROM runplane.submissions s
        JOIN runplane.session_heads l ON l.tenant_id = s.tenant_id AND l.session_id = s.session_id AND l.deleted_at IS NULL ${JOINED}
        WHERE s.tenant_id = ${tenantId}::text AND s.session_id = ${sessionId}::text AND s.operation_id = ${operationId}::text`,
  );
}

export interface SubmissionPlace {
  readonly place: number;
}
export interface TenantPlace {
  readonly createdAt: string;
  readonly sessionId: string;
  readonly operationId: string;
}

const PageRow = SubmissionRow.extend(Found);
export interface SubmissionPage {
  readonly rows: SubmissionRow[];
  readonly more: boolean;
}

/** Unfinished submissions of a session in their order. */
export function listUnfinishedOfSession(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  { after, limit }: { after: SubmissionPlace | undefined; limit: number },
): Promise<SubmissionPage> {
  const conditions = [
    unfinishedOf('s', sql`${tenantId}::text`, sql`${sessionId}::text`),
    ...(after === undefined ? [] : [sql`s.place > ${String(after.place)}::bigint`]),
  ];
  return listPage(on, conditions, { order: (of) => rawSql(`${of}.place`), limit });
}

/** Those of a tenant, the longest accepted first. */
export function listUnfinishedOfTenant(
  on: SqlExecutor,
  tenantId: string,
  { after, limit }: { after: TenantPlace | undefined; limit: number },
): Promise<SubmissionPage> {
  const conditions = [
    sql`s.tenant_id = ${tenantId}::text`,
    ...(after === undefined
      ? []
      : [
          sql`(s.created_at, s.session_id, s.operation_id) > (${after.createdAt}::timestamptz, ${after.sessionId}::text, ${after.operationId}::text)`,
        ]),
  ];
  return listPage(on, conditions, { order: (of) => rawSql(`${of}.created_at, ${of}.session_id, ${of}.operation_id`), limit });
}

async function listPage(
  on: SqlExecutor,
  conditions: readonly Sql[],
  { order, limit }: { order: (alias: string) => Sql; limit: number },
): Promise<SubmissionPage> {
  const page = sql`SELECT s.* FROM runplane.submissions s
      JOIN runplane.session_heads l ON l.tenant_id = s.tenant_id AND l.session_id = s.session_id AND l.deleted_at IS NULL
      WHERE ${joinSql([...conditions, sql`s.state = 'pending'`], ' AND ')} ORDER BY ${order('s')} LIMIT ${limit + 1}::int`;
  const found = await rows(
    on,
    PageRow,
    sql`SELECT ${COLUMNS}, s.found AS "found"
        FROM (SELECT * FROM ${withinBytes(page, { size: sql`octet_length(p.payload::text)`, order: order('p') })}) s ${JOINED} ORDER BY ${order('s')}`,
  );
  const { shown, last } = cutPage(found, limit);
  return { rows: shown, more: last !== undefined };
}

const QueueHead = z.object({
  operationId: column.text,
  place: column.int8,
  state: column.state(SUBMISSION_HEAD_STATES),
  owner: column.text.nullable(),
  epoch: column.int,
  claimInMs: column.int.nullable(),
});
export type QueueHead = z.infer<typeof QueueHead>;

/** Locks the row that says who works on a session's oldest submission; undefined: none is unfinished. The clock is read after the wait (OWN-2). */
export function lockQueueHead(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<QueueHead | undefined> {
  takingLock(tx, 'submissionHead', `${tenantId}/${sessionId}`);
  return maybeRow(
    tx,
    QueueHead,
    sql`WITH l AS MATERIALIZED (
          SELECT * FROM runplane.submission_heads WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE
        )
        SELECT operation_id AS "operationId", place::text AS "place", state::text AS "state", owner AS "owner", epoch AS "epoch",
          runplane.ms_until(expires_at, runplane.app_now()) AS "claimInMs" FROM l`,
  );
}

export interface NewImportedSubmission {
  readonly operationId: string;
  readonly submissionId: string;
  readonly kind: string;
  readonly state: string;
  readonly payloadText: string;
  readonly sourceText: string;
  readonly contentHash: string;
  readonly hashVersion: number;
  readonly expectedRevision: number | null;
  readonly attempts: number;
  readonly lastError: string | null;
  readonly createdAt: string | null;
}

/**
 * Inserts submissions of an older store before all that the session has, in their order, under the lock of its head: places below zero, each
 * once. The counters of the head move with them, and its queue begins at the first of them. Returns how many of them are unfinished.
 */
export async function insertImportedSubmissions(
  tx: Tx,
  { tenantId, sessionId }: SessionKey,
  { submissions, turnKinds }: { submissions: readonly NewImportedSubmission[]; turnKinds: readonly string[] },
): Promise<void> {
  await tx.query(sql`
    WITH first AS MATERIALIZED (
      SELECT least(coalesce(min(place), 0), 0) AS place FROM runplane.submissions
      WHERE tenant_id COLLATE "POSIX" = ${tenantId}::text AND session_id COLLATE "POSIX" = ${sessionId}::text -- as the index of the places has it
    ), made AS (
      INSERT INTO runplane.submissions (tenant_id, session_id, operation_id, submission_id, kind, state, payload, source, content_hash, hash_version,
        expected_revision, accepted_sequence, place, attempts, last_error, from_event, created_at, ended_at)
      SELECT ${tenantId}::text, ${sessionId}::text, i.operation_id, i.submission_id, i.kind, i.state::runplane.submission_state, i.payload::json, i.source::json,
        i.content_hash, i.hash_version, i.expected_revision::bigint, first.place - ${submissions.length}::int + i.n - 1,
        first.place - ${submissions.length}::int + i.n - 1, i.attempts, i.last_error, false, coalesce(i.created_at::timestamptz, runplane.app_now()),
        CASE WHEN i.state <> 'pending' THEN coalesce(i.created_at::timestamptz, runplane.app_now()) END
      FROM first, unnest(${submissions.map((s) => s.operationId)}::text[], ${submissions.map((s) => s.submissionId)}::text[], ${submissions.map((s) => s.kind)}::text[],
        ${submissions.map((s) => s.state)}::text[], ${submissions.map((s) => s.payloadText)}::text[], ${submissions.map((s) => s.sourceText)}::text[],
        ${submissions.map((s) => s.contentHash)}::text[], ${submissions.map((s) => s.hashVersion)}::int[],
        ${submissions.map((s) => (s.expectedRevision === null ? null : String(s.expectedRevision)))}::text[], ${submissions.map((s) => s.attempts)}::int[],
        ${submissions.map((s) => s.lastError)}::text[], ${submissions.map((s) => s.createdAt)}::text[])
        WITH ORDINALITY AS i (operation_id, submission_id, kind, state, payload, source, content_hash, hash_version, expected_revision, attempts, last_error,
          created_at, n)
      RETURNING operation_id, kind, place, state
    ), open AS MATERIALIZED (
      SELECT operation_id, kind, place FROM made WHERE state = 'pending'
    ), head AS (
      INSERT INTO runplane.submission_heads (tenant_id, session_id, operation_id, kind, place, epoch)
      SELECT l.tenant_id, l.session_id, o.operation_id, o.kind, o.place, l.claim_epoch + 1
      FROM open o JOIN runplane.session_heads l ON l.tenant_id = ${tenantId}::text AND l.session_id = ${sessionId}::text ORDER BY o.place LIMIT 1
    )
    UPDATE runplane.session_heads SET views_epoch = views_epoch + 1, open_submissions = open_submissions + (SELECT count(*) FROM open)::int,
      open_turn_submissions = open_turn_submissions + (SELECT count(*) FROM open WHERE kind = ANY (${[...turnKinds]}::text[]))::int
    WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`);
}

/** Which of the operation or submission ids the session has. */
export async function listTakenSubmissions(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  submissions: readonly { operationId: string; submissionId: string }[],
): Promise<{ operationId: string; submissionId: string; contentHash: string }[]> {
  return rows(
    on,
    SubmissionRow.pick({ operationId: true, submissionId: true, contentHash: true }),
    sql`SELECT operation_id AS "operationId", submission_id AS "submissionId", content_hash AS "contentHash" FROM runplane.submissions
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND operation_id = ANY (${submissions.map((s) => s.operationId)}::text[])
        UNION
        SELECT operation_id, submission_id, content_hash FROM runplane.submissions
        WHERE submission_id = ANY (${submissions.map((s) => s.submissionId)}::text[]) AND tenant_id COLLATE "C" = ${tenantId}::text AND session_id COLLATE "C" = ${sessionId}::text`,
  );
}
