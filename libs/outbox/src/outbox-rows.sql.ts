import { sql, type Sql } from '@runplane/database';

// An outbox row stands for one event, whole (`data`), or for the batch of an append to a session's log, whose events stay there.

/** The place of the last event of an outbox row `o`. */
export const lastPosition = sql`(o.position + o.events - 1)`;

/**
 * The events of outbox rows: `rows` names a relation of them. Columns tx, position, shard, partition_key, tenant_id, stream, stream_id, sequence, type,
 * project_id, session_id, run_id, command_id, event_id, data, created_at. The events of a session that has been erased are not there any more; what
 * tells of its deletion is. A later life of its id counts from 0 again, but its events have other places.
 *
 * In the order of `rows` and of the sequence within each: what sorts by (tx, row's position, position) need sort each row's events only.
 * Reads       session_events, the one table of another library that the outbox knows: by its key.
 */
export function eventsOf(rows: Sql): Sql {
  return sql`
    SELECT o.tx, o.position AS row_position, e.position, o.shard, o.partition_key, o.tenant_id, o.stream, o.stream_id, e.sequence, e.type,
      o.project_id, o.session_id, e.run_id, e.command_id, e.event_id, e.data, o.created_at
    FROM ${rows} AS o CROSS JOIN LATERAL (
      SELECT o.position, o.sequence, o.type, o.run_id, o.command_id, o.event_id, o.data WHERE o.data IS NOT NULL
      UNION ALL
      SELECT l.position, l.sequence, l.type, l.run_id, l.command_id, replace(l.event_id::text, '-', ''), l.data
      FROM runplane.session_events l
      WHERE o.data IS NULL AND l.tenant_id = o.tenant_id AND l.session_id = o.stream_id AND l.sequence BETWEEN o.sequence AND o.sequence + o.events - 1
        AND l.tx = o.tx AND l.position BETWEEN o.position AND ${lastPosition}
    ) e`;
}
