import { SESSION_STATES, type JsonObject, type Partition } from '@runplane/contracts';
import { column, insertedRow, maybeRow, newKeyOf, rows, sql, takingLock, type SqlExecutor, type Tx } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';

const done = z.object({ done: column.int });

const SessionRow = z.object({
  tenantId: column.text,
  sessionId: column.text,
  projectId: column.text,
  backendProfile: column.text,
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
});
export type SessionRow = z.infer<typeof SessionRow>;

const COLUMNS = sql`
  tenant_id AS "tenantId", session_id AS "sessionId", project_id AS "projectId", backend_profile AS "backendProfile",
  conversation_id AS "conversationId", thread_id AS "threadId", metadata::text AS "metadata", title AS "title",
  execution_state::text AS "executionState", active_run_id AS "activeRunId", active_command_id AS "activeCommandId",
  last_run_id AS "lastRunId", last_command_id AS "lastCommandId", terminal_status AS "terminalStatus", failure_kind AS "failureKind",
  version::text AS "version", last_tx::text AS "lastTx", runplane.wire_time(created_at) AS "createdAt", runplane.wire_time(updated_at) AS "updatedAt",
  runplane.wire_time(last_activity_at) AS "lastActivityAt", runplane.wire_time(expires_at) AS "expiresAt"`;

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

/** Locks a session's control row; undefined when there is none. */
export async function lockSession(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<SessionRow | undefined> {
  takingLock(tx, 'session', `${tenantId}/${sessionId}`);
  const session = await maybeRow(
    tx,
    SessionRow,
    sql`SELECT ${COLUMNS} FROM runplane.sessions WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE`,
  );
  if (session !== undefined) tx.feed.raise(session.lastTx);
  return session;
}

export interface NewSession extends SessionKey, Partition {
  readonly projectId: string;
  readonly backendProfile: string;
  readonly conversationId: string | null;
  readonly threadId: string | null;
  readonly metadata: JsonObject;
  readonly title: string | null;
  readonly expiresAt: string | null;
  readonly ttlSeconds: number | null;
}

/** Inserts a session unless it is there; waits for a twin that is inserting it. False when it was there. */
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
  } = session;
  takingLock(tx, 'newKey', newKeyOf.session(tenantId, sessionId));
  const inserted = await rows(
    tx,
    done,
    sql`
    INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, conversation_id, thread_id, metadata, title,
      expires_at, ttl_seconds, partition_key, shard, last_activity_at)
    VALUES (${tenantId}::text, ${sessionId}::text, ${projectId}::text, ${backendProfile}::text, ${conversationId}::text, ${threadId}::text,
      ${JSON.stringify(metadata)}::jsonb, ${title}::text, ${expiresAt}::timestamptz, ${ttlSeconds}::int, ${partitionKey}::text, ${shard}::smallint,
      runplane.app_now())
    ON CONFLICT (tenant_id, session_id) DO NOTHING
    RETURNING 1 AS "done"`,
  );
  if (inserted.length === 0) return false;
  insertedRow(tx, 'session', `${tenantId}/${sessionId}`);
  return true;
}

// The control row carries the feed number of whoever held it, so that the runs of one session stay in order in the feed (FEED-1). A
// session with a time to live lives on from its last activity.
const touch = (tx: Tx) => sql`
  last_tx = greatest(last_tx, ${String(tx.feed.value)}::bigint, ${feedTx}), updated_at = runplane.app_now(), last_activity_at = runplane.app_now(),
  expires_at = CASE WHEN ttl_seconds IS NULL THEN expires_at ELSE runplane.app_now() + ttl_seconds * interval '1 second' END`;

/** Notes the newest run of a locked session; readers see no other session for it, so the version stays. */
export async function writeLastRun(tx: Tx, { tenantId, sessionId, runId }: SessionKey & { runId: string }): Promise<void> {
  await one(
    tx,
    sql`UPDATE runplane.sessions SET last_run_id = ${runId}::text, ${touch(tx)}
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
          title = coalesce(title, ${title}::text), version = version + 1, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND active_run_id IS NULL RETURNING 1 AS "done"`,
  );
}

/** Notes on a locked session how far the feed has come with a run of it that does not hold it: its next run must not stand before that. */
export async function writeFeedNumber(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<void> {
  await one(
    tx,
    sql`UPDATE runplane.sessions SET last_tx = greatest(last_tx, ${String(tx.feed.value)}::bigint, ${feedTx})
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text RETURNING 1 AS "done"`,
  );
}

/**
 * Frees the session when it still belongs to this run (and command, when one is named): ending an old run must not make the session look
 * free while another turn runs. False when it belongs to another.
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
  const freed = await rows(
    tx,
    done,
    sql`UPDATE runplane.sessions SET execution_state = 'terminal', active_run_id = NULL, active_command_id = NULL,
          last_run_id = ${runId}::text, last_command_id = coalesce(${commandId}::text, last_command_id),
          terminal_status = ${terminalStatus}::text, failure_kind = ${failureKind}::text, version = version + 1, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND active_run_id = ${runId}::text
          AND (${commandId}::text IS NULL OR active_command_id = ${commandId}::text)
        RETURNING 1 AS "done"`,
  );
  return freed.length === 1;
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
          last_run_id = coalesce(last_run_id, ${runId}::text), version = version + 1, ${touch(tx)}
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND (active_run_id IS NULL OR active_run_id = ${runId}::text)
        RETURNING 1 AS "done"`,
  );
  return written.length === 1;
}

async function one(tx: Tx, statement: ReturnType<typeof sql>): Promise<void> {
  const written = await rows(tx, done, statement);
  if (written.length !== 1) throw new Error(`a write to one locked session touched ${written.length} rows`);
}
