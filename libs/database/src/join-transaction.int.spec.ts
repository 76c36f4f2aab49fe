import { PrismaPg } from '@prisma/adapter-pg';
import { LockTimeout, NotInTransaction, TransactionConflict, WrongIsolation } from '@runplane/contracts';
import pg from 'pg';
import { PrismaClient } from './generated/client';
import { joinTransaction } from './join-transaction';
import { insertedRow, takingLock } from './lock-order';
import { sql } from './sql';
import { openClient, useDatabase, waitUntilBlocked } from './testing';
import type { Tx } from './tx';

const database = useDatabase();

// A team beside us: its own table, its own pool, its own client.
let theirPool: pg.Pool;
let theirPrisma: PrismaClient;
beforeAll(async () => {
  theirPool = new pg.Pool({ connectionString: database.url, max: 2 });
  theirPrisma = new PrismaClient({ adapter: new PrismaPg(theirPool) });
  await theirPool.query('CREATE TABLE public.orders (id text PRIMARY KEY)');
  await theirPool.query(
    `CREATE FUNCTION public.raise(code text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = code; END $$`,
  );
});
afterAll(async () => {
  await theirPrisma.$disconnect();
  await theirPool.end();
});

/** What an operation of ours does with its Tx. */
async function ourOperation(tx: Tx, id: string): Promise<void> {
  takingLock(tx, 'newKey', id);
  await tx.query(sql`INSERT INTO runplane.tenants (id) VALUES (${id}::text) ON CONFLICT (id) DO NOTHING`);
  insertedRow(tx, 'run', id);
  tx.changed(`run:${id}/1`);
}

async function present(id: string): Promise<{ order: boolean; tenant: boolean }> {
  const { rows } = await theirPool.query(
    'SELECT EXISTS (SELECT FROM public.orders WHERE id = $1) AS order, EXISTS (SELECT FROM runplane.tenants WHERE id = $1) AS tenant',
    [id],
  );
  return rows[0];
}

