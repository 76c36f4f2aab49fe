import type { Db } from '@runplane/database';

/** Every row of every table, as text with the transaction that wrote it; a table's rows in a fixed order. All of one moment. */
async function readRows(db: Db, where: string, values: unknown[]): Promise<Record<string, string[]>> {
  const { rows: tables } = await db.pool.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
      WHERE c.relnamespace = 'runplane'::regnamespace AND c.relkind = 'r' AND c.relname <> 'api_keys' ORDER BY 1`,
  );
  const of = (name: string) =>
    `SELECT '${name}' AS name, ARRAY(SELECT t.xmin::text || ' ' || to_json(t)::text FROM runplane.${name} t ${where} ORDER BY 1) AS found`;
  const { rows } = await db.pool.query<{ name: string; found: string[] }>({
    name: `rows ${where}`,
    text: tables.map(({ name }) => of(name)).join(' UNION ALL '),
    values,
  });
  return Object.fromEntries(rows.map(({ name, found }) => [name, found]));
}

export const rowsOfTenant = (db: Db, tenantId: string) => readRows(db, 'WHERE tenant_id = $1', [tenantId]);
export const allRows = (db: Db) => readRows(db, '', []);
