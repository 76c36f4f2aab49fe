import { QUEUE_ATTEMPTS_MAX, QUEUE_BACKOFF_MS_MAX, QUEUE_BACKOFF_MS_MIN, QUEUE_TASK_STATES, type Settlement } from '@runplane/contracts';
import { backOffMs, column, emptySql, rows, sql, textLines, type Sql, type SqlExecutor } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';
import { writeOut } from './attempt.sql';
import { bound } from './bound.sql';
import { leavePlaces, lockPlaces, withLanes } from './lane.sql';
import { moveVersionAt, rowsAt } from './task.sql';

// Renewing and ending claims of tasks, many in one statement. Each locks first (lanes that count, then tasks by id) and judges the clock afterwards
// (OWN-2). A claim is current while the task runs under its epoch and its lease has not ended.

const VerdictRow = z.object({
  tenantId: column.text,
  taskId: column.text,
  exists: column.bool,
  isHeld: column.bool,
  isBusy: column.bool,
  state: column.state(QUEUE_TASK_STATES).nullable(),
  currentEpoch: column.int.nullable(),
  leaseRemainingMs: column.int.nullable(),
  queue: column.text.nullable(),
  isDue: column.bool,
});
export type VerdictRow = z.infer<typeof VerdictRow>;

export interface Claim {
  readonly taskId: string;
  readonly epoch: number;
}

/** Prolongs claims. `isHeld: false`: the claim is over or was taken away; one that has ended is not prolonged. */
export function writeLeases(
  on: SqlExecutor,
  { tenantId, claims, leaseMs }: { tenantId: string; claims: readonly Claim[]; leaseMs: number },
): Promise<VerdictRow[]> {
  return rows(
    on,
    VerdictRow,
    sql`
    WITH given AS MATERIALIZED (
      SELECT g.* FROM unnest(${claims.map(({ taskId }) => taskId)}::text[], ${claims.map(({ epoch }) => epoch)}::int[]) AS g (id, epoch)
    ), locked AS MATERIALIZED (
      SELECT t.tenant_id, t.id, t.state, t.owner, t.epoch, t.expires_at FROM runplane.queue_tasks t
      WHERE t.tenant_id = ${tenantId}::text AND t.id = ANY (SELECT id FROM given) ORDER BY t.id COLLATE "C" FOR NO KEY UPDATE
    ), judged AS MATERIALIZED (SELECT l.*, runplane.app_now() AS now FROM locked l),
    held AS MATERIALIZED (
      SELECT j.tenant_id, j.id, j.now FROM judged j JOIN given g ON g.id = j.id
      WHERE j.state = 'running' AND j.owner IS NOT NULL AND j.epoch = g.epoch AND j.expires_at > j.now
    ), renewed AS (
      UPDATE runplane.queue_tasks t SET expires_at = h.now + ${leaseMs}::int * interval '1 millisecond' FROM held h
      WHERE t.tenant_id = h.tenant_id AND t.id = h.id RETURNING t.id, runplane.ms_until(t.expires_at, h.now) AS remaining
    )
    SELECT ${tenantId}::text AS "tenantId", g.id AS "taskId", j.id IS NOT NULL AS "exists", r.id IS NOT NULL AS "isHeld", false AS "isBusy", j.state::text AS "state",
      j.epoch AS "currentEpoch", r.remaining AS "leaseRemainingMs", NULL::text AS "queue", false AS "isDue"
    FROM given g LEFT JOIN judged j ON j.id = g.id LEFT JOIN renewed r ON r.id = g.id`,
  );
}

export interface GivenSettlement extends Claim {
  readonly outcome: Settlement;
  readonly failureKind: string | null;
  readonly failureMessage: string | null;
  /** Of a released task; null: by the back-off where a failure is told, else at once. */
  readonly delayMs: number | null;
}

const CompletedRow = z.object({ place: column.int });

/**
 * Completes claims where that is all there is to do: no lane counts the task, and its attempt stands in it, where it stays. Returns the places in `claims` that it
 * has completed; `settleClaims` does whatever else there is. This one knows no verdicts and finds rows again by where they lie: half of what the
 * general statement costs (bench/results.md, queues of others). A row that was changed while it waited is not found so, and is left.
 */
