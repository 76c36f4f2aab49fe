import type { Sql } from '@runplane/database';
import type pg from 'pg';
import { prepared } from '../support/statements';

/** What grows with the number of runs. Not run_leases: it has a row for each run that is held now. */
export const BIG_TABLES = [
  'runs',
  'run_search',
  'run_events',
  'commands',
  'sessions',
  'dispatch_intents',
  'runner_jobs',
  'outbox_events',
] as const;

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly Plans?: readonly PlanNode[];
}
const nodesOf = (plan: PlanNode): PlanNode[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];

/** Tables that a statement's plan reads from end to end, planned for its parameters and for any. */
export async function scannedTables(admin: pg.Pool, statement: Sql): Promise<string[]> {
  const client = await admin.connect();
  try {
    const scanned = new Set<string>();
    for (const mode of ['force_custom_plan', 'force_generic_plan']) {
      await client.query(`BEGIN; SET LOCAL plan_cache_mode = ${mode}`);
      const { prepare, execute } = prepared(statement, 'explained');
      await client.query(prepare);
      const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(`EXPLAIN (FORMAT JSON) ${execute}`);
      await client.query('ROLLBACK; DEALLOCATE explained');
      const plan = rows[0]?.['QUERY PLAN'][0].Plan;
      for (const node of plan === undefined ? [] : nodesOf(plan)) {
        const table = node['Relation Name'] ?? '';
        if (node['Node Type'] === 'Seq Scan' && (BIG_TABLES as readonly string[]).includes(table)) scanned.add(table);
      }
    }
    return [...scanned];
  } finally {
    client.release();
  }
}

/** How often each big table has been read from end to end since the server counts: of whatever was really executed. */
export async function countScans(admin: pg.Pool): Promise<Map<string, number>> {
  await new Promise((resolve) => setTimeout(resolve, 1_500)); // sessions report about once a second
  const { rows } = await admin.query<{ table: string; scans: string }>(
    `SELECT relname AS table, seq_scan AS scans FROM pg_stat_user_tables WHERE schemaname = 'runplane' AND relname = ANY ($1)`,
    [BIG_TABLES],
  );
  return new Map(rows.map(({ table, scans }) => [table, Number(scans)]));
}
