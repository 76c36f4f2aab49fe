import { REBUILD_ATTEMPTS_MAX, REBUILD_STATES } from '@runplane/contracts';
import {
  claimDueSql,
  column,
  maybeRow,
  retryClaimSql,
  rows,
  settleClaimSql,
  sql,
  takingLock,
  type ClaimTable,
  type HeldClaim,
  type Sql,
  type SqlExecutor,
  type Tx,
} from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';

const TABLE: ClaimTable = {
  table: 'runplane.session_rebuilds',
  key: ['tenant_id', 'session_id'],
  stateColumn: 'state',
  stateType: 'runplane.rebuild_state',
  openStates: ['waiting'],
  claimedState: 'running',
  attemptsMax: REBUILD_ATTEMPTS_MAX,
};

/** The right to rebuild one session. */
export interface RebuildClaim extends SessionKey {
  readonly owner: string;
  readonly epoch: number;
  readonly attempts: number;
}
const held = ({ tenantId, sessionId, owner, epoch }: RebuildClaim): HeldClaim => ({ key: [tenantId, sessionId], owner, epoch });
const same = ({ tenantId, sessionId }: SessionKey): Sql => sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;

const done = z.object({ done: column.int });
const KeyRow = z.object({ tenantId: column.text, sessionId: column.text });

// One that is done, or has switched and only not cleared its own rows yet, begins anew; another one goes on from where it has come to.
const isOver = sql`(r.state = 'completed' OR r.switched_at IS NOT NULL)`;
const AGAIN = sql`
  rules = CASE WHEN ${isOver} THEN '' ELSE r.rules END, through_sequence = CASE WHEN ${isOver} THEN -1 ELSE r.through_sequence END,
  changed_rows = CASE WHEN ${isOver} THEN 0 ELSE r.changed_rows END, switched_at = NULL,
  state = 'waiting', attempts = 0, ready_at = runplane.app_now(), last_error = NULL, requested_at = runplane.app_now(), finished_at = NULL`;

/**
 * Asks for rebuilds of sessions that are there. Those under way go on; of those that wait the back-off ends. Returns how many were asked for.
 *
 * `stale` is how the background asks: one that waits keeps its back-off, one that has failed too often by these rules is left to an operator, and
 * one that is done by them is repeated only where `again` says that something has changed since.
 */
export async function requestRebuilds(
  on: SqlExecutor,
  keys: readonly SessionKey[],
  { stale }: { stale?: { readonly rules: string; readonly again: boolean } | undefined } = {},
): Promise<number> {
  if (keys.length === 0) return 0;
  const anew =
    stale === undefined
      ? sql`r.state <> 'running'`
      : sql`(r.state = 'completed' AND (${stale.again}::bool OR NOT starts_with(r.rules, ${stale.rules}::text)))
            OR (r.state = 'waiting' AND r.attempts >= ${REBUILD_ATTEMPTS_MAX}::int AND NOT starts_with(r.rules, ${failedBy(stale.rules)}::text))`;
  const asked = await rows(
    on,
    done,
    sql`INSERT INTO runplane.session_rebuilds AS r (tenant_id, session_id)
        SELECT h.tenant_id, h.session_id
        FROM unnest(${keys.map(({ tenantId }) => tenantId)}::text[], ${keys.map(({ sessionId }) => sessionId)}::text[]) k (tenant_id, session_id)
        JOIN runplane.session_heads h ON h.tenant_id = k.tenant_id AND h.session_id = k.session_id AND (h.deleted_at IS NULL OR h.copying)
        ORDER BY h.tenant_id COLLATE "C", h.session_id COLLATE "C"
        ON CONFLICT (tenant_id, session_id) DO UPDATE SET ${AGAIN} WHERE ${anew}
        RETURNING 1 AS "done"`,
  );
  return asked.length;
}

/** In the place of the rules of a rebuild that has failed for good by them. */
export const failedBy = (rules: string): string => `failed ${rules}`;

const ClaimRow = KeyRow.extend({ epoch: column.int, attempts: column.int });

/** Claims rebuilds that wait, and those whose holder's lease has ended; of one session, where one is named. */
export async function claimRebuilds(
  on: SqlExecutor,
  { owner, leaseMs, limit, only }: { owner: string; leaseMs: number; limit: number; only?: SessionKey | undefined },
): Promise<RebuildClaim[]> {
  const claims = await rows(
    on,
    ClaimRow,
    claimDueSql(TABLE, {
      owner,
      leaseMs,
      limit,
      orderBy: sql`ready_at, tenant_id, session_id`,
      returning: sql`t.tenant_id AS "tenantId", t.session_id AS "sessionId", t.epoch AS "epoch", t.attempts AS "attempts"`,
      where: only === undefined ? undefined : same(only),
    }),
  );
  return claims.map((claim) => ({ ...claim, owner }));
}

const ProgressRow = z.object({
  rules: column.text,
  throughSequence: column.int8,
  folded: column.jsonObject.nullable(),
  switched: column.bool,
  changedRows: column.int,
});
export type RebuildProgress = z.infer<typeof ProgressRow>;

