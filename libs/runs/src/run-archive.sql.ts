import { PAGE_BYTES_MAX, TERMINAL_STATUSES } from '@runplane/contracts';
import { column, maybeRow, rawSql, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { RunKey } from './run.sql';

const Stored = z.object({
  sessionId: column.text.nullable(),
  status: column.state(TERMINAL_STATUSES),
  finishedAt: column.time,
  eventsPrunedAt: column.time.nullable(),
  prunedThrough: column.int8.nullable(),
  lastEventSeq: column.int8,
  /** Of the oldest event that is still there. */
  firstEventSeq: column.int8.nullable(),
  commands: column.int,
  intents: column.int,
  runnerJobs: column.int,
  cancelRequests: column.int,
  stamp: column.text,
});
/** An ended run with what lies under it, counted. Two with the same stamp have the same content. */
export type StoredRun = z.infer<typeof Stored>;

const under = (table: string): string => `runplane.${table} x WHERE x.tenant_id = r.tenant_id AND x.run_id = r.id`;
const countOf = (table: string) => rawSql(`(SELECT count(*)::int FROM ${under(table)})`);
const lastChangeOf = (table: string) => rawSql(`(SELECT max(x.updated_at)::text FROM ${under(table)})`);

/** An ended run, counted; undefined when there is none, or it has not ended. Commands of an ended run never change. */
export function findStoredRun(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<StoredRun | undefined> {
  return maybeRow(
    on,
    Stored,
    sql`SELECT c.*, concat_ws(' ', c."lastEventSeq", c."firstEventSeq", c."eventsPrunedAt", c."commands", c."intents", c."runnerJobs", c."cancelRequests",
          c."changes") AS "stamp"
        FROM (
          SELECT r.session_id AS "sessionId", r.status::text AS "status", runplane.wire_time(r.finished_at) AS "finishedAt",
            runplane.wire_time(r.events_pruned_at) AS "eventsPrunedAt", r.events_pruned_through::text AS "prunedThrough",
            r.last_event_seq::text AS "lastEventSeq",
            (SELECT x.seq::text FROM ${rawSql(under('run_events'))} ORDER BY x.seq LIMIT 1) AS "firstEventSeq",
            ${countOf('commands')} AS "commands", ${countOf('dispatch_intents')} AS "intents", ${countOf('runner_jobs')} AS "runnerJobs",
            ${countOf('cancel_requests')} AS "cancelRequests",
            concat_ws(' ', r.updated_at::text, ${lastChangeOf('dispatch_intents')}, ${lastChangeOf('runner_jobs')}, ${lastChangeOf('cancel_requests')}) AS "changes"
          FROM runplane.runs r
          WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text AND r.finished_at IS NOT NULL
        ) c`,
  );
}

/** Tables whose rows an archive holds, by the word of their lines, with the column that orders a run's rows. */
const TABLES = {
  run: { table: 'runs', runColumn: 'id', place: 'id', type: 'text' },
  command: { table: 'commands', runColumn: 'run_id', place: 'seq', type: 'int' },
  intent: { table: 'dispatch_intents', runColumn: 'run_id', place: 'id', type: 'text' },
  'runner-job': { table: 'runner_jobs', runColumn: 'run_id', place: 'id', type: 'text' },
  'cancel-request': { table: 'cancel_requests', runColumn: 'run_id', place: 'id', type: 'text' },
  event: { table: 'run_events', runColumn: 'run_id', place: 'seq', type: 'bigint' },
} as const;
export type ArchivedKind = keyof typeof TABLES;

const PAGE_ROWS = 2_000;

/** A run's rows of one table behind a place, as the JSON that PostgreSQL makes of a row; fewer where they are large. `after` null: from the first. */
export async function listRowTexts(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
  { kind, after }: { kind: ArchivedKind; after: string | null },
): Promise<{ place: string; row: string }[]> {
  const { table, runColumn, place, type } = TABLES[kind];
  const key = rawSql(`t.${place}`);
  const behind = after === null ? sql`` : sql`AND ${key} > ${after}::text${rawSql(type === 'text' ? '' : `::${type}`)}`;
  return rows(
    on,
    z.object({ place: column.text, row: column.text }),
    sql`SELECT place::text AS "place", "row" FROM (
          SELECT place, "row", sum(octet_length("row")) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) - octet_length("row") AS bytes_before
          FROM (
            SELECT ${key} AS place, to_json(t)::text AS "row" FROM (
              SELECT * FROM ${rawSql(`runplane.${table}`)} t
              WHERE t.tenant_id = ${tenantId}::text AND t.${rawSql(runColumn)} = ${runId}::text ${behind} ORDER BY ${key} LIMIT ${PAGE_ROWS}::int
            ) t
          ) texts
        ) page
        WHERE bytes_before < ${PAGE_BYTES_MAX}::int ORDER BY page.place`,
  );
}
