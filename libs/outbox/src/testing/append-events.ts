import { randomUUID } from 'node:crypto';
import { newId, partitionOf } from '@runplane/contracts';
import { sql, type SqlExecutor } from '@runplane/database';
import { feedTx, insertOutboxBatch, insertOutboxEvents, nextPosition } from '../append.sql';

export interface Appended {
  readonly tenantId?: string | undefined;
  readonly sessionId: string;
  /** Of the first event. */
  readonly sequence: number;
  readonly count?: number | undefined;
  readonly type?: string | undefined;
  readonly data?: object | undefined;
  /** True: in one row, as an append to a session's log does, with the events in the log. */
  readonly batch?: boolean | undefined;
}

/** Puts the next events of a session into the outbox, as an operation's statement does, without the session. */
export async function appendEvents(on: SqlExecutor, appended: Appended): Promise<void> {
  const { tenantId = 'acme', sessionId, sequence, count = 1, type = 'test', data = {}, batch = false } = appended;
  const { partitionKey, shard } = partitionOf(tenantId, sessionId);
  const source = sql`SELECT ${feedTx} AS tx, ${shard}::smallint AS shard, ${partitionKey}::text AS partition_key, ${tenantId}::text AS tenant_id,
    'session'::runplane.outbox_stream AS stream, ${sessionId}::text AS stream_id, ${sequence - 1}::int + e.place AS sequence, ${type}::text AS type, NULL::text AS project_id,
    ${sessionId}::text AS session_id, NULL::text AS run_id, NULL::text AS command_id, e.id AS event_id, ${JSON.stringify(data)}::json AS data,
    runplane.app_now() AS created_at`;
  if (!batch) {
    const ids = Array.from({ length: count }, () => newId('evt'));
    await on.query(insertOutboxEvents(sql`(${source} FROM unnest(${ids}::text[]) WITH ORDINALITY AS e (id, place))`, { rows: 'many' }));
    return;
  }
  const ids = Array.from({ length: count }, () => randomUUID());
  await on.query(sql`
    WITH d AS MATERIALIZED (SELECT ${nextPosition} AS position, ${count}::int AS events),
    log AS (
      INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, data, tx, position)
      SELECT ${tenantId}::text, ${sessionId}::text, ${sequence - 1}::int + e.place, e.id::uuid, ${type}::text, runplane.app_now(), ${JSON.stringify(data)}::json,
        ${feedTx}, d.position + e.place - 1
      FROM d, unnest(${ids}::text[]) WITH ORDINALITY AS e (id, place)
    )
    ${insertOutboxBatch(sql`(SELECT s.tx, d.position, d.events, s.shard, s.partition_key, s.tenant_id, s.stream, s.stream_id, s.sequence, s.type, s.project_id,
      s.session_id, s.run_id, s.command_id, s.event_id, NULL::json AS data, s.created_at
      FROM d, (${source} FROM (VALUES (${ids[0] ?? ''}::text, 1)) AS e (id, place)) s)`)}`);
}
