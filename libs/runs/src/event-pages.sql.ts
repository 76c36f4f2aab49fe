import { LIST_SCAN_ROWS_MAX, PAGE_BYTES_MAX, type RunEvent } from '@runplane/contracts';
import { column, maybeRow, rawSql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { EVENT_COLUMNS, EventRow, prunedEvents, PrunedEvents, toEvent, withBytesBefore } from './run-event.sql';
import type { RunKey } from './run.sql';

// Pages of chosen events. A page reads a log in its order until it is full, its payloads are many bytes or it has read so many rows; it says then
// where it stood. Whether the run is there is told by the same statement.

/** Which events are meant, of rows `e`. */
export interface Choice {
  readonly fits: Sql;
}

/** What somebody said: the column says it, see isOutputEvent. */
export const OUTPUT: Choice = { fits: sql`e.is_output` };

/**
 * What belongs to a command: its events, those that name it as their target (the server's alone do), and the run's end, which belongs to every
 * command unless it names one.
 */
export const ofCommand = (commandId: string): Choice => ({
  fits: sql`(e.command_id = ${commandId}::text OR (e.type = 'terminal_status' AND e.command_id IS NULL)
    OR (e.type IN ('backend_status', 'user_message') AND e.payload ->> 'targetCommandId' = ${commandId}::text))`,
});

const ScanFacts = z.object({
  isThere: column.bool,
  found: column.int,
  goesOn: column.int8.nullable(),
  pruned: column.json.pipe(PrunedEvents).nullable(),
});
const ScanRow = z.union([EventRow.extend(ScanFacts.shape), ScanFacts.extend({ id: z.null() })]);

export interface EventPage {
  readonly events: RunEvent[];
  /** The last sequence that the page has dealt with; null at the log's end. */
  readonly next: number | null;
}

/** Chosen events of a run behind a sequence; undefined when there is no run, `isThere` false when it has no such command. */
export async function scanRunEvents(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
  { choice, commandId, afterSeq, limit }: { choice: Choice; commandId: string | null; afterSeq: number; limit: number },
): Promise<(EventPage & { isThere: boolean; pruned: PrunedEvents | null }) | undefined> {
  const after = String(afterSeq);
  const end = String(afterSeq + LIST_SCAN_ROWS_MAX); // a log has no gaps: so many sequences, so many rows
  const log = sql`e.tenant_id = ${tenantId}::text AND e.run_id = ${runId}::text`;
  const found = await rows(
    on,
    ScanRow,
    sql`
    WITH r AS MATERIALIZED (
      SELECT ${commandId}::text IS NULL OR EXISTS (
        SELECT FROM runplane.commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id AND c.id = ${commandId}::text) AS is_there,
        ${prunedEvents} AS pruned
      FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text
    ), page AS MATERIALIZED (
      SELECT e.* FROM runplane.run_events e
      WHERE ${log} AND e.seq > ${after}::bigint AND e.seq <= ${end}::bigint AND ${choice.fits} ORDER BY e.seq LIMIT ${limit + 1}::int
    )
    SELECT r.is_there AS "isThere", r.pruned AS "pruned", (SELECT count(*)::int FROM page) AS "found",
      CASE WHEN (SELECT count(*) FROM page) <= ${limit}::int
        THEN (SELECT min(e.seq)::text FROM runplane.run_events e WHERE ${log} AND e.seq > ${end}::bigint) END AS "goesOn", ${EVENT_COLUMNS}
    FROM r LEFT JOIN (${withBytesBefore(sql`SELECT * FROM page`, sql`seq`)}) e ON e.bytes_before < ${PAGE_BYTES_MAX}::int
    ORDER BY e.seq LIMIT ${limit}::int`,
  );
  const [first] = found;
  if (first === undefined) return undefined;
  const events = found.flatMap((row) => (row.id === null ? [] : [toEvent(row)]));
  const isCut = first.found > events.length;
  return {
    isThere: first.isThere,
    pruned: first.pruned,
    events,
    next: isCut ? (events.at(-1)?.seq ?? null) : first.goesOn === null ? null : first.goesOn - 1,
  };
}

/** How many events a run has behind a sequence; undefined when there is no run. Its counter knows, unless retention has taken some. */
export function countEvents(on: SqlExecutor, { tenantId, runId }: RunKey, afterSeq: number): Promise<{ count: number } | undefined> {
  const after = String(afterSeq);
  return maybeRow(
    on,
    z.object({ count: column.int8 }),
    sql`SELECT (CASE WHEN r.events_pruned_at IS NULL THEN greatest(r.last_event_seq - ${after}::bigint, 0)
          ELSE (SELECT count(*) FROM runplane.run_events e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id AND e.seq > ${after}::bigint) END)::text AS "count"
        FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`,
  );
}

/** A place in the events of a session: runs by creation, then the log of each. */
export interface SessionPlace {
  readonly createdAt: string;
  readonly runId: string;
  readonly seq: number;
}

export interface SessionScan {
  readonly tenantId: string;
  readonly sessionId: string;
  /** One run: the named one, else the active, else the last. `all`: every run of the session. */
  readonly runs: { readonly one: string | undefined } | 'all';
  /** Null: every event. */
  readonly choice: Choice | null;
  readonly after: SessionPlace | undefined;
  readonly limit: number;
}

/** Runs that one page opens at most; logs that retention has emptied are passed over in such steps. */
export const SESSION_RUNS_MAX = 200;

const SessionFacts = z.object({
  runId: column.text.nullable(),
  runIsThere: column.bool,
  found: column.int,
  runs: column.int,
  lastRunId: column.text.nullable(),
  lastRunCreatedAt: column.time.nullable(),
});
const SessionEventRow = EventRow.omit({ runId: true }).extend({
  eventRunId: column.text,
  runCreatedAt: column.time,
  fits: column.bool,
  isLast: column.bool,
});
const SessionRow = z.union([SessionEventRow.extend(SessionFacts.shape), SessionFacts.extend({ id: z.null() })]);

export interface SessionEventPage {
  /** Which run was shown; null for all, or when there is none. */
  readonly runId: string | null;
  /** False when that run does not exist or belongs to another session. */
  readonly runIsThere: boolean;
  readonly events: RunEvent[];
  readonly next: SessionPlace | null;
}

const SCAN_STOP = rawSql(String(LIST_SCAN_ROWS_MAX));

/** Events of a session's run, or of all its runs in order; undefined when there is no session. */
export async function scanSessionEvents(on: SqlExecutor, scan: SessionScan): Promise<SessionEventPage | undefined> {
  const { tenantId, sessionId, runs, choice, after, limit } = scan;
  const one = runs === 'all' ? null : (runs.one ?? after?.runId ?? null);
  const ofSession = sql`r.tenant_id = ${tenantId}::text AND r.session_id = ${sessionId}::text`;
  const chosen =
    runs === 'all'
      ? sql`SELECT r.tenant_id, r.id, r.created_at FROM runplane.runs r
          WHERE ${ofSession} AND (r.created_at, r.id) >= (${after?.createdAt ?? '-infinity'}::timestamptz, ${after?.runId ?? ''}::text)
          ORDER BY r.created_at, r.id LIMIT ${rawSql(String(SESSION_RUNS_MAX))}`
      : sql`SELECT r.tenant_id, r.id, r.created_at FROM s JOIN runplane.runs r ON ${ofSession} AND r.id = s.run_id`;
  // A lateral query with a LIMIT is joined by a nested loop: run by run, each log in its order, and no further than the page needs.
  const walk = sql`
    SELECT e.*, r.place, r.created_at AS run_created_at FROM (SELECT * FROM r ORDER BY place) r CROSS JOIN LATERAL (
      SELECT e.* FROM runplane.run_events e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id
        AND e.seq > CASE WHEN r.id = ${after?.runId ?? null}::text THEN ${String(after?.seq ?? 0)}::bigint ELSE 0 END
      ORDER BY e.seq LIMIT ${SCAN_STOP}
    ) e LIMIT ${SCAN_STOP}`;
  const page =
    choice === null
      ? sql`SELECT e.*, true AS fits, false AS is_last FROM (${walk}) e LIMIT ${limit + 1}::int`
      : sql`
        SELECT * FROM (
          SELECT e.*, ${choice.fits} AS fits, e.n = ${SCAN_STOP} AS is_last FROM (SELECT e.*, row_number() OVER () AS n FROM (${walk}) e) e
        ) e WHERE e.fits OR e.is_last LIMIT ${limit + 1}::int`;
  const found = await rows(
    on,
    SessionRow,
    sql`
    WITH s AS MATERIALIZED (
      SELECT ${runs === 'all' ? sql`NULL::text` : sql`coalesce(${one}::text, s.active_run_id, s.last_run_id)`} AS run_id
      FROM runplane.sessions s WHERE s.tenant_id = ${tenantId}::text AND s.session_id = ${sessionId}::text AND s.deleted_at IS NULL
    ), r AS MATERIALIZED (
      SELECT r.*, row_number() OVER (ORDER BY r.created_at, r.id) AS place FROM (${chosen}) r
    ), page AS MATERIALIZED (${page}), last AS MATERIALIZED (SELECT id, created_at FROM r ORDER BY place DESC LIMIT 1)
    SELECT s.run_id AS "runId", s.run_id IS NULL OR EXISTS (SELECT FROM r) AS "runIsThere", (SELECT count(*)::int FROM page) AS "found",
      (SELECT count(*)::int FROM r) AS "runs", (SELECT id FROM last) AS "lastRunId",
      runplane.wire_time((SELECT created_at FROM last)) AS "lastRunCreatedAt",
      e.id AS "id", e.run_id AS "eventRunId", e.seq::text AS "seq", e.type AS "type", e.payload::text AS "payload", e.command_id AS "commandId",
      runplane.wire_time(e.created_at) AS "createdAt", runplane.wire_time(e.run_created_at) AS "runCreatedAt", e.fits AS "fits", e.is_last AS "isLast"
    FROM s LEFT JOIN (${withBytesBefore(sql`SELECT * FROM page`, sql`place, seq`)}) e ON e.bytes_before < ${PAGE_BYTES_MAX}::int
    ORDER BY e.place, e.seq LIMIT ${limit + 1}::int`,
  );
  const [facts] = found;
  if (facts === undefined) return undefined;
  const read = found.flatMap((row) => (row.id === null ? [] : [row]));
  const shown = read.filter(({ fits }) => fits).slice(0, limit);
  // The page was cut by its number or bytes, or the walk by its own limit; or the runs that one page opens were all read to their ends.
  const lastRead = read.at(-1);
  const cutAt =
    facts.found > read.length || shown.length < read.filter(({ fits }) => fits).length
      ? shown.at(-1)
      : lastRead?.isLast === true
        ? lastRead
        : undefined;
  const next =
    cutAt !== undefined
      ? { createdAt: cutAt.runCreatedAt, runId: cutAt.eventRunId, seq: cutAt.seq }
      : runs === 'all' && facts.runs === SESSION_RUNS_MAX && facts.lastRunId !== null && facts.lastRunCreatedAt !== null
        ? { createdAt: facts.lastRunCreatedAt, runId: facts.lastRunId, seq: Number.MAX_SAFE_INTEGER }
        : null;
  return {
    runId: facts.runId,
    runIsThere: facts.runIsThere,
    events: shown.map(({ eventRunId, ...event }) => toEvent({ ...event, runId: eventRunId })),
    next,
  };
}
