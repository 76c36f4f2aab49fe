import type { RunFacets } from '@runplane/contracts';
import { executorOf, type At, type Db } from '@runplane/database';
import { findRunFacets, sumRunCounts } from './run-facets.sql';

/**
 * What a tenant's runs can be filtered by: its projects, workspaces, backend profiles and providers, sorted, the first 200 of each; and how many
 * runs are in each state. Independent of any filter. Costs by the number of values, not of runs.
 */
export function getRunFacets(at: At, { tenantId }: { tenantId: string }): Promise<RunFacets> {
  return findRunFacets(executorOf(at), tenantId);
}

/** Below it there is nothing to gain: a summed tenant has one row for each state. */
const COUNT_ROWS_MIN = 100;
const COUNT_ROWS_MAX = 5_000;
const COUNT_TENANTS_MAX = 20;

/**
 * Sums up the counts of runs by state: each change of a run adds a row, so that no run waits for a counter. A bounded pass; any number of
 * processes may do it at the same time. Returns how many rows have gone.
 */
export async function compactRunCountsOnce(
  db: Db,
  { rowsMin = COUNT_ROWS_MIN, rowsMax = COUNT_ROWS_MAX }: { rowsMin?: number; rowsMax?: number } = {},
): Promise<{ changed: number }> {
  const { taken, left } = await sumRunCounts(db.sql, { tenants: COUNT_TENANTS_MAX, rowsMin, rowsMax });
  return { changed: taken - left };
}
