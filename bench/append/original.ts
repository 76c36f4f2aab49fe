import { newId } from '@runplane/contracts';
import type pg from 'pg';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { openPlainPool } from '../support/store';
import { payloadOf } from './payload';

// The way of the store that this project was written to replace: a transaction of ten statements for each event. Its tables are made here
// with its columns, keys and indexes; the statements are its steps in its order, each prepared and in its cheapest form (of the session only
// the columns that change are written). Nothing is added.

const TABLES = `
CREATE SCHEMA IF NOT EXISTS bench_original;
CREATE TABLE IF NOT EXISTS bench_original.agentrun_runs (
  id text PRIMARY KEY, tenant_id text NOT NULL, project_id text NOT NULL, workspace_ref jsonb NOT NULL, session_ref jsonb, resource_bundle_ref jsonb,
  provider_id text NOT NULL, backend_profile text NOT NULL, execution_policy jsonb NOT NULL, trace_sink jsonb, status text NOT NULL,
  terminal_status text, failure_kind text, failure_message text, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
  claimed_by text, lease_expires_at timestamptz, cancel_epoch integer NOT NULL DEFAULT 0, cancel_request_id text, cancel_requested_at timestamptz, cancel_reason text);
CREATE INDEX IF NOT EXISTS agentrun_runs_status_idx ON bench_original.agentrun_runs (status, updated_at);
CREATE INDEX IF NOT EXISTS agentrun_runs_session_idx ON bench_original.agentrun_runs ((session_ref ->> 'sessionId'), updated_at DESC);
CREATE TABLE IF NOT EXISTS bench_original.agentrun_commands (
  id text PRIMARY KEY, run_id text NOT NULL REFERENCES bench_original.agentrun_runs ON DELETE CASCADE, seq integer NOT NULL, type text NOT NULL,
  payload jsonb NOT NULL, payload_hash text NOT NULL, idempotency_key text, state text NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL,
  acknowledged_at timestamptz, cancel_epoch integer NOT NULL DEFAULT 0, cancel_request_id text, cancel_requested_at timestamptz, cancel_reason text, UNIQUE (run_id, seq));
CREATE UNIQUE INDEX IF NOT EXISTS agentrun_commands_run_idempotency_key_idx ON bench_original.agentrun_commands (run_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX IF NOT EXISTS agentrun_commands_run_seq_idx ON bench_original.agentrun_commands (run_id, seq);
CREATE TABLE IF NOT EXISTS bench_original.agentrun_events (
  id text PRIMARY KEY, run_id text NOT NULL REFERENCES bench_original.agentrun_runs ON DELETE CASCADE, seq integer NOT NULL, type text NOT NULL,
  payload jsonb NOT NULL, created_at timestamptz NOT NULL, UNIQUE (run_id, seq));
CREATE INDEX IF NOT EXISTS agentrun_events_run_seq_idx ON bench_original.agentrun_events (run_id, seq);
CREATE TABLE IF NOT EXISTS bench_original.agentrun_sessions (
  session_id text PRIMARY KEY, tenant_id text NOT NULL, project_id text NOT NULL, backend_profile text NOT NULL, conversation_id text, thread_id text,
  metadata jsonb NOT NULL DEFAULT '{}', created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL, expires_at timestamptz, version bigint NOT NULL DEFAULT 1,
  execution_state text NOT NULL DEFAULT 'idle', last_run_id text, last_command_id text, active_run_id text, active_command_id text,
  last_event_seq integer NOT NULL DEFAULT 0, terminal_status text, failure_kind text, title text, summary jsonb NOT NULL DEFAULT '{}', last_activity_at timestamptz,
  storage_kind text NOT NULL DEFAULT 'none', storage_pvc_name text, storage_namespace text, storage_pvc_phase text, storage_sha256 text, storage_size_bytes bigint,
  storage_files_count integer, storage_updated_at timestamptz, storage_evicted_at timestamptz, codex_rollout_subdir text NOT NULL DEFAULT 'sessions');
CREATE INDEX IF NOT EXISTS agentrun_sessions_tenant_project_idx ON bench_original.agentrun_sessions (tenant_id, project_id, backend_profile, updated_at);
CREATE INDEX IF NOT EXISTS agentrun_sessions_control_idx ON bench_original.agentrun_sessions (execution_state, backend_profile, updated_at DESC);
CREATE INDEX IF NOT EXISTS agentrun_sessions_version_idx ON bench_original.agentrun_sessions (version, updated_at DESC);
CREATE INDEX IF NOT EXISTS agentrun_sessions_storage_pvc_idx ON bench_original.agentrun_sessions (storage_pvc_name) WHERE storage_pvc_name IS NOT NULL;
CREATE INDEX IF NOT EXISTS agentrun_sessions_storage_kind_idx ON bench_original.agentrun_sessions (storage_kind, expires_at);
CREATE SEQUENCE IF NOT EXISTS bench_original.agentrun_kafka_event_outbox_seq;
CREATE TABLE IF NOT EXISTS bench_original.agentrun_kafka_event_outbox (
  id text PRIMARY KEY, outbox_seq bigint NOT NULL UNIQUE, event_id text NOT NULL UNIQUE, run_id text NOT NULL, source_seq integer NOT NULL, topic text NOT NULL,
  partition_key text NOT NULL, value jsonb NOT NULL, headers jsonb NOT NULL, attempt_count integer NOT NULL DEFAULT 0, lease_owner text, lease_expires_at timestamptz,
  next_attempt_at timestamptz NOT NULL, last_error jsonb, delivered_at timestamptz, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL);
CREATE INDEX IF NOT EXISTS agentrun_kafka_event_outbox_pending_key_order_idx
  ON bench_original.agentrun_kafka_event_outbox (topic, partition_key, outbox_seq) WHERE delivered_at IS NULL;`;

