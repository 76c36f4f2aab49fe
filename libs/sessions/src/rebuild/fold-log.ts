import { TURN_SUBMISSION_KINDS, type JsonObject, type SessionLogEvent } from '@runplane/contracts';
import {
  column,
  joinSql,
  maybeRow,
  oneRow,
  rawSql,
  rows,
  sql,
  takingLock,
  type SqlExecutor,
  type SqlRow,
  type Tx,
} from '@runplane/database';
import { z } from 'zod';
import type { FoldContext, FoldedHead, Projection } from '../projections/projection';
import type { SessionKey } from '../session.sql';
import { shadowOf } from './shadow-views.sql';

/** Before the first event. */
export const EMPTY_HEAD: FoldedHead = {
  lastSequence: -1,
  snapshot: null,
  driverState: 'idle',
  needsRecovery: false,
  windowId: null,
  openSubmissions: 0,
  openTurnSubmissions: 0,
};

/** A session of whose log something is folded. */
export interface FoldedLog extends SessionKey {
  readonly header: JsonObject;
}

const done = z.object({ done: column.int });

/**
 * Folds a page of a log into the rows of a rebuild, as an append folds its batch into the live ones: what the touched projections ask for is
 * read with one statement and what they changed is written with one. No guard is asked: these are facts. Returns the head's part of the fold.
 */
export async function foldPage(
  tx: Tx,
  log: FoldedLog,
  { events, head, projections }: { events: readonly SessionLogEvent[]; head: FoldedHead; projections: readonly Projection[] },
): Promise<FoldedHead> {
  const first = events[0];
  const last = events.at(-1);
  if (first === undefined || last === undefined) return head;
  const context: FoldContext = { tenantId: shadowOf(log.tenantId), sessionId: log.sessionId, header: log.header, head };
  const touched = projections.flatMap((projection) => {
    const own = events.filter(({ type }) => projection.touches(type));
    return own.length === 0 ? [] : [{ projection, own }];
  });
  const loaded = await load(tx, touched, context);
  const folded = touched.map(({ projection, own }, at) => ({
    projection,
    state: own.reduce((state, event) => projection.apply(state, event), projection.initial(loaded[at], context)),
  }));
  const writes = folded.flatMap(({ projection, state }) => projection.writes(state));
  if (writes.length > 0) {
    const through = sql`sequence BETWEEN ${String(first.sequence)}::bigint AND ${String(last.sequence)}::bigint`;
    const key = sql`tenant_id = ${log.tenantId}::text AND session_id = ${log.sessionId}::text`;
    await rows(
      tx,
      done,
      sql`WITH d AS MATERIALIZED (
            SELECT ${context.tenantId}::text AS tenant_id, ${context.sessionId}::text AS session_id, created_at AS now
            FROM runplane.session_events WHERE ${key} AND sequence = ${String(last.sequence)}::bigint
          ), out AS MATERIALIZED (
            SELECT sequence, tx, position FROM runplane.session_events WHERE ${key} AND ${through}
          ), ${joinSql([...writes])}
          SELECT 1 AS "done" FROM d`,
    );
  }
  const changes = folded.map(({ projection, state }) => projection.head?.(state) ?? {});
  return Object.assign({}, head, ...changes, { lastSequence: last.sequence }) as FoldedHead;
}

/** What the projections' loads give, in their order; one statement for all. */
async function load(
  on: SqlExecutor,
  touched: readonly { projection: Projection; own: readonly SessionLogEvent[] }[],
  context: FoldContext,
): Promise<unknown[]> {
  const loads = touched.flatMap(({ projection, own }, at) => {
    const expression = projection.load(own, context);
    return expression === undefined ? [] : [{ at, expression }];
  });
  if (loads.length === 0) return [];
  const columns = loads.map(({ expression, at }) => sql`(${expression})::text AS ${rawSql(`"${at}"`)}`);
  const [row] = await on.query(sql`SELECT ${joinSql(columns)}`);
  const loaded: unknown[] = [];
  for (const { at } of loads) loaded[at] = parsed(row, String(at));
  return loaded;
}

