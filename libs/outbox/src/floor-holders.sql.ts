import { joinSql, sql, type Sql } from '@runplane/database';

/** A relation (held_by text, tx, position) of the places that a kind of readers still needs what lies behind. */
type Holders = (silentMs: number) => Sql;

/** A consumer that stands below the floor has lost its events already, and a silent one is waited for no longer. */
const consumers: Holders = (silentMs) => sql`
  SELECT 'consumer ' || CASE c.scope WHEN '*' THEN c.name ELSE c.scope || '/' || c.name END AS held_by, c.tx, c.position
  FROM runplane.feed_consumers c
  WHERE c.seen_at > (SELECT runplane.app_now()) - ${String(silentMs)}::bigint * interval '1 millisecond'
    AND (c.tx, c.position) >= (SELECT f.tx, f.position FROM runplane.outbox_floor f)`;

/** Everybody for whom retention waits. Whoever is added here takes the floor FOR SHARE before it begins to need events (holdOutboxFloor). */
const HOLDERS: readonly Holders[] = [consumers];

/** The places of all of them, in one relation. */
export const floorHolders = (silentMs: number): Sql =>
  joinSql(
    HOLDERS.map((holders) => holders(silentMs)),
    ' UNION ALL ',
  );
