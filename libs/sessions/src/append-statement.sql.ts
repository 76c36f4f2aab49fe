import { SESSION_CLOCK_SKEW_MS_MAX } from '@runplane/contracts';
import { column, emptySql, joinSql, sql, textLines, type Sql } from '@runplane/database';
import { EVENTS_PER_ROW_MAX, feedTx, insertOutboxBatch, nextPosition } from '@runplane/outbox';
import { z } from 'zod';
import type { FoldedBatch, PlacedEvent } from './fold-batch';
import { VIEWS_VERSION } from './projections';
import { endRoutes } from './projections/channel.sql';
import { addHistory } from './projections/context.sql';
import type { CommonWrites, HeadChange } from './projections/projection';
import type { SessionKey } from './session.sql';

/** What the statement answers; no row: there is no such session. Not ok: nothing was written, since the head is not what was read. */
export const WrittenAppend = z.object({
  ok: column.bool,
  tx: column.bigint,
  /** Of the first event in the feed; the others stand right behind it. */
  position: column.bigint,
  now: column.int8,
});
export type WrittenAppend = z.infer<typeof WrittenAppend>;

export interface AppendGuard {
  /** The sequence that the head was read at. */
  readonly lastSequence: number;
  /** And which views stood beside it. */
  readonly viewsEpoch: number;
  /** Of the session lease, which must be in force; null: no lease is asked for. */
  readonly epoch: number | null;
  /** Of the session's oldest submission, which must be in force; null: no claim is asked for. */
  readonly claim: { readonly operationId: string; readonly epoch: number } | null;
  /** False in a transaction that holds the head, and may write to a session that is marked as deleted. */
  readonly open: boolean;
}

/**
 * The one statement by which events enter a session's log (LOG-1, LOG-2): it locks the head, judges it and the clock after the wait (OWN-2, OWN-3),
 * and writes events, outbox, views and head, or nothing. Its text depends on nothing but which parts there are and whether there is one event.
 *
 * The parts of the views may read `d`, the head as locked (one row: tenant_id, session_id, now, tx …; none where the append is refused).
 *
 * The version of the views never rises by an append: what older rules have added to views of newer ones makes them stale for those (a rebuild finds
 * them), and a fold that has failed makes it 0.
 */
export function appendStatement(
  { tenantId, sessionId }: SessionKey,
  { events, parts, common, head, stale }: FoldedBatch,
  { guard, floor, appendId }: { guard: AppendGuard; floor: bigint; appendId: string | null },
): Sql {
  const [first] = events;
  if (first === undefined || events.length > EVENTS_PER_ROW_MAX) throw new RangeError(`an append has 1 to ${EVENTS_PER_ROW_MAX} events`);
  const views = [...parts, ...commonParts(common)];
  const { earliest, latest } = clockBounds(events);
  const fence = guard.epoch === null ? emptySql : sql`AND x.lease_epoch = ${guard.epoch}::int AND x.lease_expires_at > x.now`;
  const open = guard.open ? sql`AND x.deleted_at IS NULL` : emptySql;
  return sql`
    WITH l AS MATERIALIZED (
      SELECT tenant_id, session_id, last_sequence, views_epoch, last_tx, lease_epoch, lease_expires_at, claim_epoch, deleted_at, project_id, partition_key, shard
      FROM runplane.session_heads WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE
    )${guard.claim === null ? emptySql : lockClaim}, j AS MATERIALIZED (
      -- IS TRUE: a lease that was given back has no end, and a comparison with it no answer.
      SELECT x.*, (x.last_sequence = ${String(guard.lastSequence)}::bigint AND x.views_epoch = ${guard.viewsEpoch}::int ${fence} ${open} ${inForce(guard.claim)}
          AND x.now BETWEEN ${earliest}::timestamptz AND ${latest}::timestamptz) IS TRUE AS ok,
        greatest(x.last_tx, ${String(floor)}::bigint, ${feedTx}) AS tx,
        -- Behind the lock, as FEED-1 demands.
        ${nextPosition} AS position
      FROM (SELECT l.*, runplane.app_now() AS now FROM l${guard.claim === null ? emptySql : sql` LEFT JOIN c ON true`} OFFSET 0) x
    ), d AS (SELECT * FROM j WHERE ok), ${toOutbox(first, events.length)}, ${toLog(first, events, appendId)}${views.length === 0 ? emptySql : sql`, ${joinSql(views)}`},
    h AS (
      UPDATE runplane.session_heads t SET last_sequence = d.last_sequence + ${events.length}::int, last_tx = d.tx, event_tx = d.tx,
        event_position = d.position + ${events.length - 1}::int, updated_at = d.now,
        views_version = least(t.views_version, ${stale ? 0 : VIEWS_VERSION}::int)${headSet(head)}
      FROM d WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id
    )
    SELECT j.ok AS "ok", j.tx::text AS "tx", (extract(epoch FROM j.now) * 1000)::bigint::text AS "now", j.position::text AS "position"
    FROM j`;
}

