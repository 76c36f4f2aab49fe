import { SUBMISSION_STATES } from '@runplane/contracts';
import { sql, type Sql } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';
import { unfinishedOf } from '../submission-rows.sql';
import type { AcceptedSubmission, KnownSubmission, Submissions } from './submission';

// Statements' parts of the submission projection. submissions is written by appends alone, under the lock of the session's head and at the
// sequence that was read, so that the statement's own snapshot shows every unfinished submission; rows of submission_heads are claimed
// beside it, and so locked here before they are read.

const sequence = z.int();

export const LoadedSubmissions = z.array(
  z
    .object({
      operationId: z.string(),
      submissionId: z.string(),
      kind: z.string(),
      state: z.enum(SUBMISSION_STATES),
      place: sequence,
      endedSequence: sequence.nullable(),
      endedMs: z.int().nullable(),
      lastError: z.string().nullable(),
      claimEpoch: z.int(),
    })
    .transform(({ endedSequence, endedMs, ...row }) => ({
      ...row,
      ended: endedSequence === null || endedMs === null ? null : { sequence: endedSequence, time: endedMs },
    })),
);

const loaded = (
  source: Sql,
): Sql => sql`(SELECT coalesce(json_agg(json_build_object('operationId', s.operation_id, 'submissionId', s.submission_id, 'kind', s.kind,
      'state', s.state, 'place', s.place, 'endedSequence', s.ended_sequence, 'endedMs', (extract(epoch FROM s.ended_at) * 1000)::bigint,
      'lastError', s.last_error, 'claimEpoch', s.claim_epoch)), '[]'::json)
    FROM ${source})`;

/** The one of an operation's id. */
export const loadSubmission = (tenantId: Sql, sessionId: Sql, operationId: Sql): Sql =>
  loaded(sql`runplane.submissions s WHERE s.tenant_id = ${tenantId} AND s.session_id = ${sessionId} AND s.operation_id = ${operationId}`);

/** Of these operation ids or submission ids, what the session has. */
export function loadSubmissions({ operationIds, submissionIds }: NamedSubmissions, { tenantId, sessionId }: SessionKey): Sql {
  const byOperation = sql`SELECT * FROM runplane.submissions s
      WHERE s.tenant_id = ${tenantId}::text AND s.session_id = ${sessionId}::text AND s.operation_id = ANY (${operationIds}::text[])`;
  if (submissionIds.length === 0) return loaded(sql`(${byOperation}) s`);
  // In the words of the index of these ids, which no condition over both kinds of ids could use.
  return loaded(sql`(${byOperation} UNION ALL SELECT * FROM runplane.submissions s
      WHERE s.submission_id = ANY (${submissionIds}::text[]) AND s.tenant_id COLLATE "C" = ${tenantId}::text AND s.session_id COLLATE "C" = ${sessionId}::text
        AND s.operation_id <> ALL (${operationIds}::text[])) s`);
}
interface NamedSubmissions {
  readonly operationIds: string[];
  readonly submissionIds: string[];
}

export const timeOf = (milliseconds: Sql): Sql => sql`('epoch'::timestamptz + ${milliseconds}::bigint * interval '1 millisecond')`;
const textOf = (number: number | null): string | null => (number === null ? null : String(number));

/** The view itself: what was accepted, and what the batch made of submissions that stood before. */
export function writeSubmissions({ known, changed }: Submissions): Sql[] {
  const accepted = [...known.values()].filter(isNew);
  const moved = [...changed].flatMap((operationId) => known.get(operationId) ?? []);
  return [...(accepted.length === 0 ? [] : [insertAccepted(accepted)]), ...(moved.length === 0 ? [] : [lockHead, updateMoved(moved)])];
}

type New = KnownSubmission & { readonly accepted: AcceptedSubmission };
const isNew = (submission: KnownSubmission): submission is New => submission.accepted !== null;

function insertAccepted(accepted: readonly New[]): Sql {
  return sql`submission_accepted AS (
    INSERT INTO runplane.submissions (tenant_id, session_id, operation_id, submission_id, kind, state, payload, source, content_hash, hash_version,
      expected_revision, accepted_sequence, place, last_error, created_at, ended_at, ended_sequence)
    SELECT d.tenant_id, d.session_id, a.operation_id, a.submission_id, a.kind, a.state::runplane.submission_state, a.payload::json, a.source::json,
      a.content_hash, a.hash_version, a.expected_revision::bigint, a.accepted_sequence::bigint, a.place::bigint, a.last_error,
      ${timeOf(sql`a.created_ms`)}, ${timeOf(sql`a.ended_ms`)}, a.ended_sequence::bigint
    FROM d CROSS JOIN unnest(${accepted.map((a) => a.operationId)}::text[], ${accepted.map((a) => a.submissionId)}::text[], ${accepted.map((a) => a.kind)}::text[],
      ${accepted.map((a) => a.state)}::text[], ${accepted.map((a) => a.accepted.payloadText)}::text[], ${accepted.map((a) => a.accepted.sourceText)}::text[],
      ${accepted.map((a) => a.accepted.contentHash)}::text[], ${accepted.map((a) => a.accepted.hashVersion)}::int[],
      ${accepted.map((a) => textOf(a.accepted.expectedRevision))}::text[], ${accepted.map((a) => String(a.accepted.sequence))}::text[],
      ${accepted.map((a) => String(a.place))}::text[], ${accepted.map((a) => a.lastError)}::text[], ${accepted.map((a) => String(a.accepted.time))}::text[],
      ${accepted.map((a) => textOf(a.ended?.time ?? null))}::text[], ${accepted.map((a) => textOf(a.ended?.sequence ?? null))}::text[])
      AS a (operation_id, submission_id, kind, state, payload, source, content_hash, hash_version, expected_revision, accepted_sequence, place,
        last_error, created_ms, ended_ms, ended_sequence)
  )`;
}

