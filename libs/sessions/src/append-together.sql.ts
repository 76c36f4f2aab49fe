import { column, rows, sql, textLines, type Sql, type SqlExecutor } from '@runplane/database';
import { feedTx, insertOutboxBatch, nextPosition } from '@runplane/outbox';
import { clockBounds, INTO_LOG, WrittenAppend, type AppendGuard } from './append-statement.sql';
import type { FoldedBatch, PlacedEvent } from './fold-batch';
import { VIEWS_VERSION } from './projections';
import type { HeadChange } from './projections/projection';
import { endedTurnRows, time } from './projections/channel.sql';
import { historyRows } from './projections/context.sql';
import type { SessionKey } from './session.sql';

/** An append that can share a statement with those of other sessions: it writes events, the head, and what nearly all write (CommonWrites). */
export interface PlainAppend extends SessionKey {
  readonly batch: FoldedBatch;
  readonly guard: Pick<AppendGuard, 'lastSequence' | 'viewsEpoch' | 'epoch'>;
  readonly appendId: string | null;
}

/** What of the head it may change. */
const PLAIN_CHANGES: ReadonlySet<string> = new Set<keyof HeadChange>(['snapshot', 'driverState', 'needsRecovery']);

export const isPlain = ({ parts, head }: FoldedBatch): boolean =>
  parts.length === 0 && head.snapshot !== null && Object.keys(head).every((name) => PLAIN_CHANGES.has(name));

const VerdictRow = WrittenAppend.extend({ call: column.int });

/**
 * Carries out appends to several sessions, one to each, in one statement: what became of each, in their order; undefined: its head is locked by
 * somebody else, or there is none.
 */
export async function appendTogether(on: SqlExecutor, appends: readonly PlainAppend[]): Promise<(WrittenAppend | undefined)[]> {
  const verdicts = appends.map((): WrittenAppend | undefined => undefined);
  for (const { call, ...written } of await rows(on, VerdictRow, togetherStatement(appends))) verdicts[call - 1] = written;
  return verdicts;
}

const nullable = <T>(value: T | undefined): T | null => value ?? null;
const firstOf = ({ batch: { events } }: PlainAppend): PlacedEvent => {
  const [first] = events;
  if (first === undefined) throw new RangeError('an append has an event');
  return first;
};

/** The appends as rows `c`, each with its guards (`read_…`: as the head was read), what its events have in common, and its change of the head. */
function callRows(appends: readonly PlainAppend[]): Sql {
  const firsts = appends.map(firstOf);
  const clocks = appends.map(({ batch: { events } }) => clockBounds(events));
  const heads = appends.map(({ batch: { head } }) => head);
  return sql`ROWS FROM (unnest(${appends.map((a) => a.tenantId)}::text[]), unnest(${appends.map((a) => a.sessionId)}::text[]),
      unnest(${appends.map((a) => String(a.guard.lastSequence))}::text[]), unnest(${appends.map((a) => a.guard.viewsEpoch)}::int[]),
      unnest(${appends.map((a) => a.guard.epoch)}::int[]), unnest(${clocks.map((c) => c.earliest)}::text[]), unnest(${clocks.map((c) => c.latest)}::text[]),
      unnest(${appends.map((a) => a.batch.events.length)}::int[]), unnest(${appends.map((a) => a.appendId)}::text[]),
      unnest(${firsts.map((e) => e.type)}::text[]), unnest(${firsts.map((e) => e.eventId)}::text[]),
      unnest(${firsts.map((e) => e.runId)}::text[]), unnest(${firsts.map((e) => e.commandId)}::text[]),
      unnest(${heads.map((h) => (h.snapshot == null ? null : JSON.stringify(h.snapshot)))}::text[]),
      unnest(${heads.map((h) => nullable(h.driverState))}::text[]), unnest(${heads.map((h) => nullable(h.needsRecovery))}::bool[]),
      unnest(${appends.map((a) => (a.batch.stale ? 0 : VIEWS_VERSION))}::int[]))
    WITH ORDINALITY AS c (tenant_id, session_id, read_sequence, read_views_epoch, epoch, earliest, latest, events, append_id, type, event_id, run_id, command_id,
      snapshot, driver_state, needs_recovery, views_version, call)`;
}

/**
 * The statement of one append (appendStatement), for many: `l` the heads as far as nobody else holds them, `d` those of them that are as they were
 * read, under the same guards. Waits for nobody, so it has no place in the order of locks. Heads are found each by its key: as a join, planned for any
 * parameters, the statement would read the whole table while it is small, and go on to when it has grown.
 */