const commonParts = ({ history, endedTurns }: CommonWrites): Sql[] => [
  ...(history.length === 0 ? [] : [addHistory(history)]),
  ...(endedTurns.length === 0 ? [] : [endRoutes(endedTurns)]),
];

/** Who has claimed the session's oldest submission, locked behind the head: a claim passes beside the log (docs/locking.md). */
const lockClaim = sql`, c AS MATERIALIZED (
      SELECT t.state, t.operation_id, t.epoch, t.expires_at FROM l JOIN runplane.submission_heads t ON t.tenant_id = l.tenant_id AND t.session_id = l.session_id
      FOR NO KEY UPDATE OF t
    )`;
const inForce = (claim: AppendGuard['claim']): Sql =>
  claim === null
    ? emptySql
    : sql`AND EXISTS (SELECT FROM c WHERE c.state = 'claimed' AND c.operation_id = ${claim.operationId}::text AND c.epoch = ${claim.epoch}::int AND c.expires_at > x.now)`;

/** Between which times the database's clock must stand, so that no event's is far off it. */
export function clockBounds(events: readonly PlacedEvent[]): { earliest: string; latest: string } {
  const times = events.map(({ time }) => time);
  return {
    earliest: new Date(Math.max(...times) - SESSION_CLOCK_SKEW_MS_MAX).toISOString(),
    latest: new Date(Math.min(...times) + SESSION_CLOCK_SKEW_MS_MAX).toISOString(),
  };
}

/** The one event that the feed must still have when its log is gone. */
const OUTLIVES_LOG = 'session/deleted';

function toOutbox({ eventId, type, dataText, runId, commandId }: PlacedEvent, count: number): Sql {
  const data = type === OUTLIVES_LOG && count === 1 ? dataText : null;
  return sql`out AS (${insertOutboxBatch(sql`(
      SELECT tx, position, ${count}::int AS events, shard, partition_key, tenant_id, 'session'::runplane.outbox_stream AS stream, session_id AS stream_id,
        last_sequence + 1 AS sequence, ${type}::text AS type, project_id, session_id, ${runId}::text AS run_id, ${commandId}::text AS command_id,
        ${eventId}::text AS event_id, ${data}::json AS data, now AS created_at FROM d)`)})`;
}

export const INTO_LOG = sql`INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, turn_id, step_id, data, run_id, command_id,
  append_id, append_count, tx, position, created_at)`;

/** One event is the usual case: nothing is joined. */
function toLog(first: PlacedEvent, events: readonly PlacedEvent[], appendId: string | null): Sql {
  const { eventId, type, timeText, dataText, turnId, stepId, runId, commandId } = first;
  const count = appendId === null ? null : events.length;
  if (events.length === 1) {
    return sql`written AS (
      ${INTO_LOG}
      SELECT tenant_id, session_id, last_sequence + 1, ${eventId}::uuid, ${type}::text, ${timeText}::timestamptz, ${turnId}::text, ${stepId}::text,
        ${dataText}::json, ${runId}::text, ${commandId}::text, ${appendId}::text, ${count}::int, tx, position, now
      FROM d
    )`;
  }
  return sql`written AS (
      ${INTO_LOG}
      SELECT d.tenant_id, d.session_id, d.last_sequence + e.place, e.event_id::uuid, e.type, e.time::timestamptz, e.turn_id, e.step_id, e.data::json,
        ${runId}::text, ${commandId}::text, CASE WHEN e.place = 1 THEN ${appendId}::text END, CASE WHEN e.place = 1 THEN ${count}::int END,
        d.tx, d.position + e.place - 1, d.now
      FROM d, unnest(${textLines(events.map((e) => e.eventId))}, ${textLines(events.map((e) => e.type))}, ${textLines(events.map((e) => e.timeText))},
        ${textLines(events.map((e) => e.turnId))}, ${textLines(events.map((e) => e.stepId))}, ${textLines(events.map((e) => e.dataText))})
        WITH ORDINALITY AS e (event_id, type, time, turn_id, step_id, data, place)
    )`;
}

/** The columns of the head that folds have changed, as a continuation of the SET list. */
export function headSet(change: HeadChange): Sql {
  const { snapshot, driverState, needsRecovery, windowId, firstWindowId, openSubmissions, openTurnSubmissions } = change;
  const set = [
    ...(snapshot === undefined ? [] : [sql`snapshot = ${snapshot === null ? null : JSON.stringify(snapshot)}::json`]),
    ...(driverState === undefined ? [] : [sql`driver_state = ${driverState}::runplane.driver_state`]),
    ...(needsRecovery === undefined ? [] : [sql`needs_recovery = ${needsRecovery}::bool`]),
    ...(windowId === undefined ? [] : [sql`window_id = ${windowId}::text`]),
    ...(firstWindowId === undefined ? [] : [sql`first_window_id = ${firstWindowId}::text`]),
    ...(openSubmissions === undefined ? [] : [sql`open_submissions = ${openSubmissions}::int`]),
    ...(openTurnSubmissions === undefined ? [] : [sql`open_turn_submissions = ${openTurnSubmissions}::int`]),
  ];
  return set.length === 0 ? emptySql : sql`, ${joinSql(set)}`;
}
