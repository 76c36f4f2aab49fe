import { randomUUID } from 'node:crypto';
import { QUEUED_TURN_KIND, SESSION_STATES, STORAGE_KINDS, type JsonObject, type Partition } from '@runplane/contracts';
import { column, inLockOrder, insertedRow, maybeRow, newKeyOf, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';
import { VIEWS_VERSION } from './projections';
import { callQueuedTurn } from './queued-turn.sql';
import { headOfNewSession } from './session-head.sql';

const done = z.object({ done: column.int });

const SessionRow = z.object({
  tenantId: column.text,
  sessionId: column.text,
  projectId: column.text.nullable(),
  backendProfile: column.text.nullable(),
  conversationId: column.text.nullable(),
  threadId: column.text.nullable(),
  metadata: column.jsonObject,
  title: column.text.nullable(),
  executionState: column.state(SESSION_STATES),
  activeRunId: column.text.nullable(),
  activeCommandId: column.text.nullable(),
  lastRunId: column.text.nullable(),
  lastCommandId: column.text.nullable(),
  terminalStatus: column.text.nullable(),
  failureKind: column.text.nullable(),
  version: column.int8,
  lastTx: column.bigint,
  createdAt: column.time,
  updatedAt: column.time,
  lastActivityAt: column.time,
  expiresAt: column.time.nullable(),
  ttlSeconds: column.int.nullable(),
  summary: column.jsonObject,
  storageKind: column.state(STORAGE_KINDS),
  storageName: column.text.nullable(),
  storageNamespace: column.text.nullable(),
  storagePhase: column.text.nullable(),
  storageSizeBytes: column.int8.nullable(),
  storageFilesCount: column.int.nullable(),
  storageSha256: column.text.nullable(),
  rolloutSubdir: column.text,
  storageUpdatedAt: column.time.nullable(),
  storageEvictedAt: column.time.nullable(),
  storageVersion: column.int,
  storageAttempts: column.int,
  storageLastError: column.text.nullable(),
  storageLeaseOwner: column.text.nullable(),
  storageLeaseEpoch: column.int,
  storageLeaseInMs: column.int.nullable(),
  deletedAt: column.time.nullable(),
  copying: column.bool,
});
export type SessionRow = z.infer<typeof SessionRow>;

const COLUMNS = sql`
  tenant_id AS "tenantId", session_id AS "sessionId", project_id AS "projectId", backend_profile AS "backendProfile",
  conversation_id AS "conversationId", thread_id AS "threadId", metadata::text AS "metadata", title AS "title",
  execution_state::text AS "executionState", active_run_id AS "activeRunId", active_command_id AS "activeCommandId",
  last_run_id AS "lastRunId", last_command_id AS "lastCommandId", terminal_status AS "terminalStatus", failure_kind AS "failureKind",
  version::text AS "version", last_tx::text AS "lastTx", runplane.wire_time(created_at) AS "createdAt", runplane.wire_time(updated_at) AS "updatedAt",
  runplane.wire_time(last_activity_at) AS "lastActivityAt", runplane.wire_time(expires_at) AS "expiresAt", ttl_seconds AS "ttlSeconds",
  summary::text AS "summary", storage_kind::text AS "storageKind", storage_pvc_name AS "storageName", storage_namespace AS "storageNamespace",
  storage_pvc_phase AS "storagePhase", storage_size_bytes::text AS "storageSizeBytes", storage_files_count AS "storageFilesCount",
  storage_sha256 AS "storageSha256", rollout_subdir AS "rolloutSubdir", runplane.wire_time(storage_updated_at) AS "storageUpdatedAt",
  runplane.wire_time(storage_evicted_at) AS "storageEvictedAt", storage_version AS "storageVersion", storage_attempts AS "storageAttempts",
  storage_last_error AS "storageLastError", storage_lease_owner AS "storageLeaseOwner", storage_lease_epoch AS "storageLeaseEpoch",
  runplane.ms_until(storage_lease_expires_at, runplane.app_now()) AS "storageLeaseInMs", runplane.wire_time(deleted_at) AS "deletedAt", copying AS "copying"`;

export interface SessionKey {
  readonly tenantId: string;
  readonly sessionId: string;
}

/** Reads a session without a lock; it may be another one a moment later. */
export function findSession(on: SqlExecutor, { tenantId, sessionId }: SessionKey): Promise<SessionRow | undefined> {
  return maybeRow(
    on,
    SessionRow,
    sql`SELECT ${COLUMNS} FROM runplane.sessions WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`,
  );
}

/** Locks a session's control row; undefined when there is none. The clock is read after the lock is held (OWN-2). */
export async function lockSession(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<SessionRow | undefined> {
  takingLock(tx, 'session', `${tenantId}/${sessionId}`);
  const session = await maybeRow(
    tx,
    SessionRow,
    sql`WITH s AS MATERIALIZED (
          SELECT * FROM runplane.sessions WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE
        )
        SELECT ${COLUMNS} FROM s`,
  );
  if (session !== undefined) tx.feed.raise(session.lastTx);
  return session;
}

/** Locks several sessions of a tenant in the order of locks; those that are not there are left out. */
export async function lockSessions(tx: Tx, tenantId: string, sessionIds: readonly string[]): Promise<SessionRow[]> {
  takingLock(tx, 'session', ...inLockOrder(sessionIds.map((sessionId) => `${tenantId}/${sessionId}`)));
  const sessions = await rows(
    tx,
    SessionRow,
    sql`WITH s AS MATERIALIZED (
          SELECT * FROM runplane.sessions WHERE tenant_id = ${tenantId}::text AND session_id = ANY (${[...sessionIds]}::text[])
          ORDER BY session_id COLLATE "C" FOR NO KEY UPDATE
        )
        SELECT ${COLUMNS} FROM s`,
  );
  for (const { lastTx } of sessions) tx.feed.raise(lastTx);
  return sessions;
}

export interface NewSession extends SessionKey, Partition {
  readonly projectId: string | null;
  readonly backendProfile: string | null;
  /** Nobody sees it before its log has been copied. */
  readonly copying?: boolean | undefined;
  /** Of its log; made of the boundary where nobody gave one. */
  readonly header?: JsonObject | undefined;
  readonly conversationId: string | null;
  readonly threadId: string | null;
  readonly metadata: JsonObject;
  readonly title: string | null;
  /** Where it lives for a time from its last activity, null: its creation is the first one. */
  readonly expiresAt: string | null;
  readonly ttlSeconds: number | null;
  readonly summary?: JsonObject | undefined;
  readonly rolloutSubdir?: string | undefined;
}

/** As the column's default. */
const ROLLOUT_SUBDIR_DEFAULT = 'sessions';

/** Inserts a session with the head of an empty log unless it is there; waits for a twin that is inserting it. False when it was there. */
export async function insertSession(tx: Tx, session: NewSession): Promise<boolean> {
  const {
    tenantId,
    sessionId,
    projectId,
    backendProfile,
    conversationId,
    threadId,
    metadata,
    title,
    expiresAt,
    ttlSeconds,
    partitionKey,
    shard,
    summary = {},
    rolloutSubdir = ROLLOUT_SUBDIR_DEFAULT,
    header = headerOfBoundary(session),
    copying = false,
  } = session;
  takingLock(tx, 'newKey', newKeyOf.session(tenantId, sessionId));
  const inserted = await rows(
    tx,
    done,
    sql`
    WITH s AS (
    INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, conversation_id, thread_id, metadata, title,
      expires_at, ttl_seconds, partition_key, shard, last_activity_at, summary, rollout_subdir, last_tx, changed_tx, copying,
      deleted_at)
    VALUES (${tenantId}::text, ${sessionId}::text, ${projectId}::text, ${backendProfile}::text, ${conversationId}::text, ${threadId}::text,
      ${JSON.stringify(metadata)}::jsonb, ${title}::text, coalesce(${expiresAt}::timestamptz, runplane.app_now() + ${ttlSeconds}::int * interval '1 second'), ${ttlSeconds}::int,
      ${partitionKey}::text, ${shard}::smallint, runplane.app_now(), ${JSON.stringify(summary)}::jsonb, ${rolloutSubdir}::text,
      ${feedTx}, ${feedTx}, ${copying}::bool, CASE WHEN ${copying}::bool THEN runplane.app_now() END)
    ON CONFLICT (tenant_id, session_id) DO NOTHING
    RETURNING tenant_id, session_id, project_id, partition_key, shard, last_tx, created_at, copying, deleted_at
    ), h AS (${headOfNewSession({ header, incarnation: newIncarnation(), viewsVersion: VIEWS_VERSION })})
    SELECT 1 AS "done" FROM s`,
  );
  if (inserted.length === 0) return false;
  for (const rank of ['session', 'sessionHead'] as const) insertedRow(tx, rank, `${tenantId}/${sessionId}`);
  await goOnFromEarlierLives(tx, { tenantId, sessionId });
  return true;
}

/**
 * Epochs and places in the feed go on from those of the id's earlier lives: whoever held a lease or a claim then holds none now (OWN-1), and events of this life
 * come behind theirs (FEED-1). By a statement of its own: where the insert has waited for the erasure of the last one, it does not see its tombstone.
 */
async function goOnFromEarlierLives(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<void> {
  const own = sql`o.tenant_id = ${tenantId}::text AND o.session_id = ${sessionId}::text`;
  await rows(
    tx,
    done,
    sql`WITH t AS MATERIALIZED (
          SELECT last_tx, lease_epoch, claim_epoch
          FROM (SELECT max(last_tx) AS last_tx, max(lease_epoch) AS lease_epoch, max(claim_epoch) AS claim_epoch FROM runplane.session_tombstones o WHERE ${own}) m
          WHERE last_tx IS NOT NULL
        ), s AS (UPDATE runplane.sessions o SET last_tx = greatest(o.last_tx, t.last_tx) FROM t WHERE ${own})
        UPDATE runplane.session_heads o SET last_tx = greatest(o.last_tx, t.last_tx), lease_epoch = t.lease_epoch, claim_epoch = t.claim_epoch
        FROM t WHERE ${own} RETURNING 1 AS "done"`,
  );
}

/** Names one life of a session's id: made again after its deletion, it is another one. */
const newIncarnation = (): string => randomUUID().replaceAll('-', '');

/** The header of a session that its first run has made, or a caller who knows of no logs. */
export function headerOfBoundary({
  sessionId,
  projectId,
  backendProfile,
}: Pick<NewSession, 'sessionId' | 'projectId' | 'backendProfile'>): JsonObject {
  return { id: sessionId, ...(projectId === null ? {} : { projectId }), ...(backendProfile === null ? {} : { backendProfile }) };
}

/** Gives a locked session without project or profile those of its first run; they are its boundary from then on. */
export async function writeBoundary(
  tx: Tx,
  { tenantId, sessionId, projectId, backendProfile }: SessionKey & { projectId: string; backendProfile: string },
): Promise<void> {
  takingLock(tx, 'sessionHead', `${tenantId}/${sessionId}`);
  await one(
    tx,
    sql`WITH s AS (
          UPDATE runplane.sessions SET project_id = coalesce(project_id, ${projectId}::text), backend_profile = coalesce(backend_profile, ${backendProfile}::text),
            ${changeSession(tx)}
          WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING tenant_id, session_id, project_id
        )
        UPDATE runplane.session_heads h SET project_id = s.project_id FROM s
        WHERE (h.tenant_id, h.session_id) = (s.tenant_id, s.session_id) RETURNING 1 AS "done"`,
  );
}

// The control row carries the feed number of whoever held it, so that the runs of one session stay in order in the feed (FEED-1).
const note = (tx: Tx) => sql`last_tx = greatest(last_tx, ${String(tx.feed.value)}::bigint, ${feedTx})`;

// A session with a time to live lives on from its last activity: what its runs do, not what is noted about it.
const touch = (tx: Tx) => sql`${note(tx)}, updated_at = runplane.app_now(), last_activity_at = runplane.app_now(),
  expires_at = CASE WHEN ttl_seconds IS NULL THEN expires_at ELSE runplane.app_now() + ttl_seconds * interval '1 second' END`;

/**
 * The one place where a version moves. `changed_tx` says under which feed number: the list of changes is in its order and stays below the
 * horizon, so that no change can appear behind a reader that has passed. It never falls, and a transaction that raises nothing is still open.
 */
const moveVersion = sql`version = version + 1, changed_tx = greatest(changed_tx, ${feedTx})`;

/** For writes of sessions that are no activity of its runs. */
export const changeSession = (tx: Tx) => sql`${moveVersion}, ${note(tx)}, updated_at = runplane.app_now()`;

/** Fences whoever is deleting the storage: a hold that is taken away moves the epoch (OWN-1). */
export const takeStorageLease = sql`storage_lease_epoch = storage_lease_epoch + (storage_lease_owner IS NOT NULL)::int,
  storage_lease_owner = NULL, storage_lease_expires_at = NULL`;

/** Notes the newest run of a locked session; readers see no other session for it, so the version stays. */
export async function writeLastRun(tx: Tx, { tenantId, sessionId, runId }: SessionKey & { runId: string }): Promise<void> {
  await one(
    tx,
    sql`UPDATE runplane.sessions SET last_run_id = ${runId}::text, ${takeStorageLease}, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

/** Gives the free session to a turn. The guard is the invariant: nobody takes over an active pair by overwriting it (TURN-1). */
export async function writeTurnStarted(
  tx: Tx,
  { tenantId, sessionId, runId, commandId, title }: SessionKey & { runId: string; commandId: string; title: string | null },
): Promise<void> {
  await one(
    tx,
    sql`UPDATE runplane.sessions SET execution_state = 'running', active_run_id = ${runId}::text, active_command_id = ${commandId}::text,
          last_run_id = ${runId}::text, last_command_id = ${commandId}::text, terminal_status = NULL, failure_kind = NULL,
          title = coalesce(title, ${title}::text), ${takeStorageLease}, ${moveVersion}, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND active_run_id IS NULL RETURNING 1 AS "done"`,
  );
}

/** Shows a steer of the session's open turn; the turn keeps the session. */
export async function writeTurnSteered(
  tx: Tx,
  { tenantId, sessionId, runId, commandId }: SessionKey & { runId: string; commandId: string },
): Promise<void> {
  await one(
    tx,
    sql`UPDATE runplane.sessions SET last_run_id = ${runId}::text, last_command_id = ${commandId}::text, ${moveVersion}, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND active_run_id = ${runId}::text RETURNING 1 AS "done"`,
  );
}

/** Notes on a locked session how far the feed has come with a run of it that does not hold it: its next run must not stand before that. */
export async function writeFeedNumber(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<void> {
  await one(
    tx,
    sql`UPDATE runplane.sessions SET ${note(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

const EndedTurn = z.object({ turnWaits: column.bool });

/**
 * Frees the locked session when it still belongs to this run (and command, when one is named): ending an old run must not make the session look
 * free while another turn runs. False when it belongs to another. A turn at the head of its queue is called: session head → submission head.
 */
export async function writeTurnEnded(
  tx: Tx,
  {
    tenantId,
    sessionId,
    runId,
    commandId,
    terminalStatus,
    failureKind,
  }: SessionKey & { runId: string; commandId: string | null; terminalStatus: string; failureKind: string | null },
): Promise<boolean> {
  const [ended] = await rows(
    tx,
    EndedTurn,
    sql`UPDATE runplane.sessions SET execution_state = 'terminal', active_run_id = NULL, active_command_id = NULL,
          last_run_id = ${runId}::text, last_command_id = coalesce(${commandId}::text, last_command_id),
          terminal_status = ${terminalStatus}::text, failure_kind = ${failureKind}::text, ${moveVersion}, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND active_run_id = ${runId}::text
          AND (${commandId}::text IS NULL OR active_command_id = ${commandId}::text)
        RETURNING EXISTS (
          SELECT FROM runplane.submission_heads h WHERE h.tenant_id = ${tenantId}::text AND h.session_id = ${sessionId}::text AND h.kind = ${QUEUED_TURN_KIND}::text
        ) AS "turnWaits"`,
  );
  if (ended?.turnWaits === true) await callQueuedTurn(tx, { tenantId, sessionId });
  return ended !== undefined;
}

/** Writes what a finished turn learned of the backend's thread; only while no other open run owns the session. */
export async function writeThread(
  tx: Tx,
  { tenantId, sessionId, runId, threadId, turnId }: SessionKey & { runId: string; threadId: string; turnId: string | null },
): Promise<boolean> {
  const lastTurn = turnId === null ? {} : { lastTurnId: turnId };
  const written = await rows(
    tx,
    done,
    sql`UPDATE runplane.sessions SET thread_id = ${threadId}::text, metadata = metadata || ${JSON.stringify(lastTurn)}::jsonb,
          last_run_id = coalesce(last_run_id, ${runId}::text), ${moveVersion}, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND (active_run_id IS NULL OR active_run_id = ${runId}::text)
        RETURNING 1 AS "done"`,
  );
  return written.length === 1;
}

/**
 * Takes in activity that did not write the session's row: its time, and the end of a session that lives for a time from it. Sessions that
 * somebody has locked are passed over. Returns how many were behind. No version moves.
 */
export async function foldActivity(on: SqlExecutor, activities: readonly (SessionKey & { readonly time: string })[]): Promise<number> {
  const folded = await rows(
    on,
    done,
    sql`WITH behind AS MATERIALIZED (
          SELECT s.tenant_id, s.session_id, a.time
          FROM unnest(${activities.map(({ tenantId }) => tenantId)}::text[], ${activities.map(({ sessionId }) => sessionId)}::text[],
            ${activities.map(({ time }) => time)}::timestamptz[]) a (tenant_id, session_id, time)
          JOIN runplane.sessions s ON s.tenant_id = a.tenant_id AND s.session_id = a.session_id
          WHERE s.last_activity_at < a.time FOR NO KEY UPDATE OF s SKIP LOCKED
        )
        UPDATE runplane.sessions t SET last_activity_at = greatest(t.last_activity_at, behind.time),
          expires_at = CASE WHEN t.ttl_seconds IS NULL THEN t.expires_at ELSE greatest(t.expires_at, behind.time + t.ttl_seconds * interval '1 second') END
        FROM behind WHERE t.tenant_id = behind.tenant_id AND t.session_id = behind.session_id RETURNING 1 AS "done"`,
  );
  return folded.length;
}

/** What a call by hand changes of a session. */
export interface SessionContent {
  readonly conversationId: string | null;
  readonly threadId: string | null;
  readonly metadata: JsonObject;
  readonly summary: JsonObject;
  readonly title: string | null;
  readonly expiresAt: string | null;
  /** The end is the time to live from this moment. */
  readonly livesFromNow: boolean;
  readonly ttlSeconds: number | null;
  readonly rolloutSubdir: string;
}

/** Writes what was decided for a locked session. */
export async function writeSession(tx: Tx, { tenantId, sessionId }: SessionKey, content: SessionContent): Promise<void> {
  const { conversationId, threadId, metadata, summary, title, expiresAt, livesFromNow, ttlSeconds, rolloutSubdir } = content;
  const end = livesFromNow ? sql`runplane.app_now() + ${ttlSeconds}::int * interval '1 second'` : sql`${expiresAt}::timestamptz`;
  await one(
    tx,
    sql`UPDATE runplane.sessions SET conversation_id = ${conversationId}::text, thread_id = ${threadId}::text,
          metadata = ${JSON.stringify(metadata)}::jsonb, summary = ${JSON.stringify(summary)}::jsonb, title = ${title}::text, expires_at = ${end},
          ttl_seconds = ${ttlSeconds}::int, rollout_subdir = ${rolloutSubdir}::text, ${changeSession(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

/** Gives a locked session another title. */
export async function writeTitle(tx: Tx, { tenantId, sessionId }: SessionKey, title: string): Promise<void> {
  await one(
    tx,
    sql`UPDATE runplane.sessions SET title = ${title}::text, ${changeSession(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

export async function one(tx: Tx, statement: ReturnType<typeof sql>): Promise<void> {
  const written = await rows(tx, done, statement);
  if (written.length !== 1) throw new Error(`a write to one locked session touched ${written.length} rows`);
}
