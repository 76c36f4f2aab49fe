import pg from 'pg';
import type { Db, Sql } from '@runplane/database';

// What a statement, as an operation sends it, touches.

/** Of 8 kB. The largest is a claim of ten intents, with 220; a scan of a filled table needs more, and grows with it. */
export const PAGES_MAX = 300;

/** The store handle with a record of its statements, those of its transactions too. */
function recording(on: Db): { db: Db; statements: Sql[] } {
  const statements: Sql[] = [];
  const recorder = {
    query: (statement: Sql) => {
      statements.push(statement);
      return on.sql.query(statement);
    },
  };
  const inTransactions = <Client extends object>(client: Client): Client =>
    new Proxy(client, {
      get: (target, name) => {
        const found: unknown = Reflect.get(target, name);
        if (name !== '$queryRawUnsafe') return found;
        return (text: string, ...values: unknown[]) => {
          statements.push({ text, values } as unknown as Sql);
          return (found as (...args: unknown[]) => unknown).call(target, text, ...values);
        };
      },
    });
  const prisma = new Proxy(on.prisma, {
    get: (target, name) => {
      if (name !== '$transaction') return Reflect.get(target, name) as unknown;
      return (work: (client: object) => Promise<unknown>, limits: object) =>
        target.$transaction((client) => work(inTransactions(client)), limits);
    },
  });
  return { db: { ...on, prisma, sql: recorder, lane: recorder }, statements };
}

// Not run_leases: it has a row for each run that is held now, and an index on its end would cost every renewal its in-page update.
const BIG_TABLES = [
  'runs',
  'run_search',
  'run_events',
  'outbox_events',
  'outbox_held',
  'outbox_blocked_keys',
  'webhook_deliveries',
  'commands',
  'dispatch_intents',
  'sessions',
  'session_heads',
  'session_events',
  'session_views',
  'context_windows',
  'context_notes',
  'context_history',
  'channel_bindings',
  'channel_deliveries',
  'queue_tasks',
  'queue_attempts',
  'submissions',
  'submission_heads',
];

export interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Shared Hit Blocks'?: number;
  readonly 'Shared Read Blocks'?: number;
  readonly Plans?: readonly PlanNode[];
}
export const nodesOf = (plan: PlanNode): PlanNode[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];
export const scansOf = (plan: PlanNode): string[] =>
  nodesOf(plan).flatMap((node) =>
    node['Node Type'] === 'Seq Scan' && BIG_TABLES.includes(node['Relation Name'] ?? '') ? [node['Relation Name'] ?? ''] : [],
  );
export const pagesOf = (plan: PlanNode): number => (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0);

function literal(value: unknown): string {
  if (value === null) return 'NULL';
  if (Array.isArray(value))
    return pg.escapeLiteral(`{${value.map((each) => (each === null ? 'NULL' : JSON.stringify(String(each)))).join(',')}}`);
  return pg.escapeLiteral(typeof value === 'string' ? value : JSON.stringify(value));
}

/** Runs a statement for its plan and rolls it back. */
export async function explain(client: pg.Client, statement: Sql, settings: Record<string, string>): Promise<PlanNode> {
  await client.query('BEGIN');
  try {
    for (const [name, value] of Object.entries(settings)) await client.query(`SET LOCAL ${name} = ${value}`);
    await client.query(`PREPARE explained AS ${statement.text}`);
    const values = statement.values.length === 0 ? '' : `(${statement.values.map(literal).join(', ')})`;
    const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE explained ${values}`);
    return (rows as { 'QUERY PLAN': { Plan: PlanNode }[] }[])[0]?.['QUERY PLAN'][0]?.Plan as PlanNode;
  } finally {
    await client.query('ROLLBACK');
    await client.query('DEALLOCATE ALL');
  }
}

export interface Hot {
  /** Calls the operation; the first of its statements that matches is meant. */
  readonly call: (db: Db) => Promise<unknown>;
  readonly statement: RegExp;
  /** The index that must serve it on a filled store. */
  readonly index?: string;
  /** Of a statement that needs more than others. */
  readonly pagesMax?: number;
  /** It counts up to so many rows: a table that has no more is as well read whole. */
  readonly counts?: number;
  /** Not sent to an empty store. */
  readonly needsRows?: true;
}

export async function statementOf(on: Db, { call, statement }: Hot): Promise<Sql> {
  const { db, statements } = recording(on);
  await call(db);
  const found = statements.find(({ text }) => statement.test(text));
  if (found === undefined) throw new Error(`none of ${statements.length} statements matches ${String(statement)}`);
  return found;
}