export async function completeClaims(
  on: SqlExecutor,
  claims: readonly (Claim & { readonly tenantId: string })[],
  { waits }: { waits: boolean },
): Promise<ReadonlySet<number>> {
  const [only] = claims;
  const lock = sql`FOR NO KEY UPDATE OF t ${waits ? emptySql : sql`SKIP LOCKED`}`;
  const columns = sql`t.ctid AS row_at, t.state = 'running' AND t.owner IS NOT NULL AS is_held, t.epoch, t.expires_at`;
  const isPlain = sql`t.places = 0 AND t.attempt_since IS NOT NULL`;
  const locked =
    claims.length === 1 && only !== undefined
      ? sql`SELECT 1 AS place, ${only.epoch}::int AS epoch_given, ${columns} FROM runplane.queue_tasks t
          WHERE t.tenant_id = ${only.tenantId}::text AND t.id = ${only.taskId}::text AND ${isPlain} ${lock}`
      : sql`SELECT g.place::int, g.epoch AS epoch_given, ${columns}
          FROM unnest(${textLines(claims.map(({ tenantId }) => tenantId))}, ${textLines(claims.map(({ taskId }) => taskId))}, ${claims.map(({ epoch }) => epoch)}::int[])
            WITH ORDINALITY AS g (tenant_id, id, epoch, place)
          JOIN runplane.queue_tasks t ON t.tenant_id = g.tenant_id AND t.id = g.id WHERE ${isPlain}
          ORDER BY t.tenant_id COLLATE "C", t.id COLLATE "C" ${lock}`;
  const completed = await rows(
    on,
    CompletedRow,
    sql`
    WITH locked AS MATERIALIZED (${locked}),
    at AS MATERIALIZED (SELECT runplane.app_now() AS now, ${feedTx} AS tx WHERE (SELECT count(*) FROM locked) > 0)
    UPDATE runplane.queue_tasks t SET state = 'completed', owner = NULL, expires_at = NULL, attempt_owner = t.owner, due = false, ended_at = at.now,
      ${moveVersionAt(sql`at.now`, sql`at.tx`)}
    FROM locked l, at WHERE ${rowsAt(sql`t`, sql`locked`)} AND t.ctid = l.row_at AND l.is_held AND l.epoch = l.epoch_given AND l.expires_at > at.now
    RETURNING l.place - 1 AS "place"`,
  );
  return new Set(completed.map(({ place }) => place));
}

/** What a statement waits for when somebody else has it locked; the rest it passes over. */
export type SettleWait = 'all' | 'lanes' | 'none';

/**
 * Ends claims with their results; each task once. `isBusy`: a limit was set in between, or the attempt written out, or somebody else has what is not waited for, the task or a lane
 * that counts it; nothing was written for this one, call again.
 */
export function settleClaims(
  on: SqlExecutor,
  settlements: readonly (GivenSettlement & { readonly tenantId: string })[],
  { wait }: { wait: SettleWait },
): Promise<VerdictRow[]> {
  return rows(on, VerdictRow, settlementSql(givenRows(settlements), { wait, isCurrent: sql`t.expires_at > t.now` }));
}

/** Settlements as rows (tenant_id, id, epoch, outcome, failure_kind, failure_message, delay_ms). */
function givenRows(settlements: readonly (GivenSettlement & { readonly tenantId: string })[]): Sql {
  const all = <T>(of: (given: (typeof settlements)[number]) => T): T[] => settlements.map(of);
  return sql`
    SELECT g.* FROM unnest(
      ${textLines(all(({ tenantId }) => tenantId))}, ${textLines(all(({ taskId }) => taskId))}, ${all(({ epoch }) => epoch)}::int[], ${textLines(all(({ outcome }) => outcome))},
      ${textLines(all(({ failureKind }) => failureKind))}, ${all(({ failureMessage }) => failureMessage)}::text[], ${all(({ delayMs }) => delayMs)}::int[]
    ) AS g (tenant_id, id, epoch, outcome, failure_kind, failure_message, delay_ms)`;
}

export const LEASE_ENDED = 'the lease ended without a word of its holder';
export const RUNNER_LOST = 'runner-lost';

/** Gives tasks back whose lease has ended, of all tenants: longest ago first. Tasks that somebody else has locked are passed over. */
export function settleEndedLeases(on: SqlExecutor, { limit, wait }: { limit: number; wait: 'lanes' | 'none' }): Promise<VerdictRow[]> {
  const given = sql`
    SELECT t.tenant_id, t.id, t.epoch, 'released' AS outcome, ${RUNNER_LOST}::text AS failure_kind, ${LEASE_ENDED}::text AS failure_message, NULL::int AS delay_ms
    FROM runplane.queue_tasks t WHERE t.expires_at <= (SELECT runplane.app_now()) ORDER BY t.expires_at, t.tenant_id, t.id LIMIT ${bound(limit)}`;
  return rows(on, VerdictRow, settlementSql(given, { wait, isCurrent: sql`t.expires_at <= t.now` }));
}