function parsed(row: SqlRow | undefined, name: string): unknown {
  const text = row?.[name];
  return typeof text === 'string' ? (JSON.parse(text) as unknown) : text === null ? null : undefined;
}

const EventRow = z.object({
  sequence: column.int8,
  type: column.text,
  time: column.int8,
  turnId: column.text.nullable(),
  stepId: column.text.nullable(),
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  data: column.jsonObject,
});

/** The next events of a log: at most so many, and no more than `bytes` of them but the first. */
export function listLog(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  { after, limit, bytes }: { after: number; limit: number; bytes: number },
): Promise<SessionLogEvent[]> {
  return rows(
    on,
    EventRow,
    sql`SELECT sequence::text AS "sequence", type AS "type", (extract(epoch FROM time) * 1000)::bigint::text AS "time", turn_id AS "turnId",
          step_id AS "stepId", run_id AS "runId", command_id AS "commandId", data AS "data"
        FROM (
          SELECT p.*, sum(octet_length(p.data)) OVER (ORDER BY p.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM (
            SELECT sequence, type, time, turn_id, step_id, run_id, command_id, data::text AS data FROM runplane.session_events
            WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND sequence > ${String(after)}::bigint
            ORDER BY sequence LIMIT ${limit}::int
          ) p
        ) e
        WHERE coalesce(e.before, 0) < ${bytes}::int ORDER BY e.sequence`,
  );
}

const HeadRow = z.object({
  header: column.jsonObject,
  incarnation: column.text,
  lastSequence: column.int8,
  deleted: column.bool,
});
export type LogHead = z.infer<typeof HeadRow>;

const HEAD = sql`header::text AS "header", incarnation AS "incarnation", last_sequence::text AS "lastSequence", deleted_at IS NOT NULL AND NOT copying AS "deleted"`;

export function findLogHead(on: SqlExecutor, { tenantId, sessionId }: SessionKey): Promise<LogHead | undefined> {
  return maybeRow(
    on,
    HeadRow,
    sql`SELECT ${HEAD} FROM runplane.session_heads WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`,
  );
}

/** Locks the head of a log: nothing is appended, and no view written, until the transaction ends. */
export function lockLogHead(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<LogHead | undefined> {
  takingLock(tx, 'sessionHead', `${tenantId}/${sessionId}`);
  return maybeRow(
    tx,
    HeadRow,
    sql`SELECT ${HEAD} FROM runplane.session_heads WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text FOR NO KEY UPDATE`,
  );
}

/**
 * Writes what the head keeps of the fold, and by which rules; 1 where it was not so. Unfinished submissions are counted where they stand by now:
 * those that no event tells of are among them.
 */
export async function writeFoldedHead(
  tx: Tx,
  { tenantId, sessionId }: SessionKey,
  { head, viewsVersion }: { head: FoldedHead; viewsVersion: number },
): Promise<number> {
  const written = await oneRow(
    tx,
    z.object({ changed: column.int }),
    sql`WITH was AS MATERIALIZED (
          SELECT snapshot::text AS snapshot, driver_state, needs_recovery, window_id, open_submissions, open_turn_submissions
          FROM runplane.session_heads WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text
        ), u AS (
          UPDATE runplane.session_heads h
          SET snapshot = ${head.snapshot === null ? null : JSON.stringify(head.snapshot)}::json, driver_state = ${head.driverState}::runplane.driver_state,
            needs_recovery = ${head.needsRecovery}::bool, window_id = ${head.windowId}::text, open_submissions = n.open,
            open_turn_submissions = n.turns, views_version = ${viewsVersion}::int
          FROM (
            SELECT count(*)::int AS open, count(*) FILTER (WHERE kind = ANY (${[...TURN_SUBMISSION_KINDS]}::text[]))::int AS turns FROM runplane.submissions
            WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND state = 'pending'
          ) n
          WHERE h.tenant_id = ${tenantId}::text AND h.session_id = ${sessionId}::text
          RETURNING h.snapshot::text AS snapshot, h.driver_state, h.needs_recovery, h.window_id, h.open_submissions, h.open_turn_submissions
        )
        SELECT (was IS DISTINCT FROM u)::int AS "changed" FROM was, u`,
  );
  return written.changed;
}