const LOCK_RUN = 'SELECT * FROM bench_original.agentrun_runs WHERE id = $1 FOR UPDATE';
const NEXT_SEQ = 'SELECT coalesce(max(seq), 0) + 1 AS seq FROM bench_original.agentrun_events WHERE run_id = $1';
const INSERT_EVENT =
  'INSERT INTO bench_original.agentrun_events (id, run_id, seq, type, payload, created_at) VALUES ($1, $2, $3, $4, $5, $6)';
const NOTIFY = `SELECT pg_notify('agentrun_run_change', $1)`;
const LOCK_SESSION = 'SELECT * FROM bench_original.agentrun_sessions WHERE session_id = $1 FOR UPDATE';
const UPDATE_SESSION =
  'UPDATE bench_original.agentrun_sessions SET last_event_seq = $2, last_activity_at = $3, updated_at = $3 WHERE session_id = $1';
const FIND_COMMAND = 'SELECT * FROM bench_original.agentrun_commands WHERE id = $1 AND run_id = $2';
const LOCK_KEY = 'SELECT pg_advisory_xact_lock(hashtext($1), hashtext($2))';
const NEXT_OUTBOX_SEQ = `SELECT nextval('bench_original.agentrun_kafka_event_outbox_seq') AS seq`;
const INSERT_OUTBOX = `INSERT INTO bench_original.agentrun_kafka_event_outbox (id, outbox_seq, event_id, run_id, source_seq, topic, partition_key, value, headers,
    next_attempt_at, last_error, created_at, updated_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'null', $10, $10)`;

const TOPIC = 'agentrun.events';

interface Place {
  readonly runId: string;
  readonly sessionId: string;
  readonly commandId: string;
}

