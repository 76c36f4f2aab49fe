import { createHash, randomUUID } from 'node:crypto';
import type { JsonObject } from '@runplane/contracts';
import type pg from 'pg';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { openPlainPool } from '../support/store';
import { HISTORY_TYPES, turnsOf, type TurnEvent } from './turn-events';

// The way of the store that this project was written to replace: behind one advisory lock for all sessions, a transaction of seven statements
// and of seven or eight more for each event. Its tables are made here with its columns, keys and indexes; the statements are its steps in its
// order, for the types of event that the benchmark appends. Nothing is added and nothing left out. Its driver prepares what has parameters and
// is repeated, and sends BEGIN and COMMIT as they are.

const TABLES = `
CREATE SCHEMA IF NOT EXISTS bench_session_original;
CREATE TABLE IF NOT EXISTS bench_session_original.sessions (
  session_id text PRIMARY KEY, header_json text NOT NULL, last_sequence bigint NOT NULL DEFAULT -1, created_at_ms bigint NOT NULL, updated_at_ms bigint NOT NULL);
CREATE TABLE IF NOT EXISTS bench_session_original.session_events (
  session_id text NOT NULL REFERENCES bench_session_original.sessions ON DELETE CASCADE, sequence bigint NOT NULL, event_id text NOT NULL UNIQUE, event_type text NOT NULL,
  payload_json text NOT NULL, envelope_json text NOT NULL, recorded_at_ms bigint NOT NULL, PRIMARY KEY (session_id, sequence));
CREATE INDEX IF NOT EXISTS idx_session_events_type ON bench_session_original.session_events (session_id, event_type, sequence);
CREATE TABLE IF NOT EXISTS bench_session_original.session_leases (
  session_id text PRIMARY KEY REFERENCES bench_session_original.sessions ON DELETE CASCADE, owner_id text NOT NULL, generation bigint NOT NULL,
  expires_at_ms bigint NOT NULL, updated_at_ms bigint NOT NULL);
CREATE TABLE IF NOT EXISTS bench_session_original.event_outbox (
  cursor bigserial PRIMARY KEY, event_id text NOT NULL UNIQUE, session_id text NOT NULL REFERENCES bench_session_original.sessions ON DELETE CASCADE,
  sequence bigint NOT NULL, event_type text NOT NULL, payload_json text NOT NULL, recorded_at_ms bigint NOT NULL);
CREATE INDEX IF NOT EXISTS idx_event_outbox_session ON bench_session_original.event_outbox (session_id, cursor);
CREATE TABLE IF NOT EXISTS bench_session_original.session_snapshots (
  session_id text NOT NULL REFERENCES bench_session_original.sessions ON DELETE CASCADE, sequence bigint NOT NULL, snapshot_json text NOT NULL,
  created_at_ms bigint NOT NULL, PRIMARY KEY (session_id, sequence));
CREATE TABLE IF NOT EXISTS bench_session_original.projection_offsets (projector text PRIMARY KEY, cursor bigint NOT NULL, updated_at_ms bigint NOT NULL);
CREATE TABLE IF NOT EXISTS bench_session_original.context_window_projection (
  session_id text NOT NULL REFERENCES bench_session_original.sessions ON DELETE CASCADE, window_id text NOT NULL, previous_window_id text,
  started_sequence bigint NOT NULL, trigger text NOT NULL, PRIMARY KEY (session_id, window_id));
CREATE TABLE IF NOT EXISTS bench_session_original.context_history_projection (
  session_id text NOT NULL REFERENCES bench_session_original.sessions ON DELETE CASCADE, item_id text NOT NULL, window_id text NOT NULL, sequence bigint NOT NULL,
  role text NOT NULL, tool_name text, content text NOT NULL, PRIMARY KEY (session_id, item_id));
CREATE INDEX IF NOT EXISTS idx_context_history_window ON bench_session_original.context_history_projection (session_id, window_id, sequence);`;

// Of each append:
const APPEND_LOCK = 'SELECT pg_advisory_xact_lock($1, $2)';
const LOCK_SESSION = 'SELECT last_sequence FROM bench_session_original.sessions WHERE session_id = $1 FOR UPDATE';
const LOCK_LEASE = 'SELECT owner_id, generation, expires_at_ms FROM bench_session_original.session_leases WHERE session_id = $1 FOR UPDATE';
const DATABASE_TIME = 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms';
// Of each event:
const INSERT_EVENT = `INSERT INTO bench_session_original.session_events (session_id, sequence, event_id, event_type, payload_json, envelope_json, recorded_at_ms)
  VALUES ($1, $2, $3, $4, $5, $6, $7)`;
const INSERT_OUTBOX = `INSERT INTO bench_session_original.event_outbox (event_id, session_id, sequence, event_type, payload_json, recorded_at_ms)
  VALUES ($1, $2, $3, $4, $5, $6) RETURNING cursor`;
