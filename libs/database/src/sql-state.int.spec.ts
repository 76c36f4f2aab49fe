import { DatabaseUnavailable, LockTimeout, TransactionConflict } from '@runplane/contracts';
import { databaseError } from './database-error';
import { queryPg, queryPrisma } from './executors';
import { sql } from './sql';
import { constraintOf, isConnectionLoss, isRetryable, sqlStateOf } from './sql-state';
import { openClient, useDatabase } from './testing';

const database = useDatabase({ db: { poolMax: 4 } });

// A table of the test's own whose triggers raise the SQLSTATE that a row names, at once or at COMMIT. It replaces no table of ours: model
// calls reach it through runplane.tenants, whose insert it watches.
beforeAll(async () => {
  await database.db.pool.query(`
    CREATE FUNCTION public.raise_named() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.id LIKE 'now-%' AND TG_NAME = 'at_once' OR NEW.id LIKE 'commit-%' AND TG_NAME = 'at_commit' THEN
        RAISE EXCEPTION 'raised on purpose' USING ERRCODE = right(NEW.id, 5);
      END IF;
      RETURN NEW;
    END $$;
    CREATE TRIGGER at_once BEFORE INSERT ON runplane.tenants FOR EACH ROW EXECUTE FUNCTION public.raise_named();
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON runplane.tenants DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION public.raise_named();`);
});

const insert = (id: string) => sql`INSERT INTO runplane.tenants (id) VALUES (${id}::text)`;

/** Every way in which an error of PostgreSQL can arrive. */
const paths: [string, (sqlState: string) => Promise<unknown>][] = [
  ['a model call', (state) => database.db.prisma.tenant.create({ data: { id: `now-${state}` } })],
  ['a raw call', (state) => queryPrisma(database.db.prisma, insert(`now-${state}`))],
  [
    'a model call inside a transaction',
    (state) => database.db.prisma.$transaction((client) => client.tenant.create({ data: { id: `now-${state}` } })),
  ],
  ['a raw call inside a transaction', (state) => database.db.prisma.$transaction((client) => queryPrisma(client, insert(`now-${state}`)))],
  ['COMMIT', (state) => database.db.prisma.$transaction((client) => queryPrisma(client, insert(`commit-${state}`)))],
  ['pg itself', (state) => database.db.pool.query(`INSERT INTO runplane.tenants (id) VALUES ('now-${state}')`)],
  ['pg at COMMIT', (state) => database.db.pool.query(`INSERT INTO runplane.tenants (id) VALUES ('commit-${state}')`)],
  ['our own executor', (state) => database.db.sql.query(insert(`now-${state}`))],
  [
    'an error that wraps it',
    (state) =>
      database.db.sql.query(insert(`now-${state}`)).catch((error: unknown) => {
        throw new Error('the operation failed', { cause: new Error('the write failed', { cause: error }) });
      }),
  ],
];

async function failure(run: Promise<unknown>): Promise<unknown> {
  return run.then(
    () => undefined,
    (error: unknown) => error,
  );
}

describe.each(paths)('an error that arrives through %s', (_, fail) => {
  it.each(['40001', '40P01', '55P03', '57014', '57P01', '23505', '23503', '23514', '23502', '22P02', '42P01', 'P0001', 'ZZ999'])(
    'shows its SQLSTATE %s',
    async (state) => {
      const error = await failure(fail(state));
      expect(sqlStateOf(error)).toBe(state);
      expect(isRetryable(error)).toBe(state === '40001' || state === '40P01');
      expect(isConnectionLoss(error)).toBe(state === '57P01');
    },
  );
});

it.each([
  ['40001', TransactionConflict],
  ['40P01', TransactionConflict],
  ['55P03', LockTimeout],
  ['57014', DatabaseUnavailable],
  ['57P01', DatabaseUnavailable],
  ['53100', DatabaseUnavailable],
  ['53300', DatabaseUnavailable],
  ['25006', DatabaseUnavailable],
])('SQLSTATE %s leaves the library as one retryable error, whichever way it came', async (state, kind) => {
  for (const [, fail] of paths) {
    const error = databaseError(await failure(fail(state)), 'nothing-written');
    if (state === '57P01' && !(error instanceof kind)) continue; // a writing statement in autocommit: its outcome is not known
    expect(error).toBeInstanceOf(kind);
    expect(error).toMatchObject({ retryable: true });
    expect(sqlStateOf(error)).toBe(state);
  }
});

it.each([
  ['a duplicate key', '23505', 'tenants_pkey', `INSERT INTO runplane.tenants (id) VALUES ('twice'), ('twice')`],
  ['a broken check', '23514', 'tenants_id_is_simple', `INSERT INTO runplane.tenants (id) VALUES ('not simple')`],
  [
    'a missing parent',
    '23503',
    'api_keys_tenant_id_fkey',
    `INSERT INTO runplane.api_keys (id, tenant_id, name, key_hash) VALUES ('k', 'nobody', 'n', repeat('0', 64))`,
  ],
])('%s names its constraint, through pg and through Prisma', async (_, state, constraint, text) => {
  const client = await openClient(database.url);
  try {
    for (const error of [
      await failure(queryPg(client, { text, values: [] } as never, false)),
      await failure(database.db.prisma.$executeRawUnsafe(text)),
      await failure(database.db.prisma.$transaction((tx) => tx.$executeRawUnsafe(text))),
    ]) {
      expect(sqlStateOf(error)).toBe(state);
      expect(constraintOf(error)).toBe(constraint);
    }
  } finally {
    await client.end();
  }
});

it('a model call names its constraint too', async () => {
  await database.db.prisma.tenant.create({ data: { id: 'once' } });
  const error = await failure(database.db.prisma.tenant.create({ data: { id: 'once' } }));
  expect([sqlStateOf(error), constraintOf(error)]).toEqual(['23505', 'tenants_pkey']);
});

it.each([
  undefined,
  null,
  'text',
  7,
  {},
  new Error('x'),
  Object.assign(new Error('x'), { code: 'EPIPE' }),
  Object.assign(new Error('x'), { code: 'P2010' }),
])('what is no error of PostgreSQL (%p) has no SQLSTATE', (error) => {
  expect(sqlStateOf(error)).toBeUndefined();
  expect(constraintOf(error)).toBeUndefined();
  expect(isRetryable(error)).toBe(false);
});

it('an error that causes itself is read once', () => {
  const error = new Error('round');
  error.cause = new Error('and round', { cause: error });
  expect(sqlStateOf(error)).toBeUndefined();
});