/** Waiting times by number of attempts, drawn anew for each call. */
const backOffs = (): number[] =>
  Array.from({ length: QUEUE_ATTEMPTS_MAX }, (_, attempt) =>
    backOffMs(attempt + 1, { baseMs: QUEUE_BACKOFF_MS_MIN, maxMs: QUEUE_BACKOFF_MS_MAX }),
  );

/**
 * `given`: rows (tenant_id, id, epoch, outcome, failure_kind, failure_message, delay_ms). A released task waits again and its epoch grows: the old
 * holder is fenced before the next claim. Told with a failure the try counts, and the last one fails the task; told without, it does not count.
 */
function settlementSql(given: Sql, { wait, isCurrent }: { wait: SettleWait; isCurrent: Sql }): Sql {
  const waits = wait === 'all';
  return sql`
    WITH given AS MATERIALIZED (${given}),
    peek AS MATERIALIZED (
      SELECT g.*, t.queue, t.lane, t.places, t.attempt_since IS NOT NULL AS in_task FROM given g JOIN runplane.queue_tasks t ON t.tenant_id = g.tenant_id AND t.id = g.id
    ), lanes AS MATERIALIZED (${lockPlaces(sql`peek`, { wait: wait !== 'none' })}),
    counted AS MATERIALIZED (${wait === 'none' ? withLanes(sql`peek`, sql`lanes`) : sql`SELECT * FROM peek`}),
    locked AS MATERIALIZED (
      SELECT t.tenant_id, t.id, t.queue, t.lane, t.places, t.state, t.owner, t.epoch, t.expires_at, t.attempts, t.max_attempts, t.last_retry_index,
        t.attempt_since IS NOT NULL AS in_task, (t.places, t.attempt_since IS NOT NULL) <> (p.places, p.in_task) AS is_busy, p.epoch AS epoch_given, p.outcome, p.failure_kind, p.failure_message, p.delay_ms
      FROM runplane.queue_tasks t JOIN counted p ON p.tenant_id = t.tenant_id AND p.id = t.id
      WHERE (SELECT count(*) FROM lanes) >= 0
      ORDER BY t.tenant_id COLLATE "C", t.id COLLATE "C" FOR NO KEY UPDATE OF t ${waits ? emptySql : sql`SKIP LOCKED`}
    ), at AS MATERIALIZED (SELECT runplane.app_now() AS now, ${feedTx} AS tx WHERE (SELECT count(*) FROM locked) > 0),
    judged AS MATERIALIZED (SELECT l.*, at.now, at.tx FROM locked l, at),
    held AS MATERIALIZED (
      SELECT t.*, t.outcome = 'released' AND NOT (t.failure_kind IS NOT NULL AND t.attempts >= t.max_attempts) AS comes_again,
        coalesce(t.delay_ms, CASE WHEN t.failure_kind IS NULL THEN 0 ELSE (${backOffs()}::int[])[least(greatest(t.attempts, 1), ${QUEUE_ATTEMPTS_MAX}::int)] END) AS delay
      FROM judged t
      WHERE NOT t.is_busy AND t.state = 'running' AND t.owner IS NOT NULL AND t.epoch = t.epoch_given AND ${isCurrent}
    ), tries AS MATERIALIZED (
      SELECT h.*, coalesce(h.failure_kind, CASE h.outcome WHEN 'released' THEN 'released' END) AS try_kind,
        (CASE WHEN h.outcome <> 'released' THEN h.outcome WHEN h.failure_kind IS NULL THEN 'cancelled' ELSE 'failed' END)::runplane.queue_attempt_state AS try_state
      FROM held h
    ), tried_before AS (
      UPDATE runplane.queue_attempts a SET state = s.try_state, terminal_at = s.now, updated_at = s.now, failure_kind = s.try_kind, failure_message = s.failure_message
      FROM tries s WHERE NOT s.in_task AND a.tenant_id = s.tenant_id AND a.task_id = s.id AND a.retry_index = s.last_retry_index
    ), tried AS (${writeOut(sql`(SELECT * FROM tries WHERE in_task AND outcome <> 'completed')`, {
      state: sql`s.try_state`,
      at: sql`s.now`,
      failureKind: sql`s.try_kind`,
      failureMessage: sql`s.failure_message`,
    })}
    ), freed AS (${leavePlaces(sql`held`)}
    ), ended AS (
      UPDATE runplane.queue_tasks t SET owner = NULL, expires_at = NULL, places = 0,
        attempt_since = CASE h.outcome WHEN 'completed' THEN t.attempt_since END,
        attempt_owner = CASE WHEN h.outcome = 'completed' AND h.in_task THEN t.owner END,
        state = (CASE WHEN h.comes_again THEN 'pending' WHEN h.outcome = 'released' THEN 'failed' ELSE h.outcome END)::runplane.queue_task_state,
        epoch = t.epoch + h.comes_again::int,
        attempts = t.attempts - (h.outcome = 'released' AND h.failure_kind IS NULL)::int,
        ready_at = CASE WHEN h.comes_again THEN h.now + h.delay * interval '1 millisecond' ELSE t.ready_at END,
        due = h.comes_again AND h.delay = 0,
        last_error = coalesce(h.failure_kind || coalesce(': ' || h.failure_message, ''), t.last_error),
        ended_at = CASE WHEN h.comes_again THEN NULL ELSE h.now END, ${moveVersionAt(sql`h.now`, sql`h.tx`)}
      FROM held h WHERE t.tenant_id = h.tenant_id AND t.id = h.id
      RETURNING t.tenant_id, t.id, t.state, t.epoch, t.due
    )
    SELECT g.tenant_id AS "tenantId", g.id AS "taskId", j.id IS NOT NULL AS "exists", e.id IS NOT NULL AS "isHeld", ${waits ? sql`coalesce(j.is_busy, false)` : sql`coalesce(j.is_busy, p.id IS NOT NULL)`} AS "isBusy",
      coalesce(e.state, j.state)::text AS "state", coalesce(e.epoch, j.epoch) AS "currentEpoch", NULL::int AS "leaseRemainingMs",
      CASE WHEN e.id IS NOT NULL THEN j.queue END AS "queue", coalesce(e.due, false) AS "isDue"
    FROM given g LEFT JOIN judged j ON j.tenant_id = g.tenant_id AND j.id = g.id LEFT JOIN ended e ON e.tenant_id = g.tenant_id AND e.id = g.id
    ${waits ? emptySql : sql`LEFT JOIN peek p ON p.tenant_id = g.tenant_id AND p.id = g.id`}`;
}