export async function prepareOriginal({ url, admin, callers }: CaseSetting): Promise<AppendCase> {
  await admin.query(TABLES);
  const pool = openPlainPool(url, callers);
  const places = Array.from({ length: callers }, () => ({ runId: newId('run'), sessionId: newId('ses'), commandId: newId('cmd') }));
  for (const place of places) await insertPlace(admin, place);
  const runIds = [places.map((place) => place.runId)];
  return {
    callers: places.map((place) => () => append(pool, place)),
    rowsWritten: () =>
      countRows(
        admin,
        {
          agentrun_events: 'SELECT count(*) AS n FROM bench_original.agentrun_events WHERE run_id = ANY ($1)',
          agentrun_kafka_event_outbox: 'SELECT count(*) AS n FROM bench_original.agentrun_kafka_event_outbox WHERE run_id = ANY ($1)',
          'agentrun_sessions.last_event_seq':
            'SELECT sum(last_event_seq) AS n FROM bench_original.agentrun_sessions WHERE last_run_id = ANY ($1)',
        },
        runIds,
      ),
    close: () => pool.end(),
  };
}

async function insertPlace(admin: pg.Pool, { runId, sessionId, commandId }: Place): Promise<void> {
  await admin.query(
    `INSERT INTO bench_original.agentrun_sessions (session_id, tenant_id, project_id, backend_profile, created_at, updated_at, execution_state, last_run_id, last_command_id,
       active_run_id, active_command_id) VALUES ($1, 'bench', 'bench', 'bench', now(), now(), 'running', $2, $3, $2, $3)`,
    [sessionId, runId, commandId],
  );
  await admin.query(
    `INSERT INTO bench_original.agentrun_runs (id, tenant_id, project_id, workspace_ref, session_ref, provider_id, backend_profile, execution_policy, status, created_at, updated_at, claimed_by)
     VALUES ($1, 'bench', 'bench', '{}', jsonb_build_object('sessionId', $2::text), 'bench', 'bench', '{}', 'claimed', now(), now(), 'runner')`,
    [runId, sessionId],
  );
  await admin.query(
    `INSERT INTO bench_original.agentrun_commands (id, run_id, seq, type, payload, payload_hash, state, created_at, updated_at)
     VALUES ($1, $2, 1, 'turn', '{"text":"go"}', 'hash', 'acknowledged', now(), now())`,
    [commandId, runId],
  );
}

async function append(pool: pg.Pool, { runId, sessionId, commandId }: Place): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query({ name: 'begin', text: 'BEGIN' });
    await client.query({ name: 'lock-run', text: LOCK_RUN, values: [runId] });
    const { seq } = firstOf(await client.query<{ seq: number }>({ name: 'next-seq', text: NEXT_SEQ, values: [runId] }));
    const [eventId, time] = [newId('evt'), new Date()];
    const payload = payloadOf(commandId);
    await client.query({
      name: 'insert-event',
      text: INSERT_EVENT,
      values: [eventId, runId, seq, 'assistant_message', JSON.stringify(payload), time],
    });
    await client.query({ name: 'notify', text: NOTIFY, values: [runId] });
    await client.query({ name: 'lock-session', text: LOCK_SESSION, values: [sessionId] });
    await client.query({ name: 'update-session', text: UPDATE_SESSION, values: [sessionId, seq, time] });
    await client.query({ name: 'find-command', text: FIND_COMMAND, values: [commandId, runId] });
    await client.query({ name: 'lock-key', text: LOCK_KEY, values: [TOPIC, sessionId] });
    const outbox = firstOf(await client.query<{ seq: string }>({ name: 'next-outbox-seq', text: NEXT_OUTBOX_SEQ }));
    const value = JSON.stringify({ eventId, runId, seq, type: 'assistant_message', payload, createdAt: time });
    const record = [newId('box'), outbox.seq, eventId, runId, seq, TOPIC, sessionId, value, '{}', time];
    await client.query({ name: 'insert-outbox', text: INSERT_OUTBOX, values: record });
    await client.query({ name: 'commit', text: 'COMMIT' });
    client.release();
  } catch (error) {
    client.release(error as Error);
    throw error;
  }
}

function firstOf<T extends pg.QueryResultRow>({ rows }: pg.QueryResult<T>): T {
  const [row] = rows;
  if (row === undefined) throw new Error('a row was expected');
  return row;
}
