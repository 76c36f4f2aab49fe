import { FACET_VALUES_MAX, RUN_STATES, type RunFacets } from '@runplane/contracts';
import { column, emptySql, oneRow, rawSql, rows, sql, type Sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';

const FACETS = {
  projects: 'project_id',
  workspaces: 'workspace_path',
  backends: 'backend_profile',
  providers: 'provider_id',
} as const;
type Facet = keyof typeof FACETS;

/** The distinct values of a column in their order: from one to the next in the column's index, however many runs share each (a skip scan). */
function distinct(facet: Facet, tenantId: string): Sql {
  const name = rawSql(FACETS[facet]);
  const next = (behind: Sql): Sql => sql`SELECT r.${name} FROM runplane.runs r
    WHERE r.tenant_id COLLATE "C" = ${tenantId}::text AND r.${name} IS NOT NULL${behind} ORDER BY r.${name} LIMIT 1`;
  return sql`${rawSql(facet)} (value, n) AS (
    (SELECT (${next(emptySql)}), 1)
    UNION ALL
    SELECT (${next(sql` AND r.${name} > f.value`)}), f.n + 1 FROM ${rawSql(facet)} f WHERE f.value IS NOT NULL AND f.n <= ${rawSql(String(FACET_VALUES_MAX))}
  )`;
}

const values = (facet: Facet): Sql =>
  sql`(SELECT coalesce(json_agg(value ORDER BY n) FILTER (WHERE value IS NOT NULL), '[]')::text FROM ${rawSql(facet)}) AS "${rawSql(facet)}"`;

const Values = column.json.transform((found) => {
  const all = z.array(z.string()).parse(found);
  return { values: all.slice(0, FACET_VALUES_MAX), truncated: all.length > FACET_VALUES_MAX };
});
const Counts = column.json.transform((found) => z.record(z.enum(RUN_STATES), z.int()).parse(found));
const FacetRow = z.object({ projects: Values, workspaces: Values, backends: Values, providers: Values, statusCounts: Counts });

/** What a tenant's runs can be filtered by, and how many there are in each state. */
export function findRunFacets(on: SqlExecutor, tenantId: string): Promise<RunFacets> {
  const facets = Object.keys(FACETS) as Facet[];
  const [projects, workspaces, backends, providers] = facets.map((facet) => distinct(facet, tenantId));
  return oneRow(
    on,
    FacetRow,
    sql`WITH RECURSIVE ${projects}, ${workspaces}, ${backends}, ${providers}
      SELECT ${values('projects')}, ${values('workspaces')}, ${values('backends')}, ${values('providers')},
        (SELECT json_object_agg(s.status, coalesce(c.n, 0))::text FROM unnest(enum_range(NULL::runplane.run_state)) s (status)
          LEFT JOIN (SELECT status, sum(n) AS n FROM runplane.run_status_counts WHERE tenant_id = ${tenantId}::text GROUP BY status) c USING (status)) AS "statusCounts"`,
  );
}

/**
 * Sums the counts' rows of tenants that have many. Rows that another transaction holds are left to it; who reads meanwhile sees the rows or
 * their sum. One statement: rows are taken, removed and summed in it.
 */
export async function sumRunCounts(
  on: SqlExecutor,
  { tenants, rowsMin, rowsMax }: { tenants: number; rowsMin: number; rowsMax: number },
): Promise<{ taken: number; left: number }> {
  const [summed] = await rows(
    on,
    z.object({ taken: column.int, left: column.int }),
    sql`
    WITH busy AS MATERIALIZED (
      SELECT t.id FROM runplane.tenants t CROSS JOIN LATERAL (
        SELECT count(*) AS n FROM (SELECT 1 FROM runplane.run_status_counts c WHERE c.tenant_id = t.id LIMIT ${rowsMin}::int) c
      ) c WHERE c.n >= ${rowsMin}::int LIMIT ${tenants}::int
    ), taken AS MATERIALIZED (
      SELECT c.tenant_id, c.id FROM busy b CROSS JOIN LATERAL (
        SELECT c.tenant_id, c.id FROM runplane.run_status_counts c WHERE c.tenant_id = b.id ORDER BY c.id LIMIT ${rowsMax}::int FOR UPDATE SKIP LOCKED
      ) c
    ), gone AS (
      DELETE FROM runplane.run_status_counts c USING taken t WHERE c.tenant_id = t.tenant_id AND c.id = t.id RETURNING c.tenant_id, c.status, c.n
    ), summed AS (
      INSERT INTO runplane.run_status_counts (tenant_id, status, n)
      SELECT tenant_id, status, sum(n) FROM gone GROUP BY tenant_id, status HAVING sum(n) <> 0 RETURNING 1
    )
    SELECT (SELECT count(*)::int FROM gone) AS "taken", (SELECT count(*)::int FROM summed) AS "left"`,
  );
  if (summed === undefined) throw new Error('sumRunCounts: no answer');
  return summed;
}
