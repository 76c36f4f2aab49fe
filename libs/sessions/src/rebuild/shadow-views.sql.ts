import { column, emptySql, joinSql, oneRow, rawSql, rows, sql, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';

// Rows of views that are being built stand in the tables of the live ones, beside them, under a tenant id that no tenant can have. Whoever reads by
// tenant cannot see them; whoever reads over all tenants leaves them out (NO_SHADOW).

/** Stands before the tenant's id; identifiers have no control characters. */
const MARK = '\u0001';

export const shadowOf = (tenantId: string): string => `${MARK}${tenantId}`;

/** For statements over all tenants: rows of rebuilds under way are nobody's. */
export const NO_SHADOW = sql`ascii(tenant_id) >= 32`;

interface ViewTable {
  readonly table: string;
  /** Its key behind tenant and session. */
  readonly key: readonly string[];
  /** What else the log says. */
  readonly columns: readonly string[];
  /** The event by which a row is found in parts of a long log. */
  readonly place: string;
  /** Columns that no event tells, with what the live row has of them; a row that is not there has the column's default. */
  readonly kept?: Readonly<Record<string, string>>;
  /** Live rows that the log does not speak of: they stay as they are. */
  readonly foreign?: string;
}

/** Every table of views of a session's log. Its columns are all of the table's, by test. */
export const VIEW_TABLES: readonly ViewTable[] = [
  { table: 'channel_bindings', key: ['address'], place: 'sequence', columns: ['sequence', 'data'] },
  { table: 'channel_inbounds', key: ['address', 'message_id'], place: 'sequence', columns: ['sequence', 'data', 'created_at'] },
  { table: 'channel_routes', key: ['turn_id'], place: 'sequence', columns: ['sequence', 'source', 'ended_at'] },
  {
    table: 'channel_deliveries',
    key: ['delivery_id'],
    place: 'completed_sequence',
    columns: ['state', 'data', 'error', 'queued_sequence', 'completed_sequence', 'updated_at'],
  },
  {
    table: 'context_windows',
    key: ['window_id'],
    place: 'event_sequence',
    columns: ['previous_window_id', 'started_sequence', 'event_sequence', 'trigger'],
  },
  { table: 'context_notes', key: ['path'], place: 'updated_sequence', columns: ['content', 'updated_sequence'] },
  { table: 'context_history', key: ['sequence'], place: 'sequence', columns: ['window_id', 'role', 'tool_name', 'content'] },
  {
    table: 'approvals',
    key: ['approval_id'],
    place: 'requested_sequence',
    columns: [
      ...['state', 'revision', 'turn_id', 'step_id', 'tool_call_id', 'operation_id', 'tool_name', 'arguments_summary', 'arguments_digest'],
      ...['reason', 'content_hash', 'run_id', 'command_id', 'actor', 'resolution_reason', 'created_at', 'expires_at', 'resolved_at'],
      ...['requested_sequence', 'resolved_sequence'],
    ],
  },
  {
    table: 'input_requests',
    key: ['request_id'],
    place: 'requested_sequence',
    columns: [
      ...['state', 'revision', 'turn_id', 'prompt', 'input_schema', 'content_hash', 'run_id', 'command_id', 'value', 'actor'],
      ...['resolution_reason', 'created_at', 'expires_at', 'resolved_at', 'requested_sequence', 'resolved_sequence'],
    ],
  },
  {
    table: 'submissions',
    key: ['operation_id'],
    place: 'accepted_sequence',
    columns: [
      ...['submission_id', 'kind', 'state', 'payload', 'source', 'content_hash', 'hash_version', 'expected_revision', 'accepted_sequence'],
      ...['place', 'last_error', 'from_event', 'created_at', 'ended_at', 'ended_sequence'],
    ],
    // Claims are the queue's business: no event tells of them.
    kept: { attempts: 'o.attempts', claim_epoch: 'o.claim_epoch' },
    foreign: 'NOT from_event',
  },
  {
    table: 'session_views',
    key: ['key'],
    place: 'sequence',
    columns: ['version', 'sequence', 'applied_sequence', 'stale_reason', 'value'],
  },
];

const counted = z.object({ changed: column.int });
const done = z.object({ done: column.int });

const names = (columns: readonly string[], of = ''): Sql => rawSql(columns.map((name) => `${of}"${name}"`).join(', '));
const tableOf = ({ table }: ViewTable): Sql => rawSql(`runplane.${table}`);
const contentOf = ({ columns, kept = {} }: ViewTable): string[] => [...columns, ...Object.keys(kept)];
/** json has no equality; as text every value has one, and it is exact. */
const asText = (columns: readonly string[], of: string): Sql => rawSql(columns.map((name) => `${of}."${name}"::text`).join(', '));

/** Events whose rows one statement of a switch looks at: some seconds at most, far below what a statement may take. */
const SWITCH_EVENTS = 50_000;

/** A part of a log, by sequences; without a bound it is open. */
interface Part {
  readonly from: number | undefined;
  readonly to: number | undefined;
}

function partsOf(lastSequence: number): Part[] {
  const parts = Math.max(1, Math.ceil((lastSequence + 1) / SWITCH_EVENTS));
  return Array.from({ length: parts }, (_, n) => ({
    from: n === 0 ? undefined : n * SWITCH_EVENTS,
    to: n === parts - 1 ? undefined : (n + 1) * SWITCH_EVENTS,
  }));
}

/**
 * Puts the rows that were built in the place of the live ones; rows that are equal are not touched. Of `session_views` only the keys named are
 * replaced: others belong to programs with other projections. Returns how many rows were removed or written.
 *
 * The session's head must be locked: nobody else writes its views then.
 */
export async function switchViews(
  tx: Tx,
  key: SessionKey,
  { viewKeys, lastSequence }: { viewKeys: readonly string[]; lastSequence: number },
): Promise<number> {
  const usual = await setNestedLoops(tx, 'off');
  await adoptKept(tx, key);
  let changed = 0;
  for (const statement of [removeOther, writeMissing])
    for (const part of partsOf(lastSequence)) changed += (await oneRow(tx, counted, statement(key, viewKeys, part))).changed;
  await setNestedLoops(tx, usual);
  return changed;
}

/**
 * Whether the planner may join by looping, up to the end of the transaction; returns what was so. Without statistics, as on a store that has just
 * begun, it takes a session's rows for one, and would go through all of them for each of them.
 */
async function setNestedLoops(tx: Tx, may: string): Promise<string> {
  const { was } = await oneRow(
    tx,
    z.object({ was: column.text }),
    sql`WITH s AS MATERIALIZED (SELECT current_setting('enable_nestloop') AS was)
        SELECT s.was AS "was" FROM s WHERE set_config('enable_nestloop', ${may}::text, true) IS NOT NULL`,
  );
  return was;
}

/** Rows of a part of the log; one that names no event is in the first. */
function within({ place }: ViewTable, { from, to }: Part, of: string): Sql {
  const at = rawSql(`${of}."${place}"`);
  if (from === undefined) return to === undefined ? emptySql : sql`AND (${at} < ${String(to)}::bigint OR ${at} IS NULL)`;
  return to === undefined
    ? sql`AND ${at} >= ${String(from)}::bigint`
    : sql`AND ${at} >= ${String(from)}::bigint AND ${at} < ${String(to)}::bigint`;
}

/** What no event tells is taken over from the live rows, so that rows compare as a whole. */
async function adoptKept(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<void> {
  for (const view of VIEW_TABLES) {
    if (view.kept === undefined) continue;
    const set = rawSql(
      Object.entries(view.kept)
        .map(([name, value]) => `"${name}" = ${value}`)
        .join(', '),
    );
    await rows(
      tx,
      done,
      sql`UPDATE ${tableOf(view)} s SET ${set} FROM ${tableOf(view)} o
          WHERE s.tenant_id = ${shadowOf(tenantId)}::text AND s.session_id = ${sessionId}::text
            AND o.tenant_id = ${tenantId}::text AND o.session_id = ${sessionId}::text AND ${sameKey(view)}
          RETURNING 1 AS "done"`,
    );
  }
}

const sameKey = ({ key }: ViewTable): Sql => rawSql(key.map((name) => `s."${name}" = o."${name}"`).join(' AND '));

/** Of live rows that a rebuild does not speak of: by the table's rule, and views of other programs. */
function spokenOf(view: ViewTable, viewKeys: readonly string[], of: string): Sql {
  if (view.table === 'session_views') return sql`AND ${rawSql(of)}.key = ANY (${[...viewKeys]}::text[])`;
  return view.foreign === undefined ? emptySql : sql`AND NOT (${rawSql(view.foreign)})`;
}

function removeOther({ tenantId, sessionId }: SessionKey, viewKeys: readonly string[], part: Part): Sql {
  const parts = VIEW_TABLES.map(
    (view) => sql`${rawSql(`removed_${view.table}`)} AS (
      DELETE FROM ${tableOf(view)} o
      WHERE o.tenant_id = ${tenantId}::text AND o.session_id = ${sessionId}::text ${spokenOf(view, viewKeys, 'o')} ${within(view, part, 'o')}
        AND NOT EXISTS (
          SELECT FROM ${tableOf(view)} s
          WHERE s.tenant_id = ${shadowOf(tenantId)}::text AND s.session_id = ${sessionId}::text AND ${sameKey(view)}
            AND (${asText(contentOf(view), 's')}) IS NOT DISTINCT FROM (${asText(contentOf(view), 'o')})
        )
      RETURNING 1)`,
  );
  const sum = rawSql(VIEW_TABLES.map(({ table }) => `(SELECT count(*) FROM removed_${table})`).join(' + '));
  return sql`WITH ${joinSql(parts)} SELECT (${sum})::int AS "changed"`;
}

function writeMissing({ tenantId, sessionId }: SessionKey, viewKeys: readonly string[], part: Part): Sql {
  const parts = VIEW_TABLES.map((view) => {
    const columns = [...view.key, ...contentOf(view)];
    return sql`${rawSql(`written_${view.table}`)} AS (
      INSERT INTO ${tableOf(view)} (tenant_id, session_id, ${names(columns)})
      SELECT ${tenantId}::text, session_id, ${names(columns, 's.')} FROM ${tableOf(view)} s
      WHERE s.tenant_id = ${shadowOf(tenantId)}::text AND s.session_id = ${sessionId}::text ${
        view.table === 'session_views' ? spokenOf(view, viewKeys, 's') : emptySql
      } ${within(view, part, 's')}
        AND NOT EXISTS (SELECT FROM ${tableOf(view)} o WHERE o.tenant_id = ${tenantId}::text AND o.session_id = ${sessionId}::text AND ${sameKey(view)})
      RETURNING 1)`;
  });
  const sum = rawSql(VIEW_TABLES.map(({ table }) => `(SELECT count(*) FROM written_${table})`).join(' + '));
  return sql`WITH ${joinSql(parts)} SELECT (${sum})::int AS "changed"`;
}

/** Keys of registered projections whose view of this session was made by newer rules than theirs. Under the head's lock it stays so. */
export async function listNewerViews(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  projections: readonly { readonly key: string; readonly version: number }[],
): Promise<string[]> {
  if (projections.length === 0) return [];
  const newer = await rows(
    on,
    z.object({ key: column.text }),
    sql`SELECT v.key AS "key" FROM unnest(${projections.map(({ key }) => key)}::text[], ${projections.map(({ version }) => version)}::int[]) k (key, version)
        JOIN runplane.session_views v ON v.tenant_id = ${tenantId}::text AND v.session_id = ${sessionId}::text AND v.key = k.key
        WHERE v.version > k.version`,
  );
  return newer.map(({ key }) => key);
}

const cleared = z.object({ cleared: column.int });

/** Removes up to `limit` rows of each view that a rebuild has built; 0: none is left. Only the rebuild's holder may. */
export async function clearShadow(tx: SqlExecutor, { tenantId, sessionId }: SessionKey, limit: number): Promise<number> {
  const parts = VIEW_TABLES.map(
    (view) => sql`${rawSql(`cleared_${view.table}`)} AS (
      DELETE FROM ${tableOf(view)} WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ${tableOf(view)} WHERE tenant_id = ${shadowOf(tenantId)}::text AND session_id = ${sessionId}::text LIMIT ${limit}::int))
      RETURNING 1)`,
  );
  const sum = rawSql(VIEW_TABLES.map(({ table }) => `(SELECT count(*) FROM cleared_${table})`).join(' + '));
  const row = await oneRow(tx, cleared, sql`WITH ${joinSql(parts)} SELECT (${sum})::int AS "cleared"`);
  return row.cleared;
}