const CURRENT_WINDOW = `SELECT window_id FROM bench_session_original.context_window_projection WHERE session_id = $1 ORDER BY started_sequence DESC LIMIT 1`;
const UPSERT_HISTORY = `INSERT INTO bench_session_original.context_history_projection (session_id, item_id, window_id, sequence, role, tool_name, content)
  VALUES ($1, $2, $3, $4, $5, $6, $7)
  ON CONFLICT (session_id, item_id) DO UPDATE SET window_id = excluded.window_id, sequence = excluded.sequence, role = excluded.role,
    tool_name = excluded.tool_name, content = excluded.content`;
const READ_SNAPSHOT =
  'SELECT snapshot_json FROM bench_session_original.session_snapshots WHERE session_id = $1 ORDER BY sequence DESC LIMIT 1';
const DELETE_SNAPSHOTS = 'DELETE FROM bench_session_original.session_snapshots WHERE session_id = $1';
const INSERT_SNAPSHOT =
  'INSERT INTO bench_session_original.session_snapshots (session_id, sequence, snapshot_json, created_at_ms) VALUES ($1, $2, $3, $4)';
const UPSERT_OFFSET = `INSERT INTO bench_session_original.projection_offsets (projector, cursor, updated_at_ms) VALUES ($1, $2, $3)
  ON CONFLICT (projector) DO UPDATE SET cursor = excluded.cursor, updated_at_ms = excluded.updated_at_ms`;
// At the end:
const UPDATE_SESSION = 'UPDATE bench_session_original.sessions SET last_sequence = $2, updated_at_ms = $3 WHERE session_id = $1';

const GENERATION = 1;

export async function prepareOriginal({ url, admin, callers }: CaseSetting, perCall: number): Promise<AppendCase> {
  await admin.query(TABLES);
  const pool = openPlainPool(url, callers);
  const sessionIds = Array.from({ length: callers }, () => `session-${randomUUID()}`);
  for (const sessionId of sessionIds) await insertSession(admin, sessionId);
  return {
    callers: sessionIds.map((sessionId) => {
      const take = turnsOf();
      let expected = 0;
      return async () => {
        await appendFenced(pool, sessionId, take(perCall), expected);
        expected += perCall;
      };
    }),
    rowsWritten: () => countRows(admin, COUNT_ROWS, [sessionIds, HISTORY_TYPES]),
    close: () => pool.end(),
  };
}

const EVENTS_WITHOUT_HISTORY =
  '(SELECT count(*) FROM bench_session_original.session_events WHERE session_id = ANY ($1) AND event_type <> ALL ($2))';
const of = (what: string, from: string): string =>
  `SELECT ${what} AS n FROM bench_session_original.${from} WHERE session_id = ANY ($1) AND $2::text[] IS NOT NULL`;
const COUNT_ROWS = {
  session_events: of('count(*)', 'session_events'),
  event_outbox: of('count(*)', 'event_outbox'),
  'sessions.last_sequence': of('sum(last_sequence + 1)', 'sessions'),
  'session_snapshots.sequence': of('sum(sequence + 1)', 'session_snapshots'),
  'context_history_projection and events that leave none': of(`count(*) + ${EVENTS_WITHOUT_HISTORY}`, 'context_history_projection'),
};

async function insertSession(admin: pg.Pool, sessionId: string): Promise<void> {
  const now = Date.now();
  await admin.query(
    'INSERT INTO bench_session_original.sessions (session_id, header_json, created_at_ms, updated_at_ms) VALUES ($1, $2, $3, $3)',
    [sessionId, JSON.stringify({ id: sessionId }), now],
  );
  await admin.query(
    'INSERT INTO bench_session_original.session_leases (session_id, owner_id, generation, expires_at_ms, updated_at_ms) VALUES ($1, $2, $3, $4, $5)',
    [sessionId, 'worker', GENERATION, now + 86_400_000, now],
  );
}

async function appendFenced(pool: pg.Pool, sessionId: string, events: readonly TurnEvent[], expected: number): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await client.query({ name: 'append-lock', text: APPEND_LOCK, values: [716901, 2] });
    const session = await client.query<{ last_sequence: string }>({ name: 'lock-session', text: LOCK_SESSION, values: [sessionId] });
    if (Number(firstOf(session).last_sequence) + 1 !== expected) throw new Error('sequence conflict');
    const lease = firstOf(
      await client.query<{ generation: string; expires_at_ms: string }>({ name: 'lock-lease', text: LOCK_LEASE, values: [sessionId] }),
    );
    const { now_ms } = firstOf(await client.query<{ now_ms: string }>({ name: 'database-time', text: DATABASE_TIME }));
    if (Number(lease.generation) !== GENERATION || Number(lease.expires_at_ms) <= Number(now_ms)) throw new Error('fencing token rejected');
    for (const [i, event] of events.entries()) await appendEvent(client, sessionId, expected + i, event);
    await client.query({ name: 'update-session', text: UPDATE_SESSION, values: [sessionId, expected + events.length - 1, Date.now()] });
    await client.query('COMMIT');
    client.release();
  } catch (error) {
    client.release(error as Error);
    throw error;
  }
}

