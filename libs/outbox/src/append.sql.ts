import { emptySql, sql, type Sql } from '@runplane/database';

/**
 * How far apart the places of two rows are: the i-th event of a row stands at its position + i, and an append has fewer events than this. It is the
 * increment of the positions' sequence, which the migration that brings the session log sets.
 */
export const EVENTS_PER_ROW_MAX = 512;

/**
 * The one way an event leaves a transaction: an INSERT to be put into the statement that writes the events themselves, so that an event
 * and its outbox row exist together or not at all (LOG-2).
 *
 * `source` names a relation of that statement, in the order of the stream, with the columns tx, shard, partition_key, tenant_id, stream,
 * stream_id, sequence, type, project_id, session_id, run_id, command_id, event_id, data, created_at. Its rows must come from the aggregate
 * row that the statement has locked: `position` is drawn after that lock, so that it orders equal `tx` (FEED-1). One row needs no sort.
 */
export function insertOutboxEvents(source: Sql, { rows }: { rows: 'one' | 'many' }): Sql {
  return sql`
    INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type,
      project_id, session_id, run_id, command_id, event_id, data, created_at)
    SELECT tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type,
      project_id, session_id, run_id, command_id, event_id, data, created_at
    FROM ${source} AS source
    ${rows === 'many' ? sql`ORDER BY sequence` : emptySql}`;
}

/**
 * The same for a batch of a session's log, in one row: it says which events there are, and the log, which keeps their places, what they say. So an
 * append writes its text once, and what is erased from the log is not in the feed either.
 *
 * `source` has one row with the columns above, of the first event, and `position`, drawn with `nextPosition` after the lock, and `events`, their number.
 * `data` is null, but for one event that must outlive its log.
 */
export function insertOutboxBatch(source: Sql): Sql {
  return sql`
    INSERT INTO runplane.outbox_events (tx, position, events, shard, partition_key, tenant_id, stream, stream_id, sequence, type,
      project_id, session_id, run_id, command_id, event_id, data, created_at) OVERRIDING SYSTEM VALUE
    SELECT tx, position, events, shard, partition_key, tenant_id, stream, stream_id, sequence, type,
      project_id, session_id, run_id, command_id, event_id, data, created_at
    FROM ${source} AS source`;
}

export const nextPosition = sql`nextval('runplane.outbox_events_position_seq')`;

/**
 * The feed number of the running transaction: its own number in the cluster plus the store's offset (FEED-1). Written into each statement,
 * since PostgreSQL does not inline a function with a sub-select (measured: 10 to 15 µs of an append's 190 on the server).
 */
export const feedTx = sql`(pg_current_xact_id()::text::bigint + (SELECT tx_offset FROM runplane.store))`;
