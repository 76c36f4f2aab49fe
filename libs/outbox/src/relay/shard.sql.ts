import { OUTBOX_SHARDS } from '@runplane/contracts';
import { column, oneRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { HeldShard } from './pass.sql';

// Who relays which shards of a sink (OWN-1, OWN-2). Relays that are alive stand in outbox_relays; each may hold its share of the shards. Not the
// statements of libs/database's claims: a shard has no states and is never done, and how many may be held depends on who else is there.

const Kept = z.object({
  enabled: column.bool,
  share: column.int,
  shards: column.json.transform((list) => z.array(z.object({ shard: z.int(), epoch: z.int() })).parse(list)),
});

export interface KeptShards {
  /** False: an operator has disabled the sink. */
  readonly enabled: boolean;
  /** How many shards this relay may hold, with those that are alive now. */
  readonly share: number;
  readonly shards: readonly HeldShard[];
}

/**
 * A sign of life: prolongs what the relay holds, and takes free shards, or those whose lease is over, up to its share. One statement; rows that
 * somebody is just working on are passed over and come with the next one, so it waits for nobody.
 */
export function keepShards(
  on: SqlExecutor,
  { sink, owner, leaseMs }: { sink: string; owner: string; leaseMs: number },
): Promise<KeptShards> {
  return oneRow(
    on,
    Kept,
    sql`
    WITH c AS MATERIALIZED (
      SELECT runplane.app_now() AS now, EXISTS (SELECT FROM runplane.outbox_sinks WHERE name = ${sink}::text AND enabled) AS enabled
    ),
    me AS (
      INSERT INTO runplane.outbox_relays (sink, owner, expires_at)
      SELECT ${sink}::text, ${owner}::text, c.now + ${leaseMs}::int * interval '1 millisecond' FROM c WHERE c.enabled
      ON CONFLICT (sink, owner) DO UPDATE SET expires_at = excluded.expires_at
    ),
    silent AS MATERIALIZED (
      SELECT r.sink, r.owner FROM runplane.outbox_relays r
      WHERE r.sink = ${sink}::text AND r.owner <> ${owner}::text AND r.expires_at <= (SELECT now FROM c) FOR UPDATE SKIP LOCKED
    ),
    gone AS (DELETE FROM runplane.outbox_relays r USING silent WHERE r.sink = silent.sink AND r.owner = silent.owner),
    others AS (
      SELECT count(*)::int AS others, (count(*) FILTER (WHERE r.owner COLLATE "C" < ${owner}::text COLLATE "C"))::int AS before
      FROM runplane.outbox_relays r WHERE r.sink = ${sink}::text AND r.owner <> ${owner}::text AND r.expires_at > (SELECT now FROM c)
    ),
    share AS MATERIALIZED (
      SELECT CASE WHEN c.enabled THEN ${OUTBOX_SHARDS}::int / (others + 1) + (before < ${OUTBOX_SHARDS}::int % (others + 1))::int ELSE 0 END AS share
      FROM others, c
    ),
    mine AS MATERIALIZED (
      SELECT s.shard, s.epoch FROM runplane.outbox_shards s
      WHERE s.sink = ${sink}::text AND s.owner = ${owner}::text AND s.expires_at > (SELECT now FROM c)
    ),
    renewable AS MATERIALIZED (
      SELECT s.shard FROM runplane.outbox_shards s
      WHERE s.sink = ${sink}::text AND s.owner = ${owner}::text AND s.expires_at > (SELECT now FROM c) FOR NO KEY UPDATE SKIP LOCKED
    ),
    renewed AS (
      UPDATE runplane.outbox_shards s SET expires_at = c.now + ${leaseMs}::int * interval '1 millisecond'
      FROM renewable, c WHERE s.sink = ${sink}::text AND s.shard = renewable.shard
    ),
    free AS MATERIALIZED (
      SELECT s.shard FROM runplane.outbox_shards s
      WHERE s.sink = ${sink}::text AND (s.owner IS NULL OR s.expires_at <= (SELECT now FROM c))
      ORDER BY s.shard LIMIT (SELECT greatest(share - (SELECT count(*) FROM mine), 0) FROM share) FOR NO KEY UPDATE SKIP LOCKED
    ),
    taken AS (
      UPDATE runplane.outbox_shards s
      SET owner = ${owner}::text, epoch = s.epoch + 1, expires_at = c.now + ${leaseMs}::int * interval '1 millisecond'
      FROM free, c WHERE s.sink = ${sink}::text AND s.shard = free.shard
      RETURNING s.shard, s.epoch
    )
    SELECT c.enabled AS "enabled", share.share AS "share",
      (SELECT coalesce(json_agg(h), '[]') FROM (SELECT shard, epoch FROM mine UNION ALL SELECT shard, epoch FROM taken) h)::text AS "shards"
    FROM c, share`,
  );
}

/** Hands shards back, so that others need not wait for the lease; what the relay still writes of them is refused. Locks: the shards, by number. */
export async function releaseShards(
  on: SqlExecutor,
  { sink, owner, shards }: { sink: string; owner: string; shards: readonly HeldShard[] },
): Promise<void> {
  await on.query(sql`
    WITH l AS MATERIALIZED (
      SELECT s.shard FROM runplane.outbox_shards s
      JOIN unnest(${shards.map(({ shard }) => shard)}::int[], ${shards.map(({ epoch }) => epoch)}::int[]) AS h (shard, epoch)
        ON h.shard = s.shard AND h.epoch = s.epoch
      WHERE s.sink = ${sink}::text AND s.owner = ${owner}::text ORDER BY s.shard FOR NO KEY UPDATE OF s
    )
    UPDATE runplane.outbox_shards s SET owner = NULL, expires_at = NULL, epoch = s.epoch + 1
    FROM l WHERE s.sink = ${sink}::text AND s.shard = l.shard`);
}

/** The relay is no longer there: the next sign of life of the others shares its shards. */
export async function removeRelay(on: SqlExecutor, { sink, owner }: { sink: string; owner: string }): Promise<void> {
  await on.query(sql`DELETE FROM runplane.outbox_relays WHERE sink = ${sink}::text AND owner = ${owner}::text`);
}