/** The two ways in which a team opens a transaction; `work` runs in it, and its error rolls back. */
const teams: [
  string,
  (work: (theirs: Parameters<typeof joinTransaction>[1], write: (id: string) => Promise<unknown>) => Promise<void>) => Promise<void>,
][] = [
  [
    'a Prisma transaction',
    (work) => theirPrisma.$transaction((client) => work(client, (id) => client.$executeRaw`INSERT INTO public.orders (id) VALUES (${id})`)),
  ],
  [
    'a connection of pg',
    async (work) => {
      const client = await theirPool.connect();
      try {
        await client.query('BEGIN');
        await work(client, (id) => client.query('INSERT INTO public.orders (id) VALUES ($1)', [id]));
        await client.query('COMMIT');
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    },
  ],
];

describe.each(teams)('%s of a team’s own', (kind, inTheirTransaction) => {
  const id = (name: string): string => `${name}-${kind.split(' ')[1]}`;

  it('commits their row and ours together, and then tells who waits', async () => {
    const subscription = database.db.hub.subscribe(`run:${id('together')}/1`);
    let committed: () => void = () => undefined;

    await inTheirTransaction(async (theirs, write) => {
      const joined = await joinTransaction(database.db, theirs);
      await write(id('together'));
      await ourOperation(joined.tx, id('together'));
      committed = () => {
        joined.committed();
      };
      expect(await subscription.next({ timeoutMs: 0 })).toBe('timeout');
    });
    committed();

    expect(await present(id('together'))).toEqual({ order: true, tenant: true });
    expect(await subscription.next({ timeoutMs: 0 })).toBe('changed');
    committed();
    expect(await subscription.next({ timeoutMs: 0 })).toBe('timeout');
    subscription.close();
  });

  it('rolls their row and ours back together', async () => {
    const abandoned = inTheirTransaction(async (theirs, write) => {
      const { tx } = await joinTransaction(database.db, theirs);
      await ourOperation(tx, id('abandoned'));
      await write(id('abandoned'));
      throw new Error('changed their mind');
    });
    await expect(abandoned).rejects.toThrow('changed their mind');
    expect(await present(id('abandoned'))).toEqual({ order: false, tenant: false });
  });

  it('keeps its settings and has no savepoint left', async () => {
    await inTheirTransaction(async (theirs) => {
      const { tx } = await joinTransaction(database.db, theirs);
      const settings = sql`SELECT json_object_agg(name, setting ORDER BY name)::text AS v FROM pg_settings WHERE source = 'session' AND name <> 'application_name'`;
      const before = await tx.query(settings);
      await joinTransaction(database.db, theirs);
      await ourOperation(tx, id('settings'));
      expect(await tx.query(settings)).toEqual(before);
      await expect(tx.query(sql`ROLLBACK TO SAVEPOINT runplane_join`)).rejects.toThrow(/runplane_join/);
    }).catch(() => undefined);
  });

  it.each([
    ['40001', TransactionConflict],
    ['40P01', TransactionConflict],
    ['55P03', LockTimeout],
  ])('gets %s as a retryable error; nothing is repeated here', async (sqlState, errorKind) => {
    let calls = 0;
    const failed = inTheirTransaction(async (theirs) => {
      const { tx } = await joinTransaction(database.db, theirs);
      calls += 1;
      await tx.query(sql`SELECT public.raise(${sqlState}::text) AS v`);
    });
    await expect(failed).rejects.toThrow(errorKind);
    await expect(failed).rejects.toMatchObject({ retryable: true });
    expect(calls).toBe(1);
  });

  it('waits for locks as our own transactions do', async () => {
    const holder = await openClient(database.url);
    await holder.query('BEGIN');
    await holder.query('INSERT INTO runplane.tenants (id) VALUES ($1)', [id('twin')]);
    const waiting = inTheirTransaction(async (theirs) => {
      await ourOperation((await joinTransaction(database.db, theirs)).tx, id('twin'));
    });
    await waitUntilBlocked(database.db, 1);
    await holder.query('COMMIT');
    await holder.end();
    await waiting;
  });

  it('keeps the lock order', async () => {
    await inTheirTransaction(async (theirs) => {
      const { tx } = await joinTransaction(database.db, theirs);
      takingLock(tx, 'session', 's');
      expect(() => {
        takingLock(tx, 'run', 'r');
      }).toThrow('run r is locked after session s');
    });
  });

  it('cannot be used through us after it was declared committed', async () => {
    await inTheirTransaction(async (theirs) => {
      const { tx, committed } = await joinTransaction(database.db, theirs);
      committed();
      await expect(tx.query(sql`SELECT 1 AS v`)).rejects.toThrow('this transaction has ended');
    });
  });
});

describe('joinTransaction refuses', () => {
  it('a Prisma client outside of a transaction', async () => {
    await expect(joinTransaction(database.db, theirPrisma)).rejects.toThrow(NotInTransaction);
  });

  it('a connection of pg before BEGIN', async () => {
    const client = await openClient(database.url);
    await expect(joinTransaction(database.db, client)).rejects.toThrow(NotInTransaction);
    await client.end();
  });

  it('a pool', async () => {
    await expect(joinTransaction(database.db, theirPool)).rejects.toThrow(NotInTransaction);
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])('an isolation of %s, in which a lock shows rows of before the lock', async (isolation) => {
    const client = await openClient(database.url);
    await client.query(`BEGIN ISOLATION LEVEL ${isolation}`);
    await expect(joinTransaction(database.db, client)).rejects.toThrow(WrongIsolation);
    await client.end();
  });

  it('a transaction that has failed already', async () => {
    const client = await openClient(database.url);
    await client.query('BEGIN');
    await client.query('SELECT nothing').catch(() => undefined);
    await expect(joinTransaction(database.db, client)).rejects.toThrow(/current transaction is aborted/);
    await client.end();
  });
});
