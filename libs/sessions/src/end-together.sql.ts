import { column, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { feedTx, insertOutboxBatch, nextPosition } from '@runplane/outbox';
import { z } from 'zod';
import { clockBounds, INTO_LOG } from './append-statement.sql';
import type { PlacedEvent } from './fold-batch';
import { VIEWS_VERSION } from './projections';
import { loadSubmission, nextAtHead, timeOf } from './projections/submission.sql';
import { HeadWithLoad, headWithLoad, type HeadRow } from './session-head.sql';
import { unfinishedOf } from './submission-rows.sql';

// Ends of claimed submissions of several sessions, one of each: read with one statement, folded in memory, written with another one. What each
// writes is what the append of one end writes (appendStatement with the parts of the submission projection), under the same guards.

const FoundRow = HeadWithLoad.extend({ call: column.int });

/** The heads of the sessions as they are, each with what the projection needs of the submission; undefined: there is no such session. */
export async function readForEnds(
  on: SqlExecutor,
  tenantId: string,
  ends: readonly { readonly sessionId: string; readonly operationId: string }[],
): Promise<({ head: HeadRow; loaded: unknown } | undefined)[]> {
  const found = ends.map((): { head: HeadRow; loaded: unknown } | undefined => undefined);
  const read = await rows(
    on,
    FoundRow,
    sql`SELECT c.call::int AS "call", h.*
        FROM unnest(${ends.map((e) => e.sessionId)}::text[], ${ends.map((e) => e.operationId)}::text[]) WITH ORDINALITY AS c (of_session, of_operation, call)
        CROSS JOIN LATERAL (${headWithLoad(sql`${tenantId}::text`, sql`c.of_session`, loadSubmission(sql`${tenantId}::text`, sql`c.of_session`, sql`c.of_operation`))}) h`,
  );
  for (const { call, load, ...head } of read) {
    const sessionId = ends[call - 1]?.sessionId ?? '';
    found[call - 1] = { head: { ...head, tenantId, sessionId }, loaded: load };
  }
  return found;
}

/** An end as it is folded: what its one event makes of submission and head. */
export interface FoldedEnd {
  readonly sessionId: string;
  readonly operationId: string;
  readonly claimEpoch: number;
  readonly head: Pick<HeadRow, 'lastSequence' | 'viewsEpoch'>;
  readonly event: PlacedEvent;
  readonly state: 'completed' | 'failed';
  readonly lastError: string | null;
  readonly openSubmissions: number;
  readonly openTurnSubmissions: number;
}

/**
 * Carries out those whose session is as it was read, and whose claim is in force: whether each was. False of the others: one has moved, somebody holds
 * it, or its claim is over. Waits for nobody, so it has no place in the order of locks. Rows are found each by its key (see appendTogether).
 */
export async function endTogether(on: SqlExecutor, tenantId: string, ends: readonly FoldedEnd[]): Promise<boolean[]> {
  const done = ends.map(() => false);
  for (const { call } of await rows(on, z.object({ call: column.int }), endsStatement(tenantId, ends))) done[call - 1] = true;
  return done;
}

function givenRows(ends: readonly FoldedEnd[]): Sql {
  const clocks = ends.map(({ event }) => clockBounds([event]));
  return sql`unnest(${ends.map((e) => e.sessionId)}::text[], ${ends.map((e) => e.operationId)}::text[], ${ends.map((e) => e.claimEpoch)}::int[],
      ${ends.map((e) => String(e.head.lastSequence))}::text[], ${ends.map((e) => e.head.viewsEpoch)}::int[], ${clocks.map((c) => c.earliest)}::text[],
      ${clocks.map((c) => c.latest)}::text[], ${ends.map((e) => e.event.eventId)}::text[], ${ends.map((e) => e.event.type)}::text[],
      ${ends.map((e) => e.event.timeText)}::text[], ${ends.map((e) => String(e.event.time))}::text[], ${ends.map((e) => e.event.dataText)}::text[],
      ${ends.map((e) => e.state)}::text[], ${ends.map((e) => e.lastError)}::text[], ${ends.map((e) => e.openSubmissions)}::int[],
      ${ends.map((e) => e.openTurnSubmissions)}::int[])
    WITH ORDINALITY AS c (session_id, operation_id, claim, read_sequence, read_views_epoch, earliest, latest, event_id, type, time, time_ms, data, state, last_error,
      open, open_turns, call)`;
}

function endsStatement(tenantId: string, ends: readonly FoldedEnd[]): Sql {
  return sql`
    WITH l AS MATERIALIZED (
      SELECT h.*, c.*
      FROM (SELECT * FROM ${givenRows(ends)} ORDER BY c.session_id COLLATE "C" LIMIT ${ends.length}::int) c
      CROSS JOIN LATERAL (
        SELECT h.tenant_id, h.last_sequence, h.views_epoch, h.last_tx, h.deleted_at, h.project_id, h.partition_key, h.shard
        FROM runplane.session_heads h WHERE h.tenant_id = ${tenantId}::text AND h.session_id = c.session_id FOR NO KEY UPDATE SKIP LOCKED
      ) h
    ), q AS MATERIALIZED (
      -- Who has claimed them, locked behind the heads of the sessions: a claim passes beside the log (docs/locking.md).
      SELECT l.*, t.* FROM l CROSS JOIN LATERAL (
        SELECT t.operation_id AS claimed, t.state AS claim_state, t.epoch AS claim_epoch, t.expires_at, t.attempts
        FROM runplane.submission_heads t WHERE t.tenant_id = l.tenant_id AND t.session_id = l.session_id FOR NO KEY UPDATE SKIP LOCKED
      ) t
    ), d AS MATERIALIZED (
      SELECT x.*, greatest(x.last_tx, ${feedTx}) AS tx,
        -- Behind the locks, as FEED-1 demands.
        ${nextPosition} AS position
      FROM (SELECT q.*, runplane.app_now() AS now FROM q OFFSET 0) x
      WHERE x.last_sequence = x.read_sequence::bigint AND x.views_epoch = x.read_views_epoch AND x.deleted_at IS NULL
        AND x.claim_state = 'claimed' AND x.claimed = x.operation_id AND x.claim_epoch = x.claim AND x.expires_at > x.now
        AND x.now BETWEEN x.earliest::timestamptz AND x.latest::timestamptz
    ), out AS (${insertOutboxBatch(sql`(
      SELECT tx, position, 1 AS events, shard, partition_key, tenant_id, 'session'::runplane.outbox_stream AS stream, session_id AS stream_id,
        last_sequence + 1 AS sequence, type, project_id, session_id, NULL::text AS run_id, NULL::text AS command_id, event_id, NULL::json AS data, now AS created_at
      FROM d)`)}),
    written AS (
      ${INTO_LOG}
      SELECT tenant_id, session_id, last_sequence + 1, event_id::uuid, type, time::timestamptz, NULL, NULL, data::json, NULL, NULL, NULL, NULL, tx, position, now
      FROM d
    ), moved AS (
      UPDATE runplane.submissions s SET state = d.state::runplane.submission_state, last_error = d.last_error, ended_at = ${timeOf(sql`d.time_ms`)},
        ended_sequence = d.last_sequence + 1, attempts = s.attempts + d.attempts, claim_epoch = d.claim_epoch
      FROM d WHERE s.tenant_id = d.tenant_id AND s.session_id = d.session_id AND s.operation_id = d.operation_id
    ), next AS MATERIALIZED (
      SELECT d.call, d.tenant_id AS of_tenant, d.session_id AS of_session, d.now, n.* FROM d CROSS JOIN LATERAL (
        SELECT s.operation_id, s.kind, s.place, s.claim_epoch FROM runplane.submissions s
        WHERE ${unfinishedOf('s', sql`d.tenant_id`, sql`d.session_id`)} AND s.operation_id <> d.operation_id ORDER BY s.place LIMIT 1
      ) n
    ), head_moved AS (
      UPDATE runplane.submission_heads t SET ${nextAtHead(sql`n.now`)} FROM next n WHERE t.tenant_id = n.of_tenant AND t.session_id = n.of_session
    ), head_gone AS (
      DELETE FROM runplane.submission_heads t USING d
      WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id AND NOT EXISTS (SELECT FROM next n WHERE n.call = d.call)
    ), h AS (
      UPDATE runplane.session_heads t SET last_sequence = d.last_sequence + 1, last_tx = d.tx, event_tx = d.tx, event_position = d.position, updated_at = d.now,
        views_version = least(t.views_version, ${VIEWS_VERSION}::int), open_submissions = d.open, open_turn_submissions = d.open_turns
      FROM d WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id
    )
    SELECT d.call::int AS "call" FROM d`;
}
