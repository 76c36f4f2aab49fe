import { RETENTION_SCAN_ROWS_MAX } from '@runplane/contracts';
import { column, compareC, maybeRow, oneRow, rawSql, rows, sql, takingLock, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import { storedKeySql } from './reservation.sql';
import { findStoredRun } from './run-archive.sql';
import type { RunKey } from './run.sql';

// What retention finds, and what it removes. A look without locks finds candidates; each is judged again under its run's lock.

const SettingsRow = z.object({ tenantId: column.text, retention: column.json.nullable() });

/** Tenants with what they have set, as it is stored: those with a policy, or all where `every` is set; only `among` where that is given. */
export function listRetentionSettings(
  on: SqlExecutor,
  { tenantId, among, every }: { tenantId: string | undefined; among?: readonly string[] | undefined; every: boolean },
): Promise<z.infer<typeof SettingsRow>[]> {
  return rows(
    on,
    SettingsRow,
    sql`SELECT id AS "tenantId", (settings -> 'retention')::text AS "retention" FROM runplane.tenants
        WHERE (${tenantId ?? null}::text IS NULL OR id = ${tenantId ?? null}::text)
          AND (${among === undefined ? null : [...among]}::text[] IS NULL OR id = ANY (${among === undefined ? null : [...among]}::text[]))
          AND (${every}::bool OR settings ? 'retention') ORDER BY id`,
  );
}

const olderThan = (time: string, days: number): Sql =>
  sql`${rawSql(time)} <= (SELECT runplane.app_now()) - ${days}::int * interval '1 day'`;

/** A job whose process or pod may still be there; its reconciliation reads the run. */
const HAS_UNSETTLED_JOB = sql`EXISTS (SELECT FROM runplane.runner_jobs j WHERE j.tenant_id = r.tenant_id AND j.run_id = r.id AND j.settled_at IS NULL)`;

/** The run that a session shows as its last or active one, or whose command it shows, stays as long as the session. */
const IS_SHOWN_BY_SESSION = sql`(r.session_id IS NOT NULL AND EXISTS (
  SELECT FROM runplane.sessions s WHERE s.tenant_id = r.tenant_id AND s.session_id = r.session_id AND (s.last_run_id = r.id OR s.active_run_id = r.id
    OR EXISTS (SELECT FROM runplane.commands c WHERE c.tenant_id = s.tenant_id AND c.id = s.last_command_id AND c.run_id = r.id))))`;

/** Somebody removes it just now or has failed to a moment ago, or a retention fence of it has not come to its end. */
const IS_HELD = sql`EXISTS (SELECT FROM runplane.reservations v WHERE v.kind = 'retention' AND v.key = ${storedKeySql(sql`r.tenant_id`, sql`r.id`)}
  AND v.owner IS NOT NULL AND (v.expires_at > (SELECT runplane.app_now()) OR v.data ->> 'act' IS DISTINCT FROM 'remove'))`;

/** A place in the order of removal: of runs (finished_at to the millisecond, id), of queue tasks (number of the last change, id). */
export interface RetentionPlace {
  readonly at: string;
  readonly id: string;
}

const Candidate = z.object({ runId: column.text, finishedAt: column.time });

export type RunRemoval = 'runs' | 'run-events';

/**
 * Ended runs that are due, oldest end first. `next`: where to look further, null when all have been looked at. Runs that must stay do not
 * leave the index, so a look has a bound of its own.
 */
export async function listDueRuns(
  on: SqlExecutor,
  kind: RunRemoval,
  { tenantId, days, limit, after }: { tenantId: string; days: number; limit: number; after: RetentionPlace | null },
): Promise<{ runIds: string[]; next: RetentionPlace | null }> {
  const behind = after === null ? sql`` : sql`AND (r.finished_at, r.id) > (${after.at}::timestamptz, ${after.id}::text)`;
  // Each kind spells the predicate of its index: runs_tenant_id_finished_at_id_idx, runs_unpruned_events.
  const due = sql`FROM runplane.runs r WHERE r.tenant_id COLLATE "C" = ${tenantId}::text AND r.finished_at IS NOT NULL
    ${kind === 'runs' ? sql`` : sql`AND r.events_pruned_at IS NULL`} AND ${olderThan('r.finished_at', days)} ${behind} ORDER BY r.finished_at, r.id`;
  const stays =
    kind === 'runs' ? sql`${HAS_UNSETTLED_JOB} OR ${IS_HELD} OR ${IS_SHOWN_BY_SESSION}` : sql`${HAS_UNSETTLED_JOB} OR ${IS_HELD}`;
  const found = await rows(
    on,
    Candidate,
    sql`SELECT r.id AS "runId", runplane.wire_time(r.finished_at) AS "finishedAt"
        FROM (SELECT r.tenant_id, r.id, r.session_id, r.finished_at ${due} LIMIT ${RETENTION_SCAN_ROWS_MAX}::int) r
        WHERE NOT (${stays}) ORDER BY r.finished_at, r.id LIMIT ${limit}::int`,
  );
  const runIds = found.map(({ runId }) => runId);
  const last = found.at(-1);
  if (found.length === limit && last !== undefined) return { runIds, next: { at: last.finishedAt, id: last.runId } };
  const end = await maybeRow(
    on,
    Candidate,
    sql`SELECT r.id AS "runId", runplane.wire_time(r.finished_at) AS "finishedAt" ${due} LIMIT 1 OFFSET ${RETENTION_SCAN_ROWS_MAX - 1}::int`,
  );
  return { runIds, next: end === undefined ? null : { at: end.finishedAt, id: end.runId } };
}

/** Runs whose events an earlier pass has begun to remove; whatever the policy says by now, that is brought to its end. */
export async function listUnfinishedPrunes(on: SqlExecutor, tenantId: string, limit: number): Promise<string[]> {
  const found = await rows(
    on,
    z.object({ runId: column.text }),
    sql`SELECT r.id AS "runId" FROM runplane.runs r WHERE r.tenant_id COLLATE "C" = ${tenantId}::text AND r.events_pruned_through IS NOT NULL AND NOT ${IS_HELD}
        ORDER BY r.id LIMIT ${limit}::int`,
  );
  return found.map(({ runId }) => runId);
}

const VERDICTS = ['remove', 'open', 'young', 'job-unsettled', 'shown-by-session'] as const;

/** May the run, or may its events, be removed? Judged by the database's clock under the run's lock. */
export async function judgeRemoval(
  tx: Tx,
  { tenantId, runId }: RunKey,
  { kind, days }: { kind: RunRemoval; days: number },
): Promise<(typeof VERDICTS)[number]> {
  const { verdict } = await oneRow(
    tx,
    z.object({ verdict: column.state(VERDICTS) }),
    sql`SELECT CASE WHEN r.finished_at IS NULL THEN 'open' WHEN NOT ${olderThan('r.finished_at', days)} THEN 'young'
            WHEN ${HAS_UNSETTLED_JOB} THEN 'job-unsettled' WHEN ${kind === 'runs'}::bool AND ${IS_SHOWN_BY_SESSION} THEN 'shown-by-session' ELSE 'remove' END AS "verdict"
        FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`,
  );
  return verdict;
}

/** What stands against the removal of a run whatever its age, as it looks without a lock; undefined when there is no such run. */
export async function findRemovalVerdict(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
): Promise<'remove' | 'open' | 'job-unsettled' | 'held' | 'shown-by-session' | undefined> {
  const found = await maybeRow(
    on,
    z.object({ verdict: column.state(['remove', 'open', 'job-unsettled', 'held', 'shown-by-session']) }),
    sql`SELECT CASE WHEN r.finished_at IS NULL THEN 'open' WHEN ${HAS_UNSETTLED_JOB} THEN 'job-unsettled' WHEN ${IS_HELD} THEN 'held'
            WHEN ${IS_SHOWN_BY_SESSION} THEN 'shown-by-session' ELSE 'remove' END AS "verdict"
        FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`,
  );
  return found?.verdict;
}

/** Columns of a run whose events are being removed, as the end of a SET list: everything before the event that tells it. */
export const eventsPrunedSet = sql`, events_pruned_at = runplane.app_now(), events_pruned_through = last_event_seq`;

/**
 * Removes the next events of a locked run whose removal has been told, oldest first; `lastSeq`: the last one that went, null when none was
 * left. `afterSeq` spares the search of what has gone already, whose index entries stand there until a vacuum.
 */
export async function deleteEventChunk(
  tx: Tx,
  { tenantId, runId }: RunKey,
  { afterSeq, limit }: { afterSeq: number; limit: number },
): Promise<{ lastSeq: number | null }> {
  const chunk = await oneRow(
    tx,
    z.object({ lastSeq: column.int8.nullable() }),
    sql`WITH r AS MATERIALIZED (
          SELECT events_pruned_through AS through FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text
        ), due AS MATERIALIZED (
          SELECT e.seq FROM runplane.run_events e
          WHERE e.tenant_id = ${tenantId}::text AND e.run_id = ${runId}::text AND e.seq > ${String(afterSeq)}::bigint AND e.seq <= (SELECT through FROM r)
          ORDER BY e.seq LIMIT ${limit}::int
        ), gone AS (
          DELETE FROM runplane.run_events e
          WHERE e.tenant_id = ${tenantId}::text AND e.run_id = ${runId}::text
            AND e.seq BETWEEN (SELECT min(seq) FROM due) AND (SELECT max(seq) FROM due)
          RETURNING e.seq
        )
        SELECT max(seq)::text AS "lastSeq" FROM gone`,
  );
  if (chunk.lastSeq === null) await writeEventsGone(tx, { tenantId, runId });
  return chunk;
}

/** Nothing of what was to go is left. */
async function writeEventsGone(tx: Tx, { tenantId, runId }: RunKey): Promise<void> {
  await tx.query(
    sql`UPDATE runplane.runs SET events_pruned_through = NULL WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text RETURNING 1 AS "done"`,
  );
}

/** What was under a run. */
export interface RemovedRows {
  readonly events: number;
  readonly commands: number;
  readonly intents: number;
  readonly runnerJobs: number;
  readonly cancelRequests: number;
}

/** What a removal of the run, or of its events, would remove; undefined when the run is gone, or has not ended. */
export async function countRun(on: SqlExecutor, run: RunKey, kind: RunRemoval): Promise<RemovedRows | undefined> {
  const stored = await findStoredRun(on, run);
  if (stored === undefined) return undefined;
  const { firstEventSeq, lastEventSeq, prunedThrough, commands, intents, runnerJobs, cancelRequests } = stored;
  const through = kind === 'run-events' ? (prunedThrough ?? lastEventSeq) : lastEventSeq;
  const events = firstEventSeq === null ? 0 : Math.max(through - firstEventSeq + 1, 0);
  return { events, commands, intents, runnerJobs, cancelRequests };
}

/**
 * Deletes a locked run with everything under it, children first. What lies under a run is written under the run's lock alone, so its ranks
 * are taken with it; jobs are locked one by one elsewhere. Returns what went.
 */
export async function deleteRun(tx: Tx, key: RunKey): Promise<RemovedRows> {
  const { tenantId, runId } = key;
  const unit = `${tenantId}/${runId}`;
  for (const rank of ['command', 'intent'] as const) takingLock(tx, rank, unit);
  const jobs = await rows(
    tx,
    z.object({ id: column.text }),
    sql`SELECT id AS "id" FROM runplane.runner_jobs WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text`,
  );
  takingLock(tx, 'runnerJob', ...jobs.map(({ id }) => `${tenantId}/${id}`).sort(compareC));
  const deleted = async (table: string): Promise<number> => {
    const { n } = await oneRow(
      tx,
      z.object({ n: column.int }),
      sql`WITH gone AS (DELETE FROM ${rawSql(`runplane.${table}`)} WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text RETURNING 1)
          SELECT count(*)::int AS "n" FROM gone`,
    );
    return n;
  };
  const runnerJobs = await deleted('runner_jobs');
  const intents = await deleted('dispatch_intents');
  const commands = await deleted('commands');
  const cancelRequests = await deleted('cancel_requests');
  const events = await deleted('run_events');
  await deleted('run_search');
  const gone = await rows(
    tx,
    z.object({ done: column.int }),
    sql`DELETE FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text RETURNING 1 AS "done"`,
  );
  if (gone.length !== 1) throw new Error(`the deletion of run ${runId} touched ${gone.length} rows`);
  return { events, commands, intents, runnerJobs, cancelRequests };
}

export interface NewTombstone extends RunKey {
  readonly sessionId: string | null;
  readonly lastEventSeq: number;
  readonly archive: { readonly key: string; readonly sha256: string } | null;
  readonly finishedAt: string;
}

/** Notes that a run was there: its id is not used again. */
export async function insertTombstone(tx: Tx, tombstone: NewTombstone): Promise<void> {
  const { tenantId, runId, sessionId, lastEventSeq, archive, finishedAt } = tombstone;
  await tx.query(
    sql`INSERT INTO runplane.run_tombstones (tenant_id, run_id, session_id, last_event_seq, archive_key, archive_sha256, finished_at)
        VALUES (${tenantId}::text, ${runId}::text, ${sessionId}::text, ${String(lastEventSeq)}::bigint, ${archive?.key ?? null}::text,
          ${archive?.sha256 ?? null}::text, ${finishedAt}::timestamptz) RETURNING 1 AS "done"`,
  );
}

/** What is known of a run that was removed. */
export function findTombstone(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
): Promise<{ deletedAt: string; archiveKey: string | null } | undefined> {
  return maybeRow(
    on,
    z.object({ deletedAt: column.time, archiveKey: column.text.nullable() }),
    sql`SELECT runplane.wire_time(deleted_at) AS "deletedAt", archive_key AS "archiveKey" FROM runplane.run_tombstones
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text`,
  );
}

const Ids = z.object({ id: column.text });

/** `dryRun`: only says which. One statement; rows that somebody has locked are left to the next pass. */
async function prune(
  on: SqlExecutor,
  table: string,
  due: Sql,
  { tenantId, dryRun }: { tenantId: string; dryRun: boolean },
): Promise<string[]> {
  const statement = dryRun
    ? sql`SELECT x.id AS "id" ${due}`
    : sql`WITH due AS MATERIALIZED (SELECT x.id ${due} FOR UPDATE OF x SKIP LOCKED)
          DELETE FROM ${rawSql(`runplane.${table}`)} x USING due WHERE x.tenant_id = ${tenantId}::text AND x.id = due.id RETURNING x.id AS "id"`;
  return (await rows(on, Ids, statement)).map(({ id }) => id);
}

export interface Due {
  readonly tenantId: string;
  readonly days: number;
  readonly limit: number;
  readonly dryRun: boolean;
}

/** Finished intents of ended runs: an open run is requeued by its last intent. One that an unsettled job names stays. */
export function pruneDueIntents(on: SqlExecutor, { tenantId, days, limit, dryRun }: Due): Promise<string[]> {
  const due = sql`FROM runplane.dispatch_intents x JOIN runplane.runs r ON r.tenant_id = x.tenant_id AND r.id = x.run_id
    WHERE x.tenant_id = ${tenantId}::text AND x.finished_at IS NOT NULL AND ${olderThan('x.finished_at', days)} AND r.finished_at IS NOT NULL
      AND NOT ${HAS_UNSETTLED_JOB} ORDER BY x.finished_at, x.id LIMIT ${limit}::int`;
  return prune(on, 'dispatch_intents', due, { tenantId, dryRun });
}

/** Cancel requests that are at their last stage, of runs that have ended. Their last change is their end. */
export function pruneDueCancelRequests(on: SqlExecutor, { tenantId, days, limit, dryRun }: Due): Promise<string[]> {
  const due = sql`FROM runplane.cancel_requests x LEFT JOIN runplane.runs r ON r.tenant_id = x.tenant_id AND r.id = x.run_id
    WHERE x.tenant_id = ${tenantId}::text AND x.stage = 'terminalized' AND ${olderThan('x.created_at', days)} AND ${olderThan('x.updated_at', days)}
      AND (x.run_id IS NULL OR r.finished_at IS NOT NULL) ORDER BY x.created_at, x.id LIMIT ${limit}::int`;
  return prune(on, 'cancel_requests', due, { tenantId, dryRun });
}