const ReplayRow = z.object({ taskId: column.text, epoch: column.int, state: column.text, failureKind: column.text.nullable() });

/** How attempts ended that were made under these claims. */
export function findEndedAttempts(
  on: SqlExecutor,
  claims: readonly (Claim & { readonly tenantId: string })[],
): Promise<z.infer<typeof ReplayRow>[]> {
  return rows(
    on,
    ReplayRow,
    sql`SELECT a.task_id AS "taskId", a.epoch AS "epoch", a.state::text AS "state", a.failure_kind AS "failureKind"
        FROM unnest(${claims.map(({ tenantId }) => tenantId)}::text[], ${claims.map(({ taskId }) => taskId)}::text[], ${claims.map(({ epoch }) => epoch)}::int[])
          AS g (tenant_id, id, epoch)
        JOIN runplane.queue_attempts_all a ON a.tenant_id = g.tenant_id AND a.task_id = g.id AND a.epoch = g.epoch AND a.terminal_at IS NOT NULL`,
  );
}

const ReadyRow = z.object({ tenantId: column.text, queue: column.text });

/** Marks pending tasks whose time has come as claimable, of all tenants. Rows that somebody else has locked are passed over. */
export function writeDue(on: SqlExecutor, limit: number): Promise<{ tenantId: string; queue: string }[]> {
  return rows(
    on,
    ReadyRow,
    sql`WITH l AS MATERIALIZED (
          SELECT t.tenant_id, t.id FROM runplane.queue_tasks t
          WHERE t.state = 'pending' AND NOT t.due AND t.ready_at <= (SELECT runplane.app_now())
          ORDER BY t.ready_at, t.tenant_id, t.id LIMIT ${bound(limit)} FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE runplane.queue_tasks t SET due = true FROM l
        WHERE t.tenant_id = l.tenant_id AND t.id = l.id AND t.state = 'pending' AND t.ready_at <= (SELECT runplane.app_now())
        RETURNING t.tenant_id AS "tenantId", t.queue AS "queue"`,
  );
}
