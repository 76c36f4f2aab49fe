import { column, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { FeedPlace } from '../feed.sql';
import type { ShardSettlement } from './pass-decisions';

const text = (value: bigint | undefined): string | null => (value === undefined ? null : String(value));

/**
 * Writes what a pass has come to, for all its shards, in one lock-first statement. A shard that is no longer held under its epoch, or whose lease
 * is over, is left as it is: its new owner sends again what this pass has sent.
 *
 * What an operator has done to a key since the read is kept: of such a key only the deletion of sent events is written, the rest is the next
 * pass's (`revision`, judged on the newest row, as ON CONFLICT and a guarded DELETE do).
 *
 * Its commit does not wait for the disk: what a crash of the server loses of it is sent again, which a crash a moment earlier would have done too. So the
 * next pass begins earlier, and the horizon of all readers moves on sooner.
 *
 * Returns   the shards that were settled.   Locks: the shards, by number.
 */
export async function writeSettlements(
  on: SqlExecutor,
  { sink, owner, settlements }: { sink: string; owner: string; settlements: readonly ShardSettlement[] },
): Promise<Set<number>> {
  const places = (of: (settlement: ShardSettlement) => FeedPlace | undefined) => ({
    tx: settlements.map((settlement) => text(of(settlement)?.tx)),
    position: settlements.map((settlement) => text(of(settlement)?.position)),
  });
  const cursors = places(({ cursor }) => cursor);
  const replays = places(({ replay }) => replay);
  const held = settlements.flatMap(({ shard, held: ofShard }) => ofShard.map((event) => ({ shard, ...event })));
  const released = settlements.flatMap(({ shard, released: ofShard }) => ofShard.map((event) => ({ shard, ...event })));
  const blocked = settlements.flatMap(({ shard, blocked: ofShard }) => ofShard.map((key) => ({ shard, ...key })));
  const freed = settlements.flatMap(({ shard, freed: ofShard }) => ofShard.map((key) => ({ shard, ...key })));
  const found = await rows(
    on,
    z.object({ shard: column.int }),
    sql`
    WITH asked AS MATERIALIZED (
      SELECT * FROM unnest(${settlements.map(({ shard }) => shard)}::int[], ${settlements.map(({ epoch }) => epoch)}::int[],
        ${cursors.tx}::bigint[], ${cursors.position}::bigint[], ${replays.tx}::bigint[], ${replays.position}::bigint[],
        ${settlements.map(({ replayed }) => replayed)}::bool[], ${settlements.map(({ failure }) => failure?.error ?? null)}::text[],
        ${settlements.map(({ failure }) => failure?.delayMs ?? null)}::int[], ${settlements.map(({ sent }) => sent > 0)}::bool[],
        ${settlements.map(({ sent, whole }) => sent > 0 || whole)}::bool[]
      ) AS a (shard, epoch, tx, position, replay_tx, replay_position, replayed, error, delay_ms, has_sent, is_well)
    ),
    l AS MATERIALIZED (
      SELECT s.shard, s.expires_at FROM runplane.outbox_shards s JOIN asked a ON a.shard = s.shard AND a.epoch = s.epoch
      WHERE s.sink = ${sink}::text AND s.owner = ${owner}::text
      ORDER BY s.shard FOR NO KEY UPDATE OF s
    ),
    d AS MATERIALIZED (SELECT j.shard, j.now FROM (SELECT shard, expires_at, runplane.app_now() AS now FROM l) j WHERE j.expires_at > j.now),
    cursors AS (
      UPDATE runplane.outbox_shards s
      SET tx = coalesce(a.tx, s.tx), position = coalesce(a.position, s.position),
        replay_tx = CASE WHEN NOT a.replayed THEN coalesce(a.replay_tx, s.replay_tx) END,
        replay_position = CASE WHEN NOT a.replayed THEN coalesce(a.replay_position, s.replay_position) END,
        replay_to_tx = CASE WHEN NOT a.replayed THEN s.replay_to_tx END,
        replay_to_position = CASE WHEN NOT a.replayed THEN s.replay_to_position END,
        failures = CASE WHEN a.error IS NOT NULL THEN s.failures + 1 WHEN a.is_well THEN 0 ELSE s.failures END,
        failed_at = CASE WHEN a.error IS NOT NULL THEN d.now WHEN NOT a.is_well THEN s.failed_at END,
        last_error = CASE WHEN a.error IS NOT NULL OR a.is_well THEN a.error ELSE s.last_error END,
        ready_at = CASE WHEN a.error IS NULL THEN s.ready_at ELSE d.now + a.delay_ms * interval '1 millisecond' END,
        sent_at = CASE WHEN a.has_sent THEN d.now ELSE s.sent_at END
      FROM d JOIN asked a ON a.shard = d.shard
      WHERE s.sink = ${sink}::text AND s.shard = d.shard
    ),
    held AS (
      INSERT INTO runplane.outbox_held (sink, shard, partition_key, tx, position)
      SELECT ${sink}::text, h.shard, h.partition_key, h.tx, h.position
      FROM unnest(${held.map(({ shard }) => shard)}::int[], ${held.map(({ key }) => key)}::text[], ${held.map(({ place }) => String(place.tx))}::bigint[],
        ${held.map(({ place }) => String(place.position))}::bigint[]) AS h (shard, partition_key, tx, position) JOIN d ON d.shard = h.shard
      ON CONFLICT DO NOTHING
    ),
    released AS (
      DELETE FROM runplane.outbox_held h USING
        unnest(${released.map(({ shard }) => shard)}::int[], ${released.map(({ key }) => key)}::text[],
          ${released.map(({ place }) => String(place.tx))}::bigint[], ${released.map(({ place }) => String(place.position))}::bigint[])
          AS r (shard, partition_key, tx, position), d
      WHERE d.shard = r.shard AND h.sink = ${sink}::text AND h.shard = r.shard AND h.partition_key = r.partition_key AND h.tx = r.tx AND h.position = r.position
    ),
    blocked AS (
      INSERT INTO runplane.outbox_blocked_keys AS k (sink, shard, partition_key, tx, position, attempts, failures, blocked_at, ready_at, parked_at, reason,
        last_error, revision)
      SELECT ${sink}::text, b.shard, b.partition_key, b.tx, b.position, b.attempts, b.failures, d.now, d.now + b.delay_ms * interval '1 millisecond',
        CASE WHEN b.parked THEN d.now END, b.reason, b.error, b.revision
      FROM unnest(${blocked.map(({ shard }) => shard)}::int[], ${blocked.map(({ key }) => key)}::text[], ${blocked.map(({ place }) => String(place.tx))}::bigint[],
        ${blocked.map(({ place }) => String(place.position))}::bigint[], ${blocked.map(({ attempts }) => attempts)}::int[],
        ${blocked.map(({ failures }) => failures)}::int[], ${blocked.map(({ delayMs }) => delayMs)}::int[], ${blocked.map(({ parked }) => parked)}::bool[],
        ${blocked.map(({ reason }) => reason)}::text[], ${blocked.map(({ error }) => error)}::text[], ${blocked.map(({ revision }) => revision)}::int[])
        AS b (shard, partition_key, tx, position, attempts, failures, delay_ms, parked, reason, error, revision) JOIN d ON d.shard = b.shard
      ON CONFLICT (sink, shard, partition_key) DO UPDATE
      SET tx = excluded.tx, position = excluded.position, attempts = excluded.attempts, failures = excluded.failures,
        blocked_at = CASE WHEN (k.tx, k.position) = (excluded.tx, excluded.position) AND k.attempts + k.failures > 0 THEN k.blocked_at ELSE excluded.blocked_at END,
        ready_at = excluded.ready_at, parked_at = excluded.parked_at, reason = excluded.reason, last_error = excluded.last_error
      WHERE k.revision = excluded.revision
    ),
    freed AS (
      DELETE FROM runplane.outbox_blocked_keys k USING
        unnest(${freed.map(({ shard }) => shard)}::int[], ${freed.map(({ key }) => key)}::text[], ${freed.map(({ revision }) => revision)}::int[])
          AS f (shard, partition_key, revision), d
      WHERE d.shard = f.shard AND k.sink = ${sink}::text AND k.shard = f.shard AND k.partition_key = f.partition_key AND k.revision = f.revision
    )
    SELECT d.shard::int AS "shard", set_config('synchronous_commit', 'off', true) AS "commit" FROM d`,
  );
  return new Set(found.map(({ shard }) => shard));
}
