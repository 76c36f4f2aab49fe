import type { Db, Sql } from '@runplane/database';
import pg from 'pg';

/** The store handle with a record of the statements that operations send alone, by their text. */
export function recording(db: Db): { db: Db; statements: Map<string, Sql> } {
  const statements = new Map<string, Sql>();
  const recorder = {
    query: (statement: Sql) => {
      statements.set(statement.text, statement);
      return db.sql.query(statement);
    },
  };
  return { db: { ...db, sql: recorder, lane: recorder }, statements };
}

/** A statement as EXECUTE needs it, prepared under a name. */
export function prepared({ text, values }: Sql, name: string): { prepare: string; execute: string } {
  const literals = values.length === 0 ? '' : `(${values.map(literal).join(', ')})`;
  return { prepare: `PREPARE ${name} AS ${text}`, execute: `EXECUTE ${name} ${literals}` };
}

function literal(value: unknown): string {
  if (value === null) return 'NULL';
  if (Array.isArray(value))
    return pg.escapeLiteral(`{${value.map((each) => (each === null ? 'NULL' : JSON.stringify(String(each)))).join(',')}}`);
  return pg.escapeLiteral(typeof value === 'string' ? value : JSON.stringify(value));
}

/** How many pages of 8 kB a statement touches, planned for any parameters; it is run and rolled back. */
export async function pagesTouched(admin: pg.Pool, statement: Sql): Promise<number> {
  const client = await admin.connect();
  try {
    await client.query('BEGIN; SET LOCAL plan_cache_mode = force_generic_plan');
    const { prepare, execute } = prepared(statement, 'counted');
    await client.query(prepare);
    interface Buffers {
      readonly 'Shared Hit Blocks': number;
      readonly 'Shared Read Blocks': number;
    }
    const { rows } = await client.query<{ 'QUERY PLAN': [{ Plan: Buffers }] }>(
      `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) ${execute}`,
    );
    await client.query('ROLLBACK; DEALLOCATE counted');
    const plan = rows[0]?.['QUERY PLAN'][0].Plan;
    return plan === undefined ? Number.NaN : plan['Shared Hit Blocks'] + plan['Shared Read Blocks'];
  } finally {
    client.release();
  }
}
