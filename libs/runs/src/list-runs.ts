import {
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  LIST_SCAN_ROWS_MAX,
  ListRuns,
  parseInput,
  RUN_STATES,
  type RunList,
} from '@runplane/contracts';
import { executorOf, type At, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { findRunsPage, walkRunsPage, type RunPage, type RunPageQuery } from './run-list.sql';
import { indexPattern, searchPattern } from './run-search';

const runCursor = defineCursor(
  'runs',
  z.strictObject({ status: z.enum(RUN_STATES), updatedAt: cursorTime, id: identifier, asOf: cursorTime.nullable() }),
);

/**
 * One page of a tenant's runs, each with its newest command and runner job.
 *
 * Input     filter, order, cursor and limit, see ListRuns; `total` asks how many runs the filter finds, counted up to 10,000.
 * Returns   the page; `cursor` of the next, null at the end alone. A page looks at 10,000 runs at most: where the filter fits few of them it is
 *           short, even empty, and the next goes on from there.
 * Moves     a run that changes while somebody pages may be missing from later pages; one that does not change never is. Pages of an order that
 *           runs move forward in (`updated-asc`, `status-asc`) leave out what has changed since the first.
 * Errors    InvalidRequest, InvalidCursor.
 */
export async function listRuns(at: At, { tenantId, ...input }: ListRuns & { tenantId: string }): Promise<RunList> {
  const { cursor, limit, total, ...filter } = parseInput(ListRuns, input);
  const filterHash = contentHash({
    ...Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== undefined)),
    tenantId,
    statuses: [...new Set(filter.statuses)].sort(),
  }).hash;
  const place = cursor === undefined ? undefined : runCursor.decode(cursor, filterHash);
  const query: RunPageQuery = {
    tenantId,
    filter: { ...filter, limit, total },
    after: place,
    asOf: place?.asOf ?? undefined,
    limit,
    scanRowsMax: LIST_SCAN_ROWS_MAX,
    pattern: filter.search === undefined ? undefined : searchPattern(filter.search),
  };
  const page = await (filter.search === undefined ? walkRunsPage(executorOf(at), query) : searchRuns(executorOf(at), query, filter.search));
  return {
    runs: page.runs,
    cursor: page.next === null ? null : runCursor.encode({ ...page.next, asOf: page.asOf }, filterHash),
    ...(page.total === null ? {} : { total: page.total, totalIsExact: page.totalIsExact }),
  };
}

/** A term that is in every twentieth run fills a page within as many rows. */
const SEARCH_FIRST_ROWS = 500;
/** A term that is among them more often is none that the index would find few texts for. */
const SEARCH_RARE_RUNS_MAX = 2;

/**
 * A search takes the way that is bounded for its term: a common one fills its page within the first rows of the list; a rare one is found by
 * the trigram index, whole; for what is neither (a common one far down the list, a term too short for the index) the list is walked as any
 * filter's is.
 */
async function searchRuns(on: SqlExecutor, query: RunPageQuery, term: string): Promise<RunPage> {
  const first = await walkRunsPage(on, { ...query, scanRowsMax: SEARCH_FIRST_ROWS });
  if (first.runs.length === query.limit || first.next === null) return first;
  const pattern = first.runs.length <= SEARCH_RARE_RUNS_MAX ? indexPattern(term) : undefined;
  const found = pattern === undefined ? undefined : await findRunsPage(on, { ...query, indexPattern: pattern });
  return found ?? walkRunsPage(on, query);
}
