import { SUBMISSION_ATTEMPTS_MAX, SUBMISSION_BACKOFF_MS_MAX, SUBMISSION_BACKOFF_MS_MIN, SUBMISSION_STATES } from '@runplane/contracts';
import { backOffMs, column, emptySql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';

// What the holder of a claim does with it but to end the submission: keep it, or give it back. Many in one statement, which locks the heads of the
// sessions in their order and judges the clock afterwards (OWN-2). A claim is current while its head is claimed for its operation, under its
// epoch, and its time has not come.

export interface NamedClaim {
  readonly sessionId: string;
  readonly operationId: string;
  readonly epoch: number;
}

const HoldRow = z.object({
  sessionId: column.text,
  /** Somebody has the head, and the statement does not wait: nothing was written for this one. */
  isBusy: column.bool,
  /** What remains of the claim that is given, of a head that is busy; null: it is over. */
  busyRemainingMs: column.int.nullable(),
  isHeld: column.bool,
  /** Of the submission; null: there is none. */
  state: column.state(SUBMISSION_STATES).nullable(),
  /** Of the head, while the submission is at it. */
  currentEpoch: column.int.nullable(),
  isWaiting: column.bool,
  claimRemainingMs: column.int.nullable(),
});
export type HoldRow = z.infer<typeof HoldRow>;

/** The claims as given, the heads that they are of, locked, and those that are current: `given`, `judged`, `held` with what was given. */
function holdSql({ tenantId, claims, more = emptySql, names = emptySql, wait }: HoldOf): Sql {
  return sql`
    WITH given AS MATERIALIZED (
      SELECT g.* FROM unnest(${claims.map((c) => c.sessionId)}::text[], ${claims.map((c) => c.operationId)}::text[], ${claims.map((c) => c.epoch)}::int[]${more})
        AS g (session_id, operation_id, epoch${names})
    ), locked AS MATERIALIZED (
      SELECT h.tenant_id, h.session_id, h.operation_id, h.state, h.epoch, h.expires_at, h.attempts FROM runplane.submission_heads h
      WHERE h.tenant_id = ${tenantId}::text AND h.session_id = ANY (${claims.map((c) => c.sessionId)}::text[])
      ORDER BY h.session_id COLLATE "C" FOR NO KEY UPDATE ${wait ? emptySql : sql`SKIP LOCKED`}
    ), judged AS MATERIALIZED (SELECT l.*, runplane.app_now() AS now FROM locked l),
    held AS MATERIALIZED (
      SELECT g.*, j.tenant_id, j.attempts, j.now FROM judged j JOIN given g ON g.session_id = j.session_id
      WHERE j.state = 'claimed' AND j.operation_id = g.operation_id AND j.epoch = g.epoch AND j.expires_at > j.now
    )`;
}
interface HoldOf {
  readonly tenantId: string;
  readonly claims: readonly NamedClaim[];
  /** Further arrays beside the claims, and the names of their columns. */
  readonly more?: Sql | undefined;
  readonly names?: Sql | undefined;
  readonly wait: boolean;
}

/** A head that was there and could not be locked is busy; what the submission itself says is as the statement found it. */
const answerSql = ({ tenantId, wait }: { tenantId: string; wait: boolean }, changed: Sql): Sql => sql`
    SELECT g.session_id AS "sessionId", s.state::text AS "state", u.session_id IS NOT NULL AS "isHeld",
      ${!wait}::bool AND j.session_id IS NULL AND EXISTS (
        SELECT FROM runplane.submission_heads h WHERE h.tenant_id = ${tenantId}::text AND h.session_id = g.session_id AND h.operation_id = g.operation_id
      ) AS "isBusy",
      (SELECT runplane.ms_until(h.expires_at, runplane.app_now()) FROM runplane.submission_heads h
        WHERE ${!wait}::bool AND j.session_id IS NULL AND h.tenant_id = ${tenantId}::text AND h.session_id = g.session_id AND h.operation_id = g.operation_id
          AND h.state = 'claimed' AND h.epoch = g.epoch) AS "busyRemainingMs",
      CASE WHEN j.operation_id = g.operation_id THEN coalesce(u.epoch, j.epoch) END AS "currentEpoch",
      coalesce(j.operation_id = g.operation_id AND j.state = 'waiting', false) AS "isWaiting", u.remaining AS "claimRemainingMs"
    FROM given g LEFT JOIN judged j ON j.session_id = g.session_id LEFT JOIN ${changed} u ON u.session_id = g.session_id
    LEFT JOIN runplane.submissions s ON s.tenant_id = ${tenantId}::text AND s.session_id = g.session_id AND s.operation_id = g.operation_id`;

/** Prolongs claims from now on; one that has ended is not prolonged. `wait: false`: those whose head somebody has are busy. */
export function renewHeads(
  on: SqlExecutor,
  { tenantId, claims, leaseMs, wait }: { tenantId: string; claims: readonly NamedClaim[]; leaseMs: number; wait: boolean },
): Promise<HoldRow[]> {
  return rows(
    on,
    HoldRow,
    sql`${holdSql({ tenantId, claims, wait })}, renewed AS (
      UPDATE runplane.submission_heads t SET expires_at = x.until, ready_at = x.until
      FROM (SELECT h.*, h.now + ${leaseMs}::int * interval '1 millisecond' AS until FROM held h) x
      WHERE t.tenant_id = x.tenant_id AND t.session_id = x.session_id
      RETURNING t.session_id, t.epoch, runplane.ms_until(t.expires_at, x.now) AS remaining
    )${answerSql({ tenantId, wait }, sql`renewed`)}`,
  );
}

export interface GivenRelease extends NamedClaim {
  readonly error: string | null;
  /** Null: by the back-off where an error is told, else at once. */
  readonly delayMs: number | null;
}

/** Waiting times by number of attempts, drawn anew for each call. */
const backOffs = (): number[] =>
  Array.from({ length: SUBMISSION_ATTEMPTS_MAX }, (_, attempt) =>
    backOffMs(attempt + 1, { baseMs: SUBMISSION_BACKOFF_MS_MIN, maxMs: SUBMISSION_BACKOFF_MS_MAX }),
  );

/**
 * Gives claims back. The epoch grows: the old holder is fenced before the next claim. With an error the try counts; one that was the last is due at
 * once, for whoever ends it. Without, it does not count, and the error of an earlier try stays. `wait: false`: as for renewHeads.
 */
export function releaseHeads(
  on: SqlExecutor,
  { tenantId, releases, wait }: { tenantId: string; releases: readonly GivenRelease[]; wait: boolean },
): Promise<HoldRow[]> {
  const hold = holdSql({
    tenantId,
    claims: releases,
    more: sql`, ${releases.map(({ error }) => error)}::text[], ${releases.map(({ delayMs }) => delayMs)}::int[]`,
    names: sql`, error, delay_ms`,
    wait,
  });
  return rows(
    on,
    HoldRow,
    sql`${hold}, released AS (
      UPDATE runplane.submission_heads t SET state = 'waiting', owner = NULL, expires_at = NULL, epoch = t.epoch + 1,
        attempts = t.attempts - (h.error IS NULL)::int, last_error = coalesce(h.error, t.last_error),
        ready_at = h.now + interval '1 millisecond' * CASE
          WHEN h.error IS NOT NULL AND t.attempts >= ${SUBMISSION_ATTEMPTS_MAX}::int THEN 0
          ELSE coalesce(h.delay_ms, CASE WHEN h.error IS NULL THEN 0 ELSE (${backOffs()}::int[])[least(greatest(t.attempts, 1), ${SUBMISSION_ATTEMPTS_MAX}::int)] END)
        END
      FROM held h WHERE t.tenant_id = h.tenant_id AND t.session_id = h.session_id
      RETURNING t.session_id, t.epoch, NULL::int AS remaining
    )${answerSql({ tenantId, wait }, sql`released`)}`,
  );
}
