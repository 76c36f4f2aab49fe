import {
  isFinalRun,
  LatestCommand,
  LatestRunnerJob,
  LIST_SCAN_ROWS_MAX,
  RUN_LIST_ROWS_MAX,
  RUN_STATES,
  type ListRuns,
  type RunListItem,
  type RunSort,
  type RunState,
} from '@runplane/contracts';
import { column, emptySql, joinSql, rawSql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { READ_COLUMNS, ReadRow, toRun } from './run.sql';

// Every page of runs walks one index in its order and stops: as soon as it is full, or after so many rows that it has looked at. Which index is
// decided here, by the filter alone; the planner, who would have to guess how rare a filter's values are, has no second way that looks better.
// What the index does not answer is looked up row by row on the way.

type Filter = z.output<typeof ListRuns>;

/** A place in a list's order; which parts count depends on the order. Times to the millisecond: the columns have no finer ones. */
export interface RunPlace {
  readonly status: RunState;
  readonly updatedAt: string;
  readonly id: string;
}

export interface RunPageQuery {
  readonly tenantId: string;
  readonly filter: Filter;
  readonly after: RunPlace | undefined;
  /** Of the first page: the newest change that it saw. What changes later is not followed, else pages of an order that moves would never end. */
  readonly asOf: string | undefined;
  readonly limit: number;
  /** How many rows the page may look at for its filter. */
  readonly scanRowsMax: number;
  /** As LIKE takes it. */
  readonly pattern: string | undefined;
}

/** A search by the index: `pattern` finds the term in the texts that `indexPattern` finds. */
export interface RunSearchQuery extends RunPageQuery {
  readonly indexPattern: string;
}

export interface RunPage {
  readonly runs: RunListItem[];
  /** Where the next page begins; null at the end. */
  readonly next: RunPlace | null;
  readonly asOf: string | null;
  readonly total: number | null;
  readonly totalIsExact: boolean;
}

/** What leads the walk: the one condition that its index has behind the tenant. */
type Lead =
  { readonly by: 'id' | 'status' | 'tenant' | 'states' } | { readonly by: 'column'; readonly column: LeadColumn; readonly value: string };
type LeadColumn = 'session_id' | 'workspace_path' | 'project_id' | 'backend_profile' | 'provider_id';

/** Alphabetical, as the words are read. */
const SORTED_STATES: readonly RunState[] = [...RUN_STATES].sort();

/**
 * The narrowest comes first; a state that runs only pass through is narrower than what runs are grouped by. Several states are merged from their
 * places in the index where nothing else is asked; else they are looked at on the way of something else.
 */
function leadOf(filter: Filter, sort: RunSort): Lead {
  if (sort === 'id-asc') return { by: 'id' };
  if (sort === 'status-asc') return { by: 'status' };
  const { statuses = [], search } = filter;
  const [state] = statuses;
  const byState: Lead = { by: 'states' };
  const leads: readonly (Lead | undefined)[] = [
    leadColumn('session_id', filter.sessionId),
    leadColumn('workspace_path', filter.workspace),
    statuses.length === 1 && state !== undefined && !isFinalRun(state) ? byState : undefined,
    leadColumn('project_id', filter.projectId),
    leadColumn('provider_id', filter.providerId),
    leadColumn('backend_profile', filter.backendProfile),
    statuses.length === 1 || (statuses.length > 1 && search === undefined) ? byState : undefined,
  ];
  return leads.find((lead) => lead !== undefined) ?? { by: 'tenant' };
}

const leadColumn = (name: LeadColumn, value: string | undefined): Lead | undefined =>
  value === undefined ? undefined : { by: 'column', column: name, value };

/** What the walk's index does not answer, about a run `w`; null when it answers everything. One text for every mix of filters. */
function restOf({ filter, pattern }: RunPageQuery, lead: Lead): Sql | null {
  const rest: Sql[] = [];
  const equal = (name: LeadColumn, value: string | undefined): void => {
    if (value !== undefined && !(lead.by === 'column' && lead.column === name)) rest.push(sql`w.${rawSql(name)} = ${value}::text`);
  };
  equal('session_id', filter.sessionId);
  equal('workspace_path', filter.workspace);
  equal('project_id', filter.projectId);
  equal('provider_id', filter.providerId);
  equal('backend_profile', filter.backendProfile);
  const { statuses = [] } = filter;
  if (statuses.length > 0 && lead.by !== 'states' && lead.by !== 'status') rest.push(sql`w.status::text = ANY (${statuses}::text[])`);
  if (filter.updatedAfter !== undefined && lead.by === 'id') rest.push(sql`w.updated_at >= ${sinceOf(filter)}::timestamptz`);
  if (pattern !== undefined) {
    // A scalar subquery: PostgreSQL may answer an EXISTS by reading every text there is.
    rest.push(sql`(SELECT s.text LIKE ${pattern}::text FROM runplane.run_search s WHERE s.tenant_id = w.tenant_id AND s.run_id = w.id)`);
  }
  return rest.length === 0 ? null : joinSql(rest, ' AND ');
}

/** PostgreSQL takes fewer offsets than RFC 3339. */
const sinceOf = (filter: Filter): string => (filter.updatedAfter === undefined ? '-infinity' : new Date(filter.updatedAfter).toISOString());

const TENANT_C = (tenantId: string): Sql => sql`r.tenant_id COLLATE "C" = ${tenantId}::text`; // as the lists' indexes have it, see their migration

/** The rows of a page in its order, from its place on; `stop` ends the walk. */
function walk({ tenantId, filter, after }: Pick<RunPageQuery, 'tenantId' | 'filter' | 'after'>, lead: Lead, sort: RunSort, stop: Sql): Sql {
  const [status, updatedAt, id] = [after?.status ?? '', after?.updatedAt, after?.id ?? ''];
  if (sort === 'id-asc') {
    return sql`SELECT r.* FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id > ${id}::text ORDER BY r.id LIMIT ${stop}`;
  }
  const since = sinceOf(filter);
  const { statuses = [] } = filter;
  if (sort === 'status-asc') {
    const states = SORTED_STATES.filter((state) => (statuses.length === 0 || statuses.includes(state)) && state >= status);
    // Nothing but a nested loop can join a lateral query with a LIMIT: state by state, each in its order.
    return sql`
      SELECT r.* FROM unnest(${states}::text[]) WITH ORDINALITY AS s (status, place) CROSS JOIN LATERAL (
        SELECT r.* FROM runplane.runs r
        WHERE ${TENANT_C(tenantId)} AND r.status = s.status::runplane.run_state AND r.updated_at >= ${since}::timestamptz
          AND r.updated_at <= (SELECT as_of FROM bound)
          AND (r.updated_at, r.id) < (CASE WHEN s.status = ${status}::text THEN ${updatedAt ?? 'infinity'}::timestamptz ELSE 'infinity' END, ${id}::text)
        ORDER BY r.updated_at DESC, r.id DESC LIMIT ${stop}
      ) r LIMIT ${stop}`;
  }
  const descending = sort === 'updated-desc';
  const range = descending
    ? sql`r.updated_at >= ${since}::timestamptz AND (r.updated_at, r.id) < (${updatedAt ?? 'infinity'}::timestamptz, ${id}::text)`
    : sql`r.updated_at >= ${since}::timestamptz AND r.updated_at <= (SELECT as_of FROM bound)
        AND (r.updated_at, r.id) > (${updatedAt ?? '-infinity'}::timestamptz, ${id}::text)`;
  const direction = rawSql(descending ? 'DESC' : 'ASC');
  const from = (condition: Sql): Sql => sql`SELECT r.* FROM runplane.runs r WHERE ${TENANT_C(tenantId)}${condition} AND ${range}
    ORDER BY r.updated_at ${direction}, r.id ${direction} LIMIT ${stop}`;
  if (lead.by === 'column') return from(sql` AND r.${rawSql(lead.column)} = ${lead.value}::text`);
  if (lead.by !== 'states') return from(emptySql);
  // Over several states the branches are merged in order, each read as far as it is needed.
  const branches = [...new Set(statuses)].map((state) => from(sql` AND r.status = ${state}::text::runplane.run_state`));
  if (branches[0] !== undefined && branches.length === 1) return branches[0];
  return sql`SELECT r.* FROM ((${joinSql(branches, ') UNION ALL (')})) r ORDER BY r.updated_at ${direction}, r.id ${direction} LIMIT ${stop}`;
}

const ORDER: Readonly<Record<RunSort, Sql>> = {
  'updated-desc': sql`r.updated_at DESC, r.id DESC`,
  'updated-asc': sql`r.updated_at, r.id`,
  'status-asc': sql`r.status::text COLLATE "C", r.updated_at DESC, r.id DESC`,
  'id-asc': sql`r.id`,
};

/** The newest change that the first page sees. Where nothing moves into the page's way it is not looked at. */
function bound({ tenantId, asOf }: RunPageQuery): Sql {
  return sql`bound AS MATERIALIZED (SELECT coalesce(${asOf ?? null}::timestamptz,
    (SELECT max(r.updated_at) FROM runplane.runs r WHERE ${TENANT_C(tenantId)})) AS as_of)`;
}

/** How many rows fit, of those that the walk from the start may look at. */
function counted(query: RunPageQuery): Sql {
  const lead = leadOf(query.filter, 'updated-desc');
  const rest = restOf(query, lead);
  const walked = walk({ ...query, after: undefined }, lead, 'updated-desc', rawSql(String(LIST_SCAN_ROWS_MAX + 1)));
  const fits = rest === null ? sql`true` : sql`CASE WHEN ${rest} THEN true ELSE false END`;
  return sql`counted AS MATERIALIZED (
    SELECT count(*) FILTER (WHERE ${fits})::int AS total, count(*) <= ${rawSql(String(LIST_SCAN_ROWS_MAX))} AS is_exact FROM (${walked}) w)`;
}

const PAGE_STOP = rawSql(String(RUN_LIST_ROWS_MAX + 1));

const about = <T>(shape: z.ZodType<T>) => column.json.transform((value) => shape.parse(value)).nullable();
const ItemRow = ReadRow.extend({
  latestCommand: about(LatestCommand),
  latestRunnerJob: about(LatestRunnerJob),
  fits: column.bool,
  isLast: column.bool,
});
const PageFacts = z.object({ asOf: column.time.nullable(), total: column.int.nullable(), totalIsExact: column.bool.nullable() });
const PageRow = z.union([ItemRow.extend(PageFacts.shape), PageFacts.extend({ id: z.null() })]);

/** The runs of `page`, whole, each with its newest command and runner job; one row without a run when the page is empty. */
function pageRows({ filter }: RunPageQuery, hasBound: boolean): Sql {
  return sql`
    SELECT ${READ_COLUMNS}, c.latest AS "latestCommand", j.latest AS "latestRunnerJob", r.fits AS "fits", r.is_last AS "isLast",
      ${hasBound ? sql`runplane.wire_time((SELECT as_of FROM bound))` : sql`NULL::text`} AS "asOf",
      ${filter.total ? sql`(SELECT total FROM counted)` : sql`NULL::int`} AS "total",
      ${filter.total ? sql`(SELECT is_exact FROM counted)` : sql`NULL::bool`} AS "totalIsExact"
    FROM (SELECT) one LEFT JOIN page r ON true
    LEFT JOIN LATERAL (
      SELECT json_build_object('id', c.id, 'seq', c.seq, 'type', c.type, 'state', c.state,
        'failure', CASE WHEN c.failure_kind IS NOT NULL THEN json_build_object('kind', c.failure_kind, 'message', c.failure_message) END,
        'createdAt', runplane.wire_time(c.created_at), 'updatedAt', runplane.wire_time(c.updated_at),
        'acknowledgedAt', runplane.wire_time(c.acknowledged_at), 'finishedAt', runplane.wire_time(c.finished_at))::text AS latest
      FROM runplane.commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id ORDER BY c.seq DESC LIMIT 1
    ) c ON true
    LEFT JOIN LATERAL (
      SELECT json_build_object('id', j.id, 'commandId', j.command_id, 'launcher', j.launcher, 'jobName', j.job_name, 'runnerId', j.runner_id,
        'createdAt', runplane.wire_time(j.created_at), 'updatedAt', runplane.wire_time(j.updated_at), 'settledAt', runplane.wire_time(j.settled_at))::text AS latest
      FROM runplane.runner_jobs j WHERE j.tenant_id = r.tenant_id AND j.run_id = r.id ORDER BY j.created_at DESC, j.id DESC LIMIT 1
    ) j ON true
    ORDER BY ${ORDER[filter.sort]}`;
}

/** One page by a walk. It may be short, even empty, and not the end: then it has looked at `scanRowsMax` rows. */
export async function walkRunsPage(on: SqlExecutor, query: RunPageQuery): Promise<RunPage> {
  const { filter, limit, scanRowsMax } = query;
  const lead = leadOf(filter, filter.sort);
  const rest = restOf(query, lead);
  const hasBound = filter.sort === 'updated-asc' || filter.sort === 'status-asc';
  const stop = rawSql(String(scanRowsMax));
  // The CASE hides from the planner how rare the rest is, so that it goes on to walk; the row at which the walk stops comes along as the place to
  // go on from. Without an ORDER BY of its own the page keeps the walk's.
  const page =
    rest === null
      ? sql`SELECT w.*, true AS fits, false AS is_last FROM (${walk(query, lead, filter.sort, PAGE_STOP)}) w LIMIT ${limit + 1}::int`
      : sql`
        SELECT * FROM (
          SELECT * FROM (
            SELECT w.*, CASE WHEN ${rest} THEN true ELSE false END AS fits, w.n = ${stop} AS is_last
            FROM (SELECT w.*, row_number() OVER () AS n FROM (${walk(query, lead, filter.sort, stop)}) w) w
          ) w WHERE CASE WHEN w.fits OR w.is_last THEN true ELSE false END LIMIT ${PAGE_STOP}
        ) w LIMIT ${limit + 1}::int`;
  const parts = [...(hasBound ? [bound(query)] : []), ...(filter.total ? [counted(query)] : []), sql`page AS MATERIALIZED (${page})`];
  return readPage(on, query, sql`WITH ${joinSql(parts, ', ')} ${pageRows(query, hasBound)}`);
}

/** Texts that a search by the index looks at, and runs that it may find, before its term counts as a common one. */
const SEARCH_TEXTS_MAX = 10_000;
export const SEARCH_HITS_MAX = 2_000;

/**
 * One page of the runs in which a term was found by the trigram index; undefined where the index is not there or the term is a common one.
 * The pattern is a subquery's value, so that the planner does not look at it: it would guess for some terms that reading all texts is as good.
 */
export async function findRunsPage(on: SqlExecutor, query: RunSearchQuery): Promise<RunPage | undefined> {
  const { tenantId, filter, after, limit, pattern } = query;
  const everything: Lead = { by: 'tenant' };
  const { statuses = [] } = filter;
  const conditions = [
    sql`w.updated_at >= ${sinceOf(filter)}::timestamptz`,
    ...(statuses.length === 0 ? [] : [sql`w.status::text = ANY (${statuses}::text[])`]),
  ];
  const rest = restOf({ ...query, pattern: undefined, filter: { ...filter, statuses: undefined, updatedAfter: undefined } }, everything);
  if (rest !== null) conditions.push(rest);
  const hasBound = filter.sort === 'updated-asc' || filter.sort === 'status-asc';
  const parts = [
    ...(hasBound ? [bound(query)] : []),
    sql`texts AS MATERIALIZED (
      SELECT s.tenant_id, s.run_id, s.text FROM runplane.run_search s
      WHERE (SELECT to_regclass('runplane.run_search_trigrams') IS NOT NULL) AND (s.text || '') LIKE (SELECT ${query.indexPattern}::text)
      LIMIT ${rawSql(String(SEARCH_TEXTS_MAX + 1))})`,
    sql`hits AS MATERIALIZED (
      SELECT t.tenant_id, t.run_id FROM texts t WHERE t.tenant_id = ${tenantId}::text AND t.text LIKE ${pattern ?? ''}::text
      LIMIT ${rawSql(String(SEARCH_HITS_MAX + 1))})`,
    // Row by row, by the primary key, which a lateral query with a LIMIT cannot but take.
    sql`found AS MATERIALIZED (
      SELECT w.*, true AS fits, false AS is_last FROM hits h CROSS JOIN LATERAL (
        SELECT * FROM runplane.runs r WHERE r.tenant_id = h.tenant_id AND r.id = h.run_id LIMIT 1
      ) w WHERE ${joinSql(conditions, ' AND ')}${hasBound ? sql` AND w.updated_at <= (SELECT as_of FROM bound)` : emptySql})`,
    sql`counted AS (SELECT count(*)::int AS total, true AS is_exact FROM found)`,
    sql`page AS MATERIALIZED (
      SELECT r.* FROM found r WHERE ${after === undefined ? sql`true` : behind(after, filter.sort)} ORDER BY ${ORDER[filter.sort]} LIMIT ${limit + 1}::int)`,
  ];
  const found = await rows(
    on,
    z.looseObject({ isRare: column.bool }),
    sql`WITH ${joinSql(parts, ', ')} SELECT answer.*, to_regclass('runplane.run_search_trigrams') IS NOT NULL
        AND (SELECT count(*) FROM texts) <= ${rawSql(String(SEARCH_TEXTS_MAX))} AND (SELECT count(*) FROM hits) <= ${rawSql(String(SEARCH_HITS_MAX))} AS "isRare"
      FROM (${pageRows(query, hasBound)}) answer`,
  );
  const [first] = found;
  if (first?.isRare !== true) return undefined;
  return pageOf(
    query,
    found.map((row) => PageRow.parse(row)),
  );
}

/** Behind a place of a list that has been sorted. */
function behind({ status, updatedAt, id }: RunPlace, sort: RunSort): Sql {
  const older = sql`(r.updated_at, r.id) < (${updatedAt}::timestamptz, ${id}::text)`;
  if (sort === 'id-asc') return sql`r.id > ${id}::text`;
  if (sort === 'updated-asc') return sql`(r.updated_at, r.id) > (${updatedAt}::timestamptz, ${id}::text)`;
  if (sort === 'updated-desc') return older;
  return sql`(r.status::text COLLATE "C" > ${status}::text OR (r.status::text = ${status}::text AND ${older}))`;
}

async function readPage(on: SqlExecutor, query: RunPageQuery, statement: Sql): Promise<RunPage> {
  return pageOf(query, await rows(on, PageRow, statement));
}

function pageOf({ limit, filter, asOf: firstAsOf }: RunPageQuery, found: readonly z.infer<typeof PageRow>[]): RunPage {
  const items = found.filter((row) => row.id !== null) as z.infer<typeof ItemRow>[];
  const fitting = items.filter(({ fits }) => fits);
  const shown = fitting.slice(0, limit);
  const isCut = fitting.length > limit;
  const last = isCut ? shown.at(-1) : items.find(({ isLast }) => isLast);
  const [facts] = found;
  return {
    runs: shown.map((row) => ({ ...toRun(row), latestCommand: row.latestCommand, latestRunnerJob: row.latestRunnerJob })),
    next: last === undefined ? null : { status: last.status, updatedAt: last.updatedAt, id: last.id },
    asOf: firstAsOf ?? facts?.asOf ?? null,
    total: filter.total ? (facts?.total ?? 0) : null,
    totalIsExact: facts?.totalIsExact ?? true,
  };
}