/** Locks the rebuild of its holder; undefined when it was taken over. A late holder that nobody has replaced may go on. */
export function lockRebuild(tx: Tx, claim: RebuildClaim): Promise<RebuildProgress | undefined> {
  takingLock(tx, 'sessionRebuild', `${claim.tenantId}/${claim.sessionId}`);
  return maybeRow(
    tx,
    ProgressRow,
    sql`SELECT rules AS "rules", through_sequence::text AS "throughSequence", folded::text AS "folded", switched_at IS NOT NULL AS "switched",
          changed_rows AS "changedRows"
        FROM runplane.session_rebuilds
        WHERE ${same(claim)} AND owner = ${claim.owner}::text AND epoch = ${claim.epoch}::int AND state = 'running' FOR NO KEY UPDATE`,
  );
}

/** Writes how far a locked rebuild has come, in the transaction that has folded so far, and prolongs the holder's lease. */
export async function writeProgress(
  tx: Tx,
  claim: RebuildClaim,
  { leaseMs, rules, throughSequence, folded, switched, changedRows }: RebuildProgress & { leaseMs: number },
): Promise<void> {
  const lease = sql`runplane.app_now() + ${leaseMs}::int * interval '1 millisecond'`;
  await rows(
    tx,
    done,
    sql`UPDATE runplane.session_rebuilds SET rules = ${rules}::text, through_sequence = ${String(throughSequence)}::bigint,
          folded = ${folded === null ? null : JSON.stringify(folded)}::json, changed_rows = ${changedRows}::int,
          switched_at = CASE WHEN ${switched}::bool THEN coalesce(switched_at, runplane.app_now()) END, expires_at = ${lease}, ready_at = ${lease}
        WHERE ${same(claim)} RETURNING 1 AS "done"`,
  );
}

/** Ends a rebuild; false when it was taken over. */
export async function settleRebuild(on: SqlExecutor, claim: RebuildClaim): Promise<boolean> {
  const set = sql`state = 'completed', finished_at = held.now, folded = NULL, last_error = NULL`;
  const settled = await rows(on, done, settleClaimSql(TABLE, held(claim), { set, returning: sql`1 AS "done"` }));
  return settled.length === 1;
}

/** Gives a rebuild back, to be taken up again after a delay from where it has come to. `counted`: false where it was only interrupted. */
export async function returnRebuild(
  on: SqlExecutor,
  claim: RebuildClaim,
  { delayMs, lastError, counted }: { delayMs: number; lastError: string | null; counted: boolean },
): Promise<void> {
  const set = counted ? undefined : sql`attempts = t.attempts - 1`;
  await rows(on, done, retryClaimSql(TABLE, held(claim), { state: 'waiting', delayMs, lastError, returning: sql`1 AS "done"`, set }));
}

/**
 * Forgets rebuilds that were done some time ago, a bounded number. Not those by which a team's projections have seen the session: one that no event
 * of it touches has no row there, and would be looked for again and again.
 */
export async function forgetRebuilds(on: SqlExecutor, { olderThanMs, limit }: { olderThanMs: number; limit: number }): Promise<number> {
  const forgotten = await rows(
    on,
    done,
    sql`DELETE FROM runplane.session_rebuilds WHERE ctid = ANY (ARRAY(
          SELECT ctid FROM runplane.session_rebuilds
          WHERE state = 'completed'::runplane.rebuild_state AND rules !~ '@.*@' AND finished_at < (SELECT runplane.app_now()) - ${olderThanMs}::int * interval '1 millisecond'
          ORDER BY finished_at LIMIT ${limit}::int FOR UPDATE SKIP LOCKED))
        RETURNING 1 AS "done"`,
  );
  return forgotten.length;
}

const StatusRow = z.object({
  state: column.state(['none', ...REBUILD_STATES]),
  viewsVersion: column.int,
  lastSequence: column.int8,
  throughSequence: column.int8,
  changedRows: column.int,
  attempts: column.int,
  lastError: column.text.nullable(),
  requestedAt: column.time.nullable(),
  finishedAt: column.time.nullable(),
  views: column.json.transform((views) =>
    z.array(z.object({ key: z.string(), version: z.int(), reason: z.string().nullable() })).parse(views),
  ),
});
export type RebuildStatusRow = z.infer<typeof StatusRow>;

/** How a session's views and their last rebuild stand; undefined where there is no such session. */
export function findRebuild(on: SqlExecutor, key: SessionKey): Promise<RebuildStatusRow | undefined> {
  return maybeRow(
    on,
    StatusRow,
    sql`SELECT coalesce(r.state::text, 'none') AS "state", h.views_version AS "viewsVersion", h.last_sequence::text AS "lastSequence",
          coalesce(r.through_sequence, -1)::text AS "throughSequence", coalesce(r.changed_rows, 0) AS "changedRows", coalesce(r.attempts, 0) AS "attempts",
          r.last_error AS "lastError", runplane.wire_time(r.requested_at) AS "requestedAt", runplane.wire_time(r.finished_at) AS "finishedAt",
          (SELECT coalesce(json_agg(json_build_object('key', v.key, 'version', v.version, 'reason', v.stale_reason)), '[]')
             FROM runplane.session_views v WHERE v.tenant_id = h.tenant_id AND v.session_id = h.session_id)::text AS "views"
        FROM runplane.session_heads h LEFT JOIN runplane.session_rebuilds r ON r.tenant_id = h.tenant_id AND r.session_id = h.session_id
        WHERE h.tenant_id = ${key.tenantId}::text AND h.session_id = ${key.sessionId}::text AND h.deleted_at IS NULL`,
  );
}