async function appendEvent(client: pg.PoolClient, sessionId: string, sequence: number, event: TurnEvent): Promise<void> {
  const { type, data, turnId, stepId } = event;
  const time = Date.now();
  const [eventId, payload] = [eventIdOf(sessionId, sequence), JSON.stringify(data)];
  const envelope = JSON.stringify({ sequence, type, time, data, turn_id: turnId, step_id: stepId });
  await client.query({ name: 'insert-event', text: INSERT_EVENT, values: [sessionId, sequence, eventId, type, payload, envelope, time] });
  const outbox = await client.query<{ cursor: string }>({
    name: 'insert-outbox',
    text: INSERT_OUTBOX,
    values: [eventId, sessionId, sequence, type, payload, time],
  });
  const { cursor } = firstOf(outbox);

  const windows = await client.query<{ window_id: string }>({ name: 'current-window', text: CURRENT_WINDOW, values: [sessionId] });
  const history = historyOf(event);
  if (history !== undefined) {
    const { role, toolName, content } = history;
    const windowId = windows.rows[0]?.window_id ?? `legacy-${sessionId}`;
    const item = [sessionId, `item-${sequence}`, windowId, sequence, role, toolName, content];
    await client.query({ name: 'upsert-history', text: UPSERT_HISTORY, values: item });
  }

  const found = await client.query<{ snapshot_json: string }>({ name: 'read-snapshot', text: READ_SNAPSHOT, values: [sessionId] });
  const before = found.rows[0] === undefined ? EMPTY_SNAPSHOT : (JSON.parse(found.rows[0].snapshot_json) as Snapshot);
  const after = { ...foldSnapshot(before, event), sequence, durableCursor: Number(cursor), lastEventType: type };
  await client.query({ name: 'delete-snapshots', text: DELETE_SNAPSHOTS, values: [sessionId] });
  await client.query({ name: 'insert-snapshot', text: INSERT_SNAPSHOT, values: [sessionId, sequence, JSON.stringify(after), time] });

  await client.query({ name: 'upsert-offset', text: UPSERT_OFFSET, values: ['runtime-inline', cursor, Date.now()] });
}

const URL_NAMESPACE = Buffer.from('6ba7b8119dad11d180b400c04fd430c8', 'hex');

/** UUID version 5 of session id and sequence. */
function eventIdOf(sessionId: string, sequence: number): string {
  const digest = createHash('sha1').update(URL_NAMESPACE).update(`qi-pi:${sessionId}:${sequence}`).digest().subarray(0, 16);
  digest[6] = ((digest[6] ?? 0) & 0x0f) | 0x50;
  digest[8] = ((digest[8] ?? 0) & 0x3f) | 0x80;
  return digest.toString('hex');
}

interface HistoryItem {
  readonly role: string;
  readonly toolName: string | null;
  readonly content: string;
}

function historyOf({ type, data }: TurnEvent): HistoryItem | undefined {
  switch (type) {
    case 'user/message':
      return { role: 'user', toolName: null, content: textOf(data) };
    case 'assistant/message':
      return { role: 'assistant', toolName: null, content: textOf(data['message']) };
    case 'tool/call':
      return { role: 'tool', toolName: textOf(data['name']), content: textOf(data['arguments']) };
    case 'tool/result':
      return { role: 'tool', toolName: null, content: textOf(data['message']) };
    default:
      return undefined;
  }
}

const TEXT_KEYS = ['content', 'text', 'name', 'arguments', 'message'];

function textOf(value: unknown): string {
  if (typeof value === 'string') return value;
  if (Array.isArray(value)) return value.map(textOf).join('\n');
  if (typeof value !== 'object' || value === null) return '';
  return Object.entries(value)
    .filter(([key]) => TEXT_KEYS.includes(key))
    .map(([, inner]) => textOf(inner))
    .join('\n');
}

interface Snapshot extends JsonObject {
  activeTurnId: string | null;
  activeStepId: string | null;
  driverState: string;
}

const EMPTY_SNAPSHOT: Snapshot = {
  schemaVersion: 1,
  activeTurnId: null,
  activeStepId: null,
  driverState: 'idle',
  inbox: { nextTurn: [], nextStep: [] },
  hasInboxSplices: false,
  pendingApprovalIds: [],
  pendingUserInputIds: [],
  contextWindowId: null,
};

function foldSnapshot(before: Snapshot, { type, turnId, stepId }: TurnEvent): Snapshot {
  switch (type) {
    case 'turn/start':
      return { ...before, activeTurnId: turnId, driverState: 'turn_started' };
    case 'step/start':
      return { ...before, activeStepId: stepId, driverState: 'step_preparing' };
    case 'request/context':
      return { ...before, driverState: 'model_streaming' };
    case 'tool/call':
      return { ...before, driverState: 'tool_running' };
    case 'step/end':
      return { ...before, activeStepId: null, driverState: 'step_completed' };
    case 'turn/end': {
      const ended = before.activeTurnId === turnId ? { activeTurnId: null, activeStepId: null } : {};
      return { ...before, ...ended, driverState: 'turn_completed' };
    }
    default:
      return before;
  }
}

function firstOf<T extends pg.QueryResultRow>({ rows }: pg.QueryResult<T>): T {
  const [row] = rows;
  if (row === undefined) throw new Error('a row was expected');
  return row;
}
