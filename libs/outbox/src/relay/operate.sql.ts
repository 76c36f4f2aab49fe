import { OUTBOX_SHARDS } from '@runplane/contracts';
import { column, maybeRow, oneRow, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { FeedPlace } from '../feed.sql';

// What an operator changes. Each first locks the shard, as a settle does: a pass that is under way writes before it or behind it.

const SinkRow = z.object({ name: column.text, enabled: column.bool });
export type SinkRow = z.infer<typeof SinkRow>;

export function findSink(on: SqlExecutor, sink: string): Promise<SinkRow | undefined> {
  return maybeRow(on, SinkRow, sql`SELECT name, enabled FROM runplane.outbox_sinks WHERE name = ${sink}::text`);
}

const ShardRow = z.object({ shard: column.int, replaying: column.bool });
export type ShardRow = z.infer<typeof ShardRow>;

export const ALL_SHARDS: readonly number[] = Array.from({ length: OUTBOX_SHARDS }, (_, shard) => shard);

export function lockShards(tx: Tx, sink: string, shards: readonly number[]): Promise<ShardRow[]> {
  takingLock(tx, 'outboxShard', ...shards.map((shard) => `${sink}/${String(shard).padStart(2, '0')}`));
  return rows(
    tx,
    ShardRow,
    sql`
    SELECT s.shard::int AS "shard", s.replay_tx IS NOT NULL AS "replaying"
    FROM runplane.outbox_shards s WHERE s.sink = ${sink}::text AND s.shard = ANY (${[...shards]}::int[]) ORDER BY s.shard FOR NO KEY UPDATE`,
  );
}

/** Whether events may be gone that the sink still has to send: behind a cursor, of a range that is being sent again, or held. Under the lock of its shards. */
export async function standsBelow(tx: Tx, sink: string, floor: FeedPlace): Promise<boolean> {
  const place = sql`(${String(floor.tx)}::bigint, ${String(floor.position)}::bigint)`;
  const { below } = await oneRow(
    tx,
    z.object({ below: column.bool }),
    sql`
    SELECT EXISTS (SELECT FROM runplane.outbox_shards s WHERE s.sink = ${sink}::text AND ((s.tx, s.position) < ${place} OR (s.replay_tx, s.replay_position) < ${place}))
      OR EXISTS (SELECT FROM runplane.outbox_held h WHERE h.sink = ${sink}::text AND (h.tx, h.position) <= ${place}) AS "below"`,
  );
  return below;
}

/** Counts of held events are told up to here. */
export const HELD_COUNT_MAX = 1_000;

const BlockedAt = z.object({ heldCount: column.int, tx: column.bigint.nullable(), position: column.bigint.nullable() });

export interface KeyOfSink {
  readonly sink: string;
  readonly shard: number;
  readonly key: string;
}

/** The first held event of a blocked key; undefined: it is not blocked. Under the shard's lock. */
export function findBlockedAt(tx: Tx, { sink, shard, key }: KeyOfSink): Promise<z.infer<typeof BlockedAt> | undefined> {
  return maybeRow(
    tx,
    BlockedAt,
    sql`
    SELECT h.tx::text AS "tx", h.position::text AS "position", (SELECT count(*) FROM (SELECT FROM runplane.outbox_held x
        WHERE x.sink = b.sink AND x.shard = b.shard AND x.partition_key = b.partition_key LIMIT ${HELD_COUNT_MAX}::int) x)::int AS "heldCount"
    FROM runplane.outbox_blocked_keys b LEFT JOIN LATERAL (
      SELECT tx, position FROM runplane.outbox_held h WHERE h.sink = b.sink AND h.shard = b.shard AND h.partition_key = b.partition_key
      ORDER BY h.tx, h.position LIMIT 1
    ) h ON true
    WHERE b.sink = ${sink}::text AND b.shard = ${shard}::int AND b.partition_key = ${key}::text`,
  );
}

export async function deleteHeld(tx: Tx, { sink, shard, key }: KeyOfSink, place: FeedPlace): Promise<void> {
  await tx.query(sql`
    DELETE FROM runplane.outbox_held WHERE sink = ${sink}::text AND shard = ${shard}::int AND partition_key = ${key}::text
      AND tx = ${String(place.tx)}::bigint AND position = ${String(place.position)}::bigint`);
}

const FREED = sql`attempts = 0, failures = 0, parked_at = NULL, ready_at = runplane.app_now(), revision = revision + 1`;

/** Lets a key be tried at once. The row itself stays until its owner has sent what is held. False: it is not blocked. */
export async function freeKey(tx: Tx, { sink, shard, key }: KeyOfSink): Promise<boolean> {
  const freed = await maybeRow(
    tx,
    z.object({ done: column.int }),
    sql`UPDATE runplane.outbox_blocked_keys SET ${FREED}
        WHERE sink = ${sink}::text AND shard = ${shard}::int AND partition_key = ${key}::text RETURNING 1 AS "done"`,
  );
  return freed !== undefined;
}

/** The same for keys that were parked by some time, those first that wait longest; under the lock of all shards nobody moves their rows. Returns how many. */
export async function freeParkedKeys(tx: Tx, { sink, before, limit }: { sink: string; before: string; limit: number }): Promise<number> {
  const { n } = await oneRow(
    tx,
    z.object({ n: column.int }),
    sql`
    WITH freed AS (
      UPDATE runplane.outbox_blocked_keys SET ${FREED} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM runplane.outbox_blocked_keys
        WHERE sink = ${sink}::text AND parked_at IS NOT NULL AND parked_at <= ${before}::timestamptz
        ORDER BY parked_at, partition_key LIMIT ${limit}::int
      )) RETURNING 1
    )
    SELECT count(*)::int AS "n" FROM freed`,
  );
  return n;
}

export async function readTime(on: SqlExecutor): Promise<string> {
  return (await oneRow(on, z.object({ now: column.time }), sql`SELECT runplane.wire_time(runplane.app_now()::timestamptz(3)) AS "now"`))
    .now;
}

/** Begins to send a range again: of each shard what lies in it and the sink has got. Returns how many shards. */
export async function writeReplay(
  tx: Tx,
  { sink, from, to }: { sink: string; from: FeedPlace; to: FeedPlace | undefined },
): Promise<number> {
  const [toTx, toPosition] = [to === undefined ? null : String(to.tx), to === undefined ? null : String(to.position)];
  const { n } = await oneRow(
    tx,
    z.object({ n: column.int }),
    sql`
    WITH ends AS MATERIALIZED (
      SELECT s.shard, CASE WHEN inside THEN ${toTx}::bigint ELSE s.tx END AS tx, CASE WHEN inside THEN ${toPosition}::bigint ELSE s.position END AS position
      FROM runplane.outbox_shards s, LATERAL (SELECT coalesce((${toTx}::bigint, ${toPosition}::bigint) < (s.tx, s.position), false) AS inside) i
      WHERE s.sink = ${sink}::text
    ),
    begun AS (
      UPDATE runplane.outbox_shards s
      SET replay_tx = ${String(from.tx)}::bigint, replay_position = ${String(from.position)}::bigint, replay_to_tx = e.tx, replay_to_position = e.position
      FROM ends e
      WHERE s.sink = ${sink}::text AND s.shard = e.shard AND (${String(from.tx)}::bigint, ${String(from.position)}::bigint) < (e.tx, e.position)
      RETURNING 1
    )
    SELECT count(*)::int AS "n" FROM begun`,
  );
  return n;
}

/** Takes all shards away from whoever holds them, and lets nobody take them, or lets relays take them again. */
export async function writeEnabled(tx: Tx, sink: string, enabled: boolean): Promise<void> {
  await tx.query(sql`
    WITH sink AS (UPDATE runplane.outbox_sinks SET enabled = ${enabled}::bool WHERE name = ${sink}::text)
    UPDATE runplane.outbox_shards SET owner = NULL, expires_at = NULL, epoch = epoch + 1 WHERE sink = ${sink}::text`);
}

/** Where a sink is to begin anew, until what it holds is forgotten; undefined: it goes on where it is. Under the lock of its shards. */
export async function findRestart(tx: Tx, sink: string): Promise<FeedPlace | undefined> {
  const { tx: at, position } = await oneRow(
    tx,
    z.object({ tx: column.bigint.nullable(), position: column.bigint.nullable() }),
    sql`SELECT restart_tx::text AS "tx", restart_position::text AS "position" FROM runplane.outbox_sinks WHERE name = ${sink}::text`,
  );
  return at === null || position === null ? undefined : { tx: at, position };
}

export async function writeRestart(tx: Tx, sink: string, place: FeedPlace | undefined): Promise<void> {
  await tx.query(sql`
    UPDATE runplane.outbox_sinks SET restart_tx = ${place === undefined ? null : String(place.tx)}::bigint,
      restart_position = ${place === undefined ? null : String(place.position)}::bigint
    WHERE name = ${sink}::text`);
}

/** Forgets some of what a sink holds, and of its blocked keys. False: there may be more. */
export async function forgetHeld(tx: Tx, sink: string, limit: number): Promise<boolean> {
  const { n } = await oneRow(
    tx,
    z.object({ n: column.int }),
    sql`
    WITH held AS (
      DELETE FROM runplane.outbox_held h USING (
        SELECT shard, partition_key, tx, position FROM runplane.outbox_held WHERE sink = ${sink}::text
        ORDER BY shard, partition_key, tx, position LIMIT ${limit}::int
      ) x WHERE h.sink = ${sink}::text AND h.shard = x.shard AND h.partition_key = x.partition_key AND h.tx = x.tx AND h.position = x.position
      RETURNING 1
    ),
    keys AS (
      DELETE FROM runplane.outbox_blocked_keys k USING (
        SELECT shard, partition_key FROM runplane.outbox_blocked_keys WHERE sink = ${sink}::text ORDER BY shard, partition_key LIMIT ${limit}::int
      ) x WHERE k.sink = ${sink}::text AND k.shard = x.shard AND k.partition_key = x.partition_key
      RETURNING 1
    )
    SELECT greatest((SELECT count(*) FROM held), (SELECT count(*) FROM keys))::int AS "n"`,
  );
  return n < limit;
}

/** Begins anew at a place; of a sink that holds nothing any more. */
export async function restartShards(tx: Tx, sink: string, { tx: at, position }: FeedPlace): Promise<void> {
  await tx.query(sql`
    UPDATE runplane.outbox_shards
    SET tx = ${String(at)}::bigint, position = ${String(position)}::bigint, replay_tx = NULL, replay_position = NULL, replay_to_tx = NULL,
      replay_to_position = NULL, failures = 0, failed_at = NULL, last_error = NULL, ready_at = runplane.app_now()
    WHERE sink = ${sink}::text`);
}