function togetherStatement(appends: readonly PlainAppend[]): Sql {
  const events = appends.flatMap(({ batch }, i) => batch.events.map((event) => ({ ...at(i), event })));
  const history = appends.flatMap(({ batch }, i) => batch.common.history.map((item) => ({ ...at(i), item })));
  const ended = appends.flatMap(({ batch }, i) => batch.common.endedTurns.map((turn) => ({ ...at(i), turn })));
  return sql`
    WITH l AS MATERIALIZED (
      SELECT h.*, c.call::int, c.read_sequence::bigint, c.read_views_epoch, c.epoch, c.earliest::timestamptz, c.latest::timestamptz, c.events, c.append_id, c.type,
        c.event_id, c.run_id, c.command_id, c.snapshot::json, c.driver_state::runplane.driver_state, c.needs_recovery, c.views_version
      FROM (SELECT * FROM ${callRows(appends)} ORDER BY c.session_id COLLATE "C" LIMIT ${appends.length}::int) c
      CROSS JOIN LATERAL (
        SELECT h.tenant_id, h.session_id, h.last_sequence, h.views_epoch, h.last_tx, h.lease_epoch, h.lease_expires_at, h.deleted_at, h.project_id, h.partition_key, h.shard
        FROM runplane.session_heads h WHERE h.tenant_id = c.tenant_id AND h.session_id = c.session_id FOR NO KEY UPDATE SKIP LOCKED
      ) h
    ), j AS MATERIALIZED (
      SELECT x.*, (x.last_sequence = x.read_sequence AND x.views_epoch = x.read_views_epoch AND x.deleted_at IS NULL
          AND (x.epoch IS NULL OR x.lease_epoch = x.epoch AND x.lease_expires_at > x.now) AND x.now BETWEEN x.earliest AND x.latest) IS TRUE AS ok,
        greatest(x.last_tx, ${feedTx}) AS tx,
        -- Behind the lock, as FEED-1 demands.
        ${nextPosition} AS position
      FROM (SELECT l.*, runplane.app_now() AS now FROM l OFFSET 0) x
    ), d AS MATERIALIZED (SELECT * FROM j WHERE ok),
    out AS (${insertOutboxBatch(sql`(
      SELECT tx, position, events, shard, partition_key, tenant_id, 'session'::runplane.outbox_stream AS stream, session_id AS stream_id,
        last_sequence + 1 AS sequence, type, project_id, session_id, run_id, command_id, event_id, NULL::json AS data, now AS created_at FROM d)`)}),
    written AS (
      ${INTO_LOG}
      SELECT d.tenant_id, d.session_id, e.sequence::bigint, e.event_id::uuid, e.type, e.time::timestamptz, e.turn_id, e.step_id, e.data::json,
        d.run_id, d.command_id, CASE WHEN e.sequence::bigint = d.last_sequence + 1 THEN d.append_id END,
        CASE WHEN e.sequence::bigint = d.last_sequence + 1 AND d.append_id IS NOT NULL THEN d.events END,
        d.tx, d.position + e.sequence::bigint - d.last_sequence - 1, d.now
      FROM ROWS FROM (unnest(${events.map(({ call }) => call)}::int[]), ${eventRows(events.map(({ event }) => event))})
        AS e (call, sequence, event_id, type, time, turn_id, step_id, data)
      JOIN d ON d.call = e.call
    ), history AS (
      INSERT INTO runplane.context_history (tenant_id, session_id, sequence, window_id, role, tool_name, content)
      SELECT d.tenant_id, d.session_id, i.sequence::bigint, i.window_id, i.role, i.tool_name, i.content
      FROM ROWS FROM (unnest(${history.map(({ call }) => call)}::int[]), ${historyRows(history.map(({ item }) => item))})
        AS i (call, sequence, window_id, role, tool_name, content)
      JOIN d ON d.call = i.call
    ), routes AS (
      UPDATE runplane.channel_routes r SET ended_at = ${time(sql`e.time`)}
      FROM ROWS FROM (unnest(${ended.map(({ call }) => call)}::int[]), ${endedTurnRows(ended.map(({ turn }) => turn))}) AS e (call, turn_id, time)
      JOIN d ON d.call = e.call
      WHERE r.tenant_id = d.tenant_id AND r.session_id = d.session_id AND r.turn_id = e.turn_id
    ), h AS (
      UPDATE runplane.session_heads t SET last_sequence = d.last_sequence + d.events, last_tx = d.tx, event_tx = d.tx,
        event_position = d.position + d.events - 1, updated_at = d.now, views_version = least(t.views_version, d.views_version),
        snapshot = coalesce(d.snapshot, t.snapshot), driver_state = coalesce(d.driver_state, t.driver_state),
        needs_recovery = coalesce(d.needs_recovery, t.needs_recovery)
      FROM d WHERE t.tenant_id = d.tenant_id AND t.session_id = d.session_id
    )
    SELECT j.call AS "call", j.ok AS "ok", j.tx::text AS "tx", (extract(epoch FROM j.now) * 1000)::bigint::text AS "now", j.position::text AS "position"
    FROM j`;
}

const at = (index: number): { call: number } => ({ call: index + 1 });

/** Placed where the head was read, which is where it is when the append is ok. */
const eventRows = (events: readonly PlacedEvent[]): Sql =>
  sql`unnest(${textLines(events.map((e) => String(e.sequence)))}, ${textLines(events.map((e) => e.eventId))}, ${textLines(events.map((e) => e.type))},
        ${textLines(events.map((e) => e.timeText))}, ${textLines(events.map((e) => e.turnId))}, ${textLines(events.map((e) => e.stepId))},
        ${textLines(events.map((e) => e.dataText))})`;
