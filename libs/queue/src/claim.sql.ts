import type { ClaimedQueueTask, JsonObject } from '@runplane/contracts';
import { column, emptySql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';
import { bound } from './bound.sql';
import { LANE_PLACE, QUEUE_PLACE } from './lane.sql';
import { moveVersionAt, rowsAt } from './task.sql';

// Claims of tasks: each is one lock-first statement. Locked in this order: the turn of a queue, where a claim is over all tenants; the rows of
// lanes with a limit (they show the count that rivals have committed, whatever this statement's snapshot shows); then the tasks, SKIP LOCKED,
// which are looked at again as they are. The index of claims holds the whole order: queue, tenant, lane, priority, creation, id.

const ClaimedRow = z.object({
  turn: column.int,
  taskId: column.text,
  tenantId: column.text,
  projectId: column.text,
  lane: column.text,
  title: column.text,
  priority: column.int,
  epoch: column.int,
  retryIndex: column.int,
  attempts: column.int,
  maxAttempts: column.int,
  sessionId: column.text.nullable(),
  payload: column.jsonObject,
  references: column.json.pipe(z.array(z.custom<JsonObject>())),
  metadata: column.jsonObject,
  isRunnable: column.bool,
  places: column.int,
});

/** Who gets a task, and what its attempt is called. */
export interface ClaimPlace {
  readonly owner: string;
  readonly leaseMs: number;
  readonly attemptId: string;
}

export interface TaskClaim {
  readonly queue: string;
  /** One for each task that may be claimed: the first task goes to the first. */
  readonly places: readonly ClaimPlace[];
}

/** Ready tasks of a queue: the words of the index's own condition, and its order. */
const ready = (queue: string): Sql => sql`t.queue = ${queue}::text AND t.state = 'pending' AND t.due`;
const ORDER = sql`ORDER BY t.priority DESC, t.created_at, t.id`;
const PICKED = sql`t.ctid AS row_at, t.tenant_id, t.id, t.lane, t.priority, t.created_at`;

/**
 * From `chosen` (locked tasks: `row_at`, `turn`, `places`) on: the tasks, which are their attempts too for now. The rows are found again by where they
 * lie, which spares a way through the key for each. One that somebody has changed since this statement's snapshot is not found so: it stays as it
 * is, for the next claim.
 */
const take = ({ places }: TaskClaim): Sql => sql`
  at AS MATERIALIZED (SELECT runplane.app_now() AS now, ${feedTx} AS tx WHERE (SELECT count(*) FROM chosen) > 0),
  taken AS (
    UPDATE runplane.queue_tasks t SET state = 'running', owner = (${places.map(({ owner }) => owner)}::text[])[c.turn], epoch = t.epoch + 1,
      attempts = t.attempts + 1, expires_at = at.now + (${places.map(({ leaseMs }) => leaseMs)}::int[])[c.turn] * interval '1 millisecond', places = c.places,
      attempt_id = (${places.map(({ attemptId }) => attemptId)}::text[])[c.turn], attempt_since = at.now,
      last_retry_index = t.last_retry_index + 1, ${moveVersionAt(sql`at.now`, sql`at.tx`)}
    FROM chosen c, at WHERE ${rowsAt(sql`t`, sql`chosen`)} AND t.ctid = c.row_at
    RETURNING c.turn AS "turn", t.id AS "taskId", t.tenant_id AS "tenantId", t.project_id AS "projectId", t.lane AS "lane", t.title AS "title",
      t.priority AS "priority", t.epoch AS "epoch", t.last_retry_index AS "retryIndex", t.attempts AS "attempts", t.max_attempts AS "maxAttempts",
      t.session_id AS "sessionId", t.payload::text AS "payload", t.task_references::text AS "references", t.metadata::text AS "metadata",
      num_nulls(t.workspace_ref, t.provider_id, t.backend_profile, t.execution_policy) = 0 AS "isRunnable", t.places::int AS "places"
  )`;

/** From `taken` and `limits` (locked lanes) on: what has been taken is counted where it counts. */
const COUNT = sql`
  counted AS (
    UPDATE runplane.queue_lanes l SET running = l.running + x.n, updated_at = runplane.app_now()
    FROM (
      SELECT k."tenantId" AS tenant_id, p.lane, count(*)::int AS n
      FROM taken k CROSS JOIN LATERAL (VALUES (k."lane", ${LANE_PLACE}::int), ('', ${QUEUE_PLACE}::int)) AS p (lane, bit)
      WHERE (k."places" & p.bit) > 0 GROUP BY 1, 2
    ) x
    JOIN limits m ON m.tenant_id = x.tenant_id AND m.lane = x.lane
    WHERE l.tenant_id = m.tenant_id AND l.queue = m.queue AND l.lane = m.lane
  )`;

/** With what the claim itself has said of its tasks: the place that each has got. Written out, since copies with a rest cost as much as all else here. */
function toClaimed(found: readonly z.infer<typeof ClaimedRow>[], { queue, places }: TaskClaim): ClaimedQueueTask[] {
  return found.map((row) => {
    const place = places[row.turn - 1];
    if (place === undefined) throw new Error(`a claim for ${places.length} has taken a task for place ${row.turn}`);
    return {
      taskId: row.taskId,
      tenantId: row.tenantId,
      projectId: row.projectId,
      queue,
      lane: row.lane,
      title: row.title,
      priority: row.priority,
      epoch: row.epoch,
      attemptId: place.attemptId,
      retryIndex: row.retryIndex,
      attempts: row.attempts,
      maxAttempts: row.maxAttempts,
      leaseRemainingMs: place.leaseMs,
      sessionId: row.sessionId,
      payload: row.payload,
      references: row.references,
      metadata: row.metadata,
      isRunnable: row.isRunnable,
    };
  });
}

const InOpenLaneRow = z.union([ClaimedRow.extend({ isLimited: z.literal(false) }), z.object({ isLimited: column.bool, turn: z.null() })]);

/**
 * Claims the first tasks of a lane that has no limit, and whose queue has none, without a look at counts; undefined where there is one. Nothing is
 * locked then, and `claimOfLane` does it. A limit that is set at the same moment counts what it sees running; nobody waits for it.
 */
export async function claimOfOpenLane(
  on: SqlExecutor,
  { tenantId, lane, ...claim }: TaskClaim & { tenantId: string; lane: string },
): Promise<ClaimedQueueTask[] | undefined> {
  const found = await rows(
    on,
    InOpenLaneRow,
    sql`
  WITH limited AS MATERIALIZED (
    SELECT count(*) > 0 AS is_limited FROM runplane.queue_lanes l
    WHERE l.tenant_id = ${tenantId}::text AND l.queue = ${claim.queue}::text AND l.lane IN ('', ${lane}::text) AND l.max_running IS NOT NULL
  ), locked AS MATERIALIZED (
    SELECT ${PICKED} FROM runplane.queue_tasks t
    WHERE ${ready(claim.queue)} AND t.tenant_id = ${tenantId}::text AND t.lane = ${lane}::text AND NOT (SELECT is_limited FROM limited)
    ${ORDER} LIMIT ${bound(claim.places.length)} FOR NO KEY UPDATE SKIP LOCKED
  ), chosen AS MATERIALIZED (SELECT t.row_at, (row_number() OVER (${ORDER}))::int AS turn, 0 AS places FROM locked t), ${take(claim)}
  SELECT x.is_limited AS "isLimited", k.* FROM limited x LEFT JOIN taken k ON true ORDER BY k."turn"`,
  );
  if (found[0]?.isLimited === true) return undefined;
  return toClaimed(
    found.filter((row) => row.turn !== null),
    claim,
  );
}

/** Claims the first tasks of one lane. */
export async function claimOfLane(
  on: SqlExecutor,
  { tenantId, lane, ...claim }: TaskClaim & { tenantId: string; lane: string },
): Promise<ClaimedQueueTask[]> {
  const limit = bound(claim.places.length);
  const found = await rows(
    on,
    ClaimedRow,
    sql`
  WITH limits AS MATERIALIZED (
    SELECT l.tenant_id, l.queue, l.lane, l.max_running, l.running FROM runplane.queue_lanes l
    WHERE l.tenant_id = ${tenantId}::text AND l.queue = ${claim.queue}::text AND l.lane IN ('', ${lane}::text) AND l.max_running IS NOT NULL
    ORDER BY l.lane COLLATE "C" FOR NO KEY UPDATE
  ), room AS MATERIALIZED (
    SELECT least(${limit}, coalesce(min(max_running - running), ${limit})) AS n,
      coalesce(sum(CASE lane WHEN '' THEN ${QUEUE_PLACE}::int ELSE ${LANE_PLACE}::int END), 0)::int AS places
    FROM limits
  ), locked AS MATERIALIZED (
    SELECT ${PICKED} FROM runplane.queue_tasks t
    WHERE ${ready(claim.queue)} AND t.tenant_id = ${tenantId}::text AND t.lane = ${lane}::text AND (SELECT n FROM room) > 0
    ${ORDER} LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED
  ), chosen AS MATERIALIZED (
    SELECT * FROM (SELECT t.*, (row_number() OVER (${ORDER}))::int AS turn, room.places FROM locked t, room) x
    WHERE x.turn <= (SELECT n FROM room)
  ), ${take(claim)}, ${COUNT} SELECT * FROM taken ORDER BY "turn"`,
  );
  return toClaimed(found, claim);
}

/** One tenant; or all, in turns. Of its `limits` a claim over all tenants looks at so many tenants. */
export type ClaimScope = { readonly tenantId: string } | { readonly tenantsMax: number };

/** The one tenant. */
const oneTenant = (tenantId: string): Sql => sql`tenants AS MATERIALIZED (SELECT ${tenantId}::text AS tenant_id, 1 AS turn)`;

/**
 * The tenants that have ready tasks in the queue, each found by one step in the index, from the one behind the last that was served on, and round.
 * The turn is locked where there is something to claim: who claims next starts behind this one.
 */
const tenantsInTurn = (queue: string, tenantsMax: number): Sql => {
  const next = (bound: Sql): Sql =>
    sql`(SELECT t.tenant_id FROM runplane.queue_tasks t WHERE ${ready(queue)} AND ${bound} ORDER BY t.tenant_id LIMIT 1)`;
  return sql`turn AS MATERIALIZED (
    SELECT q.tenant_id FROM runplane.queue_turns q
    WHERE q.queue = ${queue}::text AND ${next(sql`true`)} IS NOT NULL FOR NO KEY UPDATE
  ), start AS MATERIALIZED (SELECT coalesce((SELECT tenant_id FROM turn), '') AS tenant_id),
  behind (tenant_id, turn) AS (
    SELECT n.tenant_id, 1 FROM start s CROSS JOIN LATERAL ${next(sql`t.tenant_id > s.tenant_id`)} n
    UNION ALL
    SELECT n.tenant_id, b.turn + 1 FROM behind b CROSS JOIN LATERAL ${next(sql`t.tenant_id > b.tenant_id`)} n WHERE b.turn < ${tenantsMax}::int
  ), before (tenant_id, turn) AS (
    SELECT n.tenant_id, (SELECT count(*) FROM behind)::int + 1 FROM start s
    CROSS JOIN LATERAL ${next(sql`t.tenant_id <= s.tenant_id`)} n WHERE (SELECT count(*) FROM behind) < ${tenantsMax}::int
    UNION ALL
    SELECT n.tenant_id, b.turn + 1 FROM before b CROSS JOIN start s
    CROSS JOIN LATERAL ${next(sql`t.tenant_id > b.tenant_id AND t.tenant_id <= s.tenant_id`)} n WHERE b.turn < ${tenantsMax}::int
  ), tenants AS MATERIALIZED (SELECT * FROM behind UNION ALL SELECT * FROM before)`;
};

/** Hands the turn on: to the last tenant that got something, or, where all were full, to the last that was looked at. */
const handOn = (queue: string): Sql => sql`
  , served AS MATERIALIZED (
    SELECT t.tenant_id FROM tenants t ORDER BY t.tenant_id IN (SELECT "tenantId" FROM taken) DESC, t.turn DESC LIMIT 1
  ), handed AS (
    INSERT INTO runplane.queue_turns AS q (queue, tenant_id) SELECT ${queue}::text, tenant_id FROM served
    ON CONFLICT (queue) DO UPDATE SET tenant_id = excluded.tenant_id, updated_at = runplane.app_now()
  )`;

/**
 * Claims the first tasks of all lanes of a queue by priority: of one tenant, or of all tenants in turn, one of each and then the next of each.
 * It looks at the heads of the lanes that have room, decides how many to take of each lane, and locks so many of them.
 */
export async function claimOfQueue(
  on: SqlExecutor,
  { scope, lane, ...claim }: TaskClaim & { scope: ClaimScope; lane: string | undefined },
): Promise<ClaimedQueueTask[]> {
  const limit = bound(claim.places.length);
  const all = 'tenantsMax' in scope;
  const named = lane === undefined ? sql`l.lane <> ''` : sql`l.lane = ${lane}::text`;
  const limited = lane === undefined ? sql`true` : sql`l.lane IN ('', ${lane}::text)`;
  const ofLane = sql`${ready(claim.queue)} AND t.tenant_id = o.tenant_id AND t.lane = o.lane`;
  const found = await rows(
    on,
    ClaimedRow,
    sql`
  WITH RECURSIVE ${all ? tenantsInTurn(claim.queue, scope.tenantsMax) : oneTenant(scope.tenantId)},
  limits AS MATERIALIZED (
    SELECT l.tenant_id, l.queue, l.lane, l.max_running, l.running
    FROM tenants n JOIN runplane.queue_lanes l ON l.tenant_id = n.tenant_id AND l.queue = ${claim.queue}::text
    WHERE l.max_running IS NOT NULL AND ${limited}
    ORDER BY l.tenant_id COLLATE "C", l.lane COLLATE "C" FOR NO KEY UPDATE OF l
  ), open AS MATERIALIZED (
    SELECT n.tenant_id, n.turn, l.lane,
      least(${limit}, m.max_running - m.running) AS lane_room, least(${limit}, w.max_running - w.running) AS queue_room,
      CASE WHEN m.lane IS NULL THEN 0 ELSE ${LANE_PLACE}::int END | CASE WHEN w.lane IS NULL THEN 0 ELSE ${QUEUE_PLACE}::int END AS places
    FROM tenants n JOIN runplane.queue_lanes l ON l.tenant_id = n.tenant_id AND l.queue = ${claim.queue}::text AND ${named}
    LEFT JOIN limits m ON m.tenant_id = n.tenant_id AND m.lane = l.lane
    LEFT JOIN limits w ON w.tenant_id = n.tenant_id AND w.lane = ''
  ), heads AS MATERIALIZED (
    SELECT o.tenant_id, o.turn, o.lane, o.lane_room, o.queue_room, h.*,
      row_number() OVER (PARTITION BY o.tenant_id, o.lane ORDER BY h.priority DESC, h.created_at, h.id) AS in_lane
    FROM open o CROSS JOIN LATERAL (
      SELECT t.priority, t.created_at, t.id FROM runplane.queue_tasks t WHERE ${ofLane} AND o.lane_room > 0 AND o.queue_room > 0 ${ORDER} LIMIT ${limit}
    ) h
  ), rounds AS MATERIALIZED (
    SELECT h.*, row_number() OVER (PARTITION BY h.tenant_id ORDER BY h.priority DESC, h.created_at, h.id) AS round
    FROM heads h WHERE h.in_lane <= h.lane_room
  ), wanted AS MATERIALIZED (
    SELECT x.tenant_id, x.lane, count(*) AS n
    FROM (SELECT r.tenant_id, r.lane FROM rounds r WHERE r.round <= r.queue_room ORDER BY r.round, r.turn LIMIT ${limit}) x
    GROUP BY 1, 2
  ), locked AS MATERIALIZED (
    SELECT x.*, o.turn AS tenant_turn, o.places FROM wanted w JOIN open o ON o.tenant_id = w.tenant_id AND o.lane = w.lane
    CROSS JOIN LATERAL (SELECT ${PICKED} FROM runplane.queue_tasks t WHERE ${ofLane} ${ORDER} LIMIT w.n FOR NO KEY UPDATE SKIP LOCKED) x
  ), chosen AS MATERIALIZED (
    SELECT * FROM (SELECT t.*, (row_number() OVER (ORDER BY t.round, t.tenant_turn))::int AS turn FROM (
      SELECT l.*, row_number() OVER (PARTITION BY l.tenant_id ORDER BY l.priority DESC, l.created_at, l.id) AS round FROM locked l
    ) t) y WHERE y.turn <= ${limit}
  ), ${take(claim)}, ${COUNT} ${all ? handOn(claim.queue) : emptySql} SELECT * FROM taken ORDER BY "turn"`,
  );
  return toClaimed(found, claim);
}