/** The session's head row, with whatever a claim has just made of it. */
const lockHead = sql`submission_head AS MATERIALIZED (
    SELECT t.operation_id, t.attempts, t.epoch FROM d JOIN runplane.submission_heads t ON t.tenant_id = d.tenant_id AND t.session_id = d.session_id
    FOR NO KEY UPDATE OF t
  )`;

/** One that leaves the head of the queue takes along what was counted there. */
function updateMoved(moved: readonly KnownSubmission[]): Sql {
  return sql`submission_moved AS (
    UPDATE runplane.submissions s SET state = m.state::runplane.submission_state, place = m.place::bigint, last_error = m.last_error,
      ended_at = ${timeOf(sql`m.ended_ms`)}, ended_sequence = m.ended_sequence::bigint,
      attempts = s.attempts + coalesce(h.attempts, 0), claim_epoch = coalesce(h.epoch, s.claim_epoch)
    FROM d CROSS JOIN unnest(${moved.map((m) => m.operationId)}::text[], ${moved.map((m) => m.state)}::text[], ${moved.map((m) => String(m.place))}::text[],
        ${moved.map((m) => m.lastError)}::text[], ${moved.map((m) => textOf(m.ended?.time ?? null))}::text[],
        ${moved.map((m) => textOf(m.ended?.sequence ?? null))}::text[]) AS m (operation_id, state, place, last_error, ended_ms, ended_sequence)
      LEFT JOIN submission_head h ON h.operation_id = m.operation_id
    WHERE s.tenant_id = d.tenant_id AND s.session_id = d.session_id AND s.operation_id = m.operation_id
      AND s.operation_id = ANY (${moved.map((m) => m.operationId)}::text[]) -- said once more, so that these alone are read
    RETURNING s.operation_id
  )`;
}

/** Keeps the head row at the oldest unfinished submission. What moves there is free: a claim of the one before is over (OWN-1). */
export function coordinateSubmissions({ known, changed, openBefore }: Submissions): Sql[] {
  const queued = [...known.values()]
    .filter(({ operationId, accepted, state }) => state === 'pending' && (accepted !== null || changed.has(operationId)))
    .sort((a, b) => a.place - b.place)
    .at(0);
  if (changed.size > 0) return [findNext([...changed], queued), moveHead, removeHead, makeHead];
  return queued === undefined || openBefore > 0 ? [] : [findNext([], queued), makeHead];
}

/** The oldest unfinished one behind the batch: of those that it leaves alone, or else the first that it has queued. */
function findNext(changed: readonly string[], queued: KnownSubmission | undefined): Sql {
  return sql`submission_next AS MATERIALIZED (
    SELECT n.* FROM (
      SELECT s.* FROM d CROSS JOIN LATERAL (
        SELECT s.operation_id, s.kind, s.place, s.claim_epoch FROM runplane.submissions s
        WHERE ${unfinishedOf('s', sql`d.tenant_id`, sql`d.session_id`)} AND s.operation_id <> ALL (${[...changed]}::text[])
        ORDER BY s.place LIMIT 1
      ) s
      UNION ALL
      SELECT ${queued?.operationId ?? null}::text, ${queued?.kind ?? null}::text, ${textOf(queued?.place ?? null)}::text::bigint, ${queued?.claimEpoch ?? null}::int
      FROM d WHERE ${queued !== undefined}::bool
    ) n ORDER BY n.place LIMIT 1
  )`;
}

/** Parts that nobody reads run in any order: the head row is read before it changes, by whoever has to be done first. */
const behindMoved = sql`(SELECT count(*) FROM submission_moved) >= 0`;

/** What the head row becomes, `t`, when `n` comes to the head of the queue. */
export const nextAtHead = (now: Sql): Sql =>
  sql`operation_id = n.operation_id, kind = n.kind, place = n.place, state = 'waiting', owner = NULL, expires_at = NULL,
      epoch = greatest(t.epoch, n.claim_epoch) + 1, attempts = 0, ready_at = ${now}, last_error = NULL`;

const moveHead = sql`submission_head_moved AS (
    UPDATE runplane.submission_heads t SET ${nextAtHead(sql`d.now`)}
    FROM d CROSS JOIN submission_next n
    WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id AND (t.operation_id <> n.operation_id OR t.place <> n.place)
      AND ${behindMoved}
  )`;

const removeHead = sql`submission_head_gone AS (
    DELETE FROM runplane.submission_heads t USING d
    WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id AND NOT EXISTS (SELECT FROM submission_next) AND ${behindMoved}
  )`;

/** Under the lock of the session's head nobody else makes one. */
const makeHead = sql`submission_head_made AS (
    INSERT INTO runplane.submission_heads (tenant_id, session_id, operation_id, kind, place, epoch, ready_at)
    SELECT d.tenant_id, d.session_id, n.operation_id, n.kind, n.place, greatest(n.claim_epoch, d.claim_epoch) + 1, d.now FROM d CROSS JOIN submission_next n
    WHERE NOT EXISTS (SELECT FROM runplane.submission_heads t WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id)
  )`;
