import { column, oneRow, rows, sql, takingLock, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { FeedPlace } from './feed.sql';
import { floorHolders } from './floor-holders.sql';
import { lastPosition } from './outbox-rows.sql';

// The floor: the place up to which events may be gone. Whoever begins to need events (a consumer that registers or is rewound, a sink that is
// new or sends again) locks its row FOR SHARE, finds its own place at or above it, and commits; the pass that lifts it locks it for itself and
// reads then what all of them need. So nothing is removed under a reader that the store knows.

const id = 'floor';
const Place = z.object({ tx: column.bigint, position: column.bigint });

const lock = (tx: Tx, strength: Sql): Promise<FeedPlace> => {
  takingLock(tx, 'outboxFloor', id);
  return oneRow(tx, Place, sql`SELECT tx::text AS "tx", position::text AS "position" FROM runplane.outbox_floor ${strength}`);
};

/** The floor, which stays where it is until this transaction ends. */
export const holdOutboxFloor = (tx: Tx): Promise<FeedPlace> => lock(tx, sql`FOR SHARE`);

/** The floor, for the one who may lift it. Waits for those who are about to need events. */
export const lockOutboxFloor = (tx: Tx): Promise<FeedPlace> => lock(tx, sql`FOR NO KEY UPDATE`);

export interface FloorRules {
  /** How long events stay that no registered reader needs. */
  readonly keepMs: number;
  /** A consumer that was not heard of for so long is waited for no longer. */
  readonly silentMs: number;
}

const Candidate = Place.extend({ heldBy: column.text });
export type FloorCandidate = z.infer<typeof Candidate>;

/** Where the floor may be, with the one who keeps it from being higher: the lowest first. Without an `age` nothing is old enough. */
export function listFloorCandidates(on: SqlExecutor, { keepMs, silentMs }: FloorRules): Promise<FloorCandidate[]> {
  return rows(
    on,
    Candidate,
    sql`SELECT held_by AS "heldBy", tx::text AS "tx", position::text AS "position" FROM (
          (SELECT 'age' AS held_by, m.tx, m.position FROM runplane.outbox_marks m
            WHERE m.marked_at <= (SELECT runplane.app_now()) - ${String(keepMs)}::bigint * interval '1 millisecond' ORDER BY m.marked_at DESC LIMIT 1)
          UNION ALL (${floorHolders(silentMs)})
        ) c ORDER BY (held_by = 'age') DESC, c.tx, c.position`,
  );
}

/** Lifts the locked floor. */
export async function writeOutboxFloor(tx: Tx, { tx: txNumber, position }: FeedPlace): Promise<void> {
  await tx.query(
    sql`UPDATE runplane.outbox_floor SET tx = ${String(txNumber)}::bigint, position = ${String(position)}::bigint, moved_at = runplane.app_now()`,
  );
  // A mark at or below the floor says nothing any more but that of the age itself, the last one.
  await tx.query(
    sql`DELETE FROM runplane.outbox_marks m USING runplane.outbox_floor f WHERE (m.tx, m.position) <= (f.tx, f.position)
          AND EXISTS (SELECT FROM runplane.outbox_marks later WHERE later.marked_at > m.marked_at AND (later.tx, later.position) <= (f.tx, f.position))`,
  );
}

/**
 * Brings shards of enabled sinks that stand below the floor up to it: they have got everything up to there, or the floor would be lower. So a sink that
 * is disabled now, and enabled again before the floor moves, is known to have missed nothing. Shards that a relay is about to settle wait for the next pass.
 */
export async function liftShardsToFloor(on: SqlExecutor): Promise<void> {
  await on.query(
    sql`WITH low AS MATERIALIZED (
          SELECT s.sink, s.shard, f.tx, f.position FROM runplane.outbox_shards s JOIN runplane.outbox_sinks k ON k.name = s.sink CROSS JOIN runplane.outbox_floor f
          WHERE k.enabled AND (s.tx, s.position) < (f.tx, f.position) ORDER BY s.sink COLLATE "C", s.shard FOR NO KEY UPDATE OF s SKIP LOCKED
        )
        UPDATE runplane.outbox_shards s SET tx = low.tx, position = low.position FROM low WHERE s.sink = low.sink AND s.shard = low.shard`,
  );
}

/** Remembers where the head is now, unless that was done lately or it has not moved. It is the last event below the horizon: whoever reads sees it. */
export async function markOutboxHead(on: SqlExecutor, { everyMs }: { everyMs: number }): Promise<void> {
  await on.query(
    sql`INSERT INTO runplane.outbox_marks (marked_at, tx, position)
        SELECT t.now, o.tx, o.position
        FROM (SELECT runplane.app_now() AS now) t CROSS JOIN LATERAL (
          SELECT o.tx, ${lastPosition} AS position FROM runplane.outbox_events o WHERE o.tx < (SELECT runplane.feed_horizon()) ORDER BY o.tx DESC, o.position DESC LIMIT 1
        ) o
        WHERE NOT EXISTS (
          SELECT FROM runplane.outbox_marks m WHERE m.marked_at > t.now - ${String(everyMs)}::bigint * interval '1 millisecond' OR (m.tx, m.position) >= (o.tx, o.position)
        )
        ON CONFLICT DO NOTHING`,
  );
}

const Pruned = z.object({ rows: column.int });

/**
 * Deletes the first rows at or below the floor: a range of the key behind what was deleted before, so that no batch reads what others have left
 * dead. 0: nothing is left, or another process is at it.
 */
export async function deletePrunedBatch(on: SqlExecutor, limit: number): Promise<number> {
  const { rows: deleted } = await oneRow(
    on,
    Pruned,
    sql`WITH f AS MATERIALIZED (SELECT tx, position, pruned_tx, pruned_position FROM runplane.outbox_floor FOR NO KEY UPDATE SKIP LOCKED),
        batch AS MATERIALIZED (
          SELECT o.tx, o.position FROM runplane.outbox_events o
          WHERE ${belowFloor}
          ORDER BY o.tx, o.position LIMIT ${limit}::int
        ),
        last AS MATERIALIZED (SELECT tx, position FROM batch ORDER BY tx DESC, position DESC LIMIT 1),
        gone AS (
          DELETE FROM runplane.outbox_events o
          WHERE (o.tx, o.position) > ((SELECT pruned_tx FROM f), (SELECT pruned_position FROM f))
            AND (o.tx, o.position) <= ((SELECT tx FROM last), (SELECT position FROM last))
          RETURNING 1
        ),
        moved AS (
          UPDATE runplane.outbox_floor SET pruned_tx = last.tx, pruned_position = last.position FROM last WHERE EXISTS (SELECT FROM f)
        )
        SELECT count(*)::int AS "rows" FROM gone`,
  );
  return deleted;
}

/** A row whose last events lie above the floor stays, and is the last of those looked at. */
const belowFloor = sql`(o.tx, o.position) > ((SELECT pruned_tx FROM f), (SELECT pruned_position FROM f))
            AND (o.tx, o.position) <= ((SELECT tx FROM f), (SELECT position FROM f))
            AND (o.tx, ${lastPosition}) <= ((SELECT tx FROM f), (SELECT position FROM f))`;

/** How many rows lie between what is deleted and a place, up to a number. */
export async function countPrunable(on: SqlExecutor, { to, rowsMax }: { to: FeedPlace; rowsMax: number }): Promise<number> {
  const { rows: found } = await oneRow(
    on,
    Pruned,
    sql`WITH f AS MATERIALIZED (SELECT ${String(to.tx)}::bigint AS tx, ${String(to.position)}::bigint AS position, pruned_tx, pruned_position FROM runplane.outbox_floor)
        SELECT count(*)::int AS "rows" FROM (SELECT FROM runplane.outbox_events o WHERE ${belowFloor} LIMIT ${rowsMax}::int) o`,
  );
  return found;
}
