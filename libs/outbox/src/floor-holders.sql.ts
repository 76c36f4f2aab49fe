import { joinSql, sql, type Sql } from '@runplane/database';
import { lastPosition } from './outbox-rows.sql';

/** A relation (held_by text, tx, position) of the places that a kind of readers still needs what lies behind. */
type Holders = (silentMs: number) => Sql;

/** A consumer that stands below the floor has lost its events already, and a silent one is waited for no longer. */
const consumers: Holders = (silentMs) => sql`
  SELECT 'consumer ' || CASE c.scope WHEN '*' THEN c.name ELSE c.scope || '/' || c.name END AS held_by, c.tx, c.position
  FROM runplane.feed_consumers c
  WHERE c.seen_at > (SELECT runplane.app_now()) - ${String(silentMs)}::bigint * interval '1 millisecond'
    AND (c.tx, c.position) >= (SELECT f.tx, f.position FROM runplane.outbox_floor f)`;

/**
 * What a shard of a sink has not got begins with its first event behind the cursor; one that has none needs nothing, wherever it stands: what is yet
 * to come appears above the horizon. Held events wait below the cursors. A disabled sink is waited for no longer.
 */
const sinks: Holders = () => sql`
  SELECT 'sink ' || s.sink AS held_by, o.tx, o.position - 1 AS position
  FROM runplane.outbox_sinks k JOIN runplane.outbox_shards s ON s.sink = k.name
  CROSS JOIN LATERAL (VALUES (s.tx, s.position), (s.replay_tx, s.replay_position)) AS r (tx, position)
  CROSS JOIN LATERAL (
    SELECT o.tx, o.position FROM runplane.outbox_events o
    WHERE o.shard = s.shard
      AND (o.tx, o.position) >= (r.tx, coalesce((SELECT max(x.position) FROM runplane.outbox_events x WHERE x.tx = r.tx AND x.position <= r.position), r.position))
      AND (o.tx, ${lastPosition}) > (r.tx, r.position)
    ORDER BY o.tx, o.position LIMIT 1
  ) o
  WHERE k.enabled
  UNION ALL
  SELECT 'sink ' || k.name, h.tx, h.position - 1
  FROM runplane.outbox_sinks k CROSS JOIN LATERAL (
    SELECT h.tx, h.position FROM runplane.outbox_held h WHERE h.sink = k.name ORDER BY h.tx, h.position LIMIT 1
  ) h
  WHERE k.enabled`;

/** Everybody for whom retention waits. Whoever is added here takes the floor FOR SHARE before it begins to need events (holdOutboxFloor). */
const HOLDERS: readonly Holders[] = [consumers, sinks];

/** The places of all of them, in one relation. */
export const floorHolders = (silentMs: number): Sql =>
  joinSql(
    HOLDERS.map((holders) => sql`(${holders(silentMs)})`),
    ' UNION ALL ',
  );
