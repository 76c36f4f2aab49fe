import type { Db } from '@runplane/database';

/** Every row of every table, as text with the transaction that wrote it; a table's rows in a fixed order. */
async function readRows(db: Db, where: string, values: unknown[]): Promise<Record<string, string[]>> {
  const { rows: tables } = await db.pool.query<{ name: string }>(
    `SELECT c.relname AS name FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant_id'
      WHERE c.relnamespace = 'runplane'::regnamespace AND c.relkind = 'r' AND c.relname <> 'api_keys' ORDER BY 1`,
  );
  const found: Record<string, string[]> = {};
  for (const { name } of tables) {
    const { rows } = await db.pool.query<{ row: string }>(
      `SELECT t.xmin::text || ' ' || to_json(t)::text AS row FROM runplane.${name} t ${where} ORDER BY 1`,
      values,
    );
    found[name] = rows.map(({ row }) => row);
  }
  return found;
}

export const rowsOfTenant = (db: Db, tenantId: string) => readRows(db, 'WHERE tenant_id = $1', [tenantId]);
export const allRows = (db: Db) => readRows(db, '', []);
