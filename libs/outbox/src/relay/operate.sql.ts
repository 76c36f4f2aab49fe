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

/** Lets keys be tried at once: one, or all that are parked. The row itself stays until its owner has sent what is held. Returns how many. */
export async function freeKeys(
  tx: Tx,
  { sink, shards, key }: { sink: string; shards: readonly number[]; key: string | undefined },
): Promise<number> {
  const { n } = await oneRow(
    tx,
    z.object({ n: column.int }),
    sql`
    WITH freed AS (
      UPDATE runplane.outbox_blocked_keys
      SET attempts = 0, failures = 0, parked_at = NULL, ready_at = runplane.app_now(), revision = revision + 1
      WHERE sink = ${sink}::text AND shard = ANY (${[...shards]}::int[])
        AND CASE WHEN ${key ?? null}::text IS NULL THEN parked_at IS NOT NULL ELSE partition_key = ${key ?? null}::text END
      RETURNING 1
    )
    SELECT count(*)::int AS "n" FROM freed`,
  );
  return n;
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

/** Begins anew at a place; what was held, blocked or being sent again is forgotten. */
export async function restartShards(tx: Tx, sink: string, { tx: at, position }: FeedPlace): Promise<void> {
  await tx.query(sql`
    WITH held AS (DELETE FROM runplane.outbox_held WHERE sink = ${sink}::text),
    keys AS (DELETE FROM runplane.outbox_blocked_keys WHERE sink = ${sink}::text)
    UPDATE runplane.outbox_shards
    SET tx = ${String(at)}::bigint, position = ${String(position)}::bigint, replay_tx = NULL, replay_position = NULL, replay_to_tx = NULL,
      replay_to_position = NULL, failures = 0, failed_at = NULL, last_error = NULL, ready_at = runplane.app_now()
    WHERE sink = ${sink}::text`);
}
