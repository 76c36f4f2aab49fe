import { SESSION_CLOCK_SKEW_MS_MAX } from '@runplane/contracts';
import { column, emptySql, joinSql, sql, textLines, type Sql } from '@runplane/database';
import { feedTx, insertOutboxEvents } from '@runplane/outbox';
import { z } from 'zod';
import type { FoldedBatch, PlacedEvent } from './fold-batch';
import { VIEWS_VERSION } from './projections';
import type { HeadChange } from './projections/projection';
import type { SessionKey } from './session.sql';

/** What the statement answers; no row: there is no such session. Not ok: nothing was written, since the head is not what was read. */
export const WrittenAppend = z.object({
  ok: column.bool,
  tx: column.bigint,
  /** Of each event in the feed, in their order. */
  positions: column.text.nullable().transform((text) => text?.split(',').map(BigInt) ?? []),
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
  /** False in a transaction that holds the head, and may write to a session that is marked as deleted. */
  readonly open: boolean;
}

/**
 * The one statement by which events enter a session's log (LOG-1, LOG-2): it locks the head, judges it and the clock after the wait (OWN-2, OWN-3),
 * and writes events, outbox, views and head, or nothing. Its text depends on nothing but which parts there are and whether there is one event.
 *
 * Relations that the parts of the views may read: `d`, the head as locked (one row: tenant_id, session_id, now, tx …; none where the append is
 * refused), and `out` (sequence, tx, position of each event in the feed).
 *
 * The version of the views never rises by an append: what older rules have added to views of newer ones makes them stale for those (a rebuild finds
 * them), and a fold that has failed makes it 0.
 */
export function appendStatement(
  { tenantId, sessionId }: SessionKey,
  { events, parts, head, stale }: FoldedBatch,
  { guard, floor, appendId }: { guard: AppendGuard; floor: bigint; appendId: string | null },
): Sql {
  const [event] = events;
  const one = event !== undefined && events.length === 1 && event.dataText.length <= TWICE_CHARS_MAX ? event : undefined;
  const { earliest, latest } = clockBounds(events);
  const fence = guard.epoch === null ? emptySql : sql`AND x.lease_epoch = ${guard.epoch}::int AND x.lease_expires_at > x.now`;
  const open = guard.open ? sql`AND x.deleted_at IS NULL` : emptySql;
  return sql`
    WITH l AS MATERIALIZED (
      SELECT tenant_id, session_id, last_sequence, views_epoch, last_tx, lease_epoch, lease_expires_at, deleted_at, project_id, partition_key, shard
      FROM runplane.session_heads WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE
    ), j AS MATERIALIZED (
      SELECT x.*, x.last_sequence = ${String(guard.lastSequence)}::bigint AND x.views_epoch = ${guard.viewsEpoch}::int ${fence} ${open}
          AND x.now BETWEEN ${earliest}::timestamptz AND ${latest}::timestamptz AS ok,
        greatest(x.last_tx, ${String(floor)}::bigint, ${feedTx}) AS tx${one === undefined ? emptySql : sql`, ${nextPosition} AS position`}
      FROM (SELECT l.*, runplane.app_now() AS now FROM l OFFSET 0) x
    ), d AS (SELECT * FROM j WHERE ok), ${one === undefined ? insertMany(events, appendId) : insertOne(one, appendId)}${parts.length === 0 ? emptySql : sql`, ${joinSql([...parts])}`},
    h AS (
      UPDATE runplane.session_heads t SET last_sequence = d.last_sequence + ${events.length}::int, last_tx = d.tx, event_tx = d.tx,
        event_position = ${one === undefined ? sql`(SELECT max(position) FROM s)` : sql`d.position`}, updated_at = d.now,
        views_version = least(t.views_version, ${stale ? 0 : VIEWS_VERSION}::int)${headSet(head)}
      FROM d WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id
    )
    SELECT j.ok AS "ok", j.tx::text AS "tx", (extract(epoch FROM j.now) * 1000)::bigint::text AS "now",
      ${one === undefined ? sql`(SELECT string_agg(position::text, ',' ORDER BY sequence) FROM s)` : sql`j.position::text`} AS "positions"
    FROM j`;
}

/** Longer data does not travel twice. */
const TWICE_CHARS_MAX = 8_192;

/** Between which times the database's clock must stand, so that no event's is far off it. */
function clockBounds(events: readonly PlacedEvent[]): { earliest: string; latest: string } {
  const times = events.map(({ time }) => time);
  return {
    earliest: new Date(Math.max(...times) - SESSION_CLOCK_SKEW_MS_MAX).toISOString(),
    latest: new Date(Math.min(...times) + SESSION_CLOCK_SKEW_MS_MAX).toISOString(),
  };
}

// Drawn after the head's lock, as FEED-1 demands, and before the inserts: the log keeps the places too.
const nextPosition = sql`nextval('runplane.outbox_events_position_seq')`;

const INTO_LOG = sql`INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, turn_id, step_id, data, run_id, command_id,
  append_id, append_count, tx, position, created_at)`;
const toOutbox = (source: Sql): Sql => sql`${insertOutboxEvents(source, { rows: 'placed' })} RETURNING sequence, tx, position`;

/** One event, the usual case: every part reads the one row of the head, and nothing is joined. */
function insertOne(event: PlacedEvent, appendId: string | null): Sql {
  const { sequence, eventId, type, timeText, dataText, turnId, stepId, runId, commandId } = event;
  return sql`out AS (${toOutbox(sql`(
      SELECT tx, position, shard, partition_key, tenant_id, 'session'::runplane.outbox_stream AS stream, session_id AS stream_id,
        ${String(sequence)}::bigint AS sequence, ${type}::text AS type, project_id, session_id, ${runId}::text AS run_id, ${commandId}::text AS command_id,
        ${eventId}::text AS event_id, ${dataText}::json AS data, now AS created_at FROM d)`)}
    ), written AS (
      ${INTO_LOG}
      SELECT tenant_id, session_id, ${String(sequence)}::bigint, ${eventId}::uuid, ${type}::text, ${timeText}::timestamptz, ${turnId}::text, ${stepId}::text,
        ${dataText}::json, ${runId}::text, ${commandId}::text, ${appendId}::text, ${appendId === null ? null : 1}::int, tx, position, now
      FROM d
    )`;
}

function insertMany(events: readonly PlacedEvent[], appendId: string | null): Sql {
  const [first] = events;
  return sql`s AS MATERIALIZED (
      SELECT d.tenant_id, d.session_id, d.shard, d.partition_key, d.project_id, d.tx, d.now, ${nextPosition} AS position,
        d.last_sequence + e.place AS sequence, e.place, e.event_id, e.type, e.time::timestamptz AS time, e.turn_id, e.step_id, e.data::json AS data
      FROM d, unnest(${textLines(events.map((e) => e.eventId))}, ${textLines(events.map((e) => e.type))}, ${textLines(events.map((e) => e.timeText))},
        ${textLines(events.map((e) => e.turnId))}, ${textLines(events.map((e) => e.stepId))}, ${textLines(events.map((e) => e.dataText))})
        WITH ORDINALITY AS e (event_id, type, time, turn_id, step_id, data, place)
      ORDER BY e.place
    ), out AS (${toOutbox(sql`(
      SELECT tx, position, shard, partition_key, tenant_id, 'session'::runplane.outbox_stream AS stream, session_id AS stream_id, sequence, type, project_id,
        session_id, ${first?.runId ?? null}::text AS run_id, ${first?.commandId ?? null}::text AS command_id, event_id, data, now AS created_at FROM s)`)}
    ), written AS (
      ${INTO_LOG}
      SELECT tenant_id, session_id, sequence, event_id::uuid, type, time, turn_id, step_id, data, ${first?.runId ?? null}::text, ${first?.commandId ?? null}::text,
        CASE WHEN place = 1 THEN ${appendId}::text END, CASE WHEN place = 1 THEN ${appendId === null ? null : events.length}::int END, tx, position, now
      FROM s
    )`;
}

/** The columns of the head that folds have changed, as a continuation of the SET list. */
export function headSet(change: HeadChange): Sql {
  const { snapshot, driverState, needsRecovery, windowId, openSubmissions, openTurnSubmissions } = change;
  const set = [
    ...(snapshot === undefined ? [] : [sql`snapshot = ${snapshot === null ? null : JSON.stringify(snapshot)}::json`]),
    ...(driverState === undefined ? [] : [sql`driver_state = ${driverState}::runplane.driver_state`]),
    ...(needsRecovery === undefined ? [] : [sql`needs_recovery = ${needsRecovery}::bool`]),
    ...(windowId === undefined ? [] : [sql`window_id = ${windowId}::text`]),
    ...(openSubmissions === undefined ? [] : [sql`open_submissions = ${openSubmissions}::int`]),
    ...(openTurnSubmissions === undefined ? [] : [sql`open_turn_submissions = ${openTurnSubmissions}::int`]),
  ];
  return set.length === 0 ? emptySql : sql`, ${joinSql(set)}`;
}
