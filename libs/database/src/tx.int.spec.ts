import { DatabaseUnavailable, LockTimeout, OutcomeUnknown, PoolTimeout, TenantNotFound, TransactionConflict } from '@runplane/contracts';
import { setTimeout as delay } from 'node:timers/promises';
import { openDb, type Db } from './db';
import type { Stream } from './hub';
import { column, oneRow } from './rows';
import { sql } from './sql';
import { eachInOwnTransaction, inTransaction, RestartTransaction, type Tx } from './tx';
import { z } from 'zod';
import { type Fate, type TcpProxy, assertNothingOpen, openClient, startTcpProxy, useDatabase, waitUntilBlocked } from './testing';

const database = useDatabase({ db: { poolMax: 4, lockTimeoutMs: 9_000 } });
const quick = { attempts: 3 };

let ids = 0;
const freshId = (): string => `tenant-${(ids += 1)}`;

const insert = (tx: Tx, id: string) => tx.query(sql`INSERT INTO runplane.tenants (id) VALUES (${id}::text)`);
const update = (tx: Tx, id: string) => tx.query(sql`UPDATE runplane.tenants SET settings = '{}' WHERE id = ${id}::text RETURNING id`);
const raise = (tx: Tx, sqlState: string) => tx.query(sql`SELECT public.raise(${sqlState}::text) AS v`);

async function exists(id: string): Promise<boolean> {
  return (
    await oneRow(
      database.db.sql,
      z.object({ there: column.bool }),
      sql`SELECT EXISTS (SELECT FROM runplane.tenants WHERE id = ${id}::text) AS there`,
    )
  ).there;
}

beforeAll(async () => {
  await database.db.pool.query(`
    CREATE FUNCTION public.raise(code text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'on purpose' USING ERRCODE = code; END $$;
    CREATE FUNCTION public.at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      IF NEW.id LIKE 'slow-%' THEN PERFORM pg_sleep(0.4); END IF;
      IF NEW.id LIKE 'conflict-%' THEN RAISE EXCEPTION 'on purpose' USING ERRCODE = '40001'; END IF;
      RETURN NEW;
    END $$;
    CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON runplane.tenants DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION public.at_commit();`);
});

describe('a transaction', () => {
  it('commits what its work wrote and returns its value', async () => {
    const id = freshId();
    expect(await inTransaction(database.db, async (tx) => (await insert(tx, id), 'value'))).toBe('value');
    expect(await exists(id)).toBe(true);
  });

  it('rolls back and throws what its work threw', async () => {
    const id = freshId();
    const refusal = new TenantNotFound('no', { tenantId: id });
    const refused = inTransaction(database.db, async (tx) => {
      await insert(tx, id);
      throw refusal;
    });
    await expect(refused).rejects.toBe(refusal);
    expect(await exists(id)).toBe(false);
  });

  it('is READ COMMITTED, even where the database says otherwise', async () => {
    await database.db.pool.query(
      `ALTER DATABASE ${new URL(database.url).pathname.slice(1)} SET default_transaction_isolation = 'serializable'`,
    );
    const db = await openDb({ url: database.url });
    try {
      const isolation = await inTransaction(db, (tx) => tx.query(sql`SELECT current_setting('transaction_isolation') AS v`));
      expect(isolation).toEqual([{ v: 'read committed' }]);
    } finally {
      await db.close();
      await database.db.pool.query(`ALTER DATABASE ${new URL(database.url).pathname.slice(1)} RESET default_transaction_isolation`);
    }
  });

  it.each(['40001', '40P01'])('starts over after %s, and what the first attempt wrote is gone', async (sqlState) => {
    const written: string[] = [];
    await inTransaction(database.db, async (tx) => {
      const id = freshId();
      written.push(id);
      await insert(tx, id);
      if (written.length === 1) await raise(tx, sqlState);
    });
    expect(await Promise.all(written.map(exists))).toEqual([false, true]);
  });

  it('starts over when an operation asks for it', async () => {
    let attempts = 0;
    await inTransaction(database.db, () => {
      attempts += 1;
      return attempts < 3 ? Promise.reject(new RestartTransaction()) : Promise.resolve();
    });
    expect(attempts).toBe(3);
  });

  it('starts over after a conflict that only COMMIT shows, and gives up after its attempts', async () => {
    let attempts = 0;
    const conflict = inTransaction(database.db, (tx) => insert(tx, `conflict-${(attempts += 1)}`), quick);
    await expect(conflict).rejects.toThrow(TransactionConflict);
    await expect(conflict).rejects.toMatchObject({ code: 'transaction_conflict', retryable: true, data: { attempts: 3 } });
    expect(attempts).toBe(3);
  });

  it('starts over after a conflict that the operation has wrapped, or hidden behind an error of its own', async () => {
    for (const hide of [(cause: unknown) => new Error('wrapped', { cause }), () => new Error('hidden')]) {
      let attempts = 0;
      await inTransaction(database.db, async (tx) => {
        attempts += 1;
        if (attempts === 1) await raise(tx, '40001').catch((error: unknown) => Promise.reject(hide(error)));
      });
      expect(attempts).toBe(2);
    }
  });

  it.each([
    ['55P03', LockTimeout],
    ['57014', DatabaseUnavailable],
    ['53200', DatabaseUnavailable],
  ])('does not start over after %s, but says that the call may be repeated', async (sqlState, kind) => {
    let attempts = 0;
    const failed = inTransaction(database.db, async (tx) => {
      attempts += 1;
      await raise(tx, sqlState);
    });
    await expect(failed).rejects.toThrow(kind);
    expect(attempts).toBe(1);
  });

  it('fails when the operation goes on after a failed statement: PostgreSQL would answer COMMIT with a silent rollback', async () => {
    const id = freshId();
    const silent = inTransaction(database.db, async (tx) => {
      await insert(tx, id);
      await insert(tx, id).catch(() => undefined);
    });
    await expect(silent).rejects.toThrow('a statement failed, and the operation went on');
    expect(await exists(id)).toBe(false);
  });

  it('cannot be used after its end', async () => {
    const kept = await inTransaction(database.db, (tx) => Promise.resolve(tx));
    await expect(kept.query(sql`SELECT 1 AS v`)).rejects.toThrow('this transaction has ended');
    expect(() => {
      kept.changed('feed');
    }).toThrow('this transaction has ended');
  });

  it('two deadlocked transactions both commit', async () => {
    const [a, b] = [freshId(), freshId()];
    await inTransaction(database.db, async (tx) => (await insert(tx, a), insert(tx, b)));
    let both: () => void;
    const met = new Promise<void>((resolve) => (both = resolve));
    let arrived = 0;
    const crossing = (first: string, second: string) =>
      inTransaction(database.db, async (tx) => {
        await update(tx, first);
        arrived += 1;
        if (arrived === 2) both();
        await met;
        await update(tx, second);
      });
    await Promise.all([crossing(a, b), crossing(b, a)]);
    expect(arrived).toBeGreaterThan(2);
  });
});

describe('hints', () => {
  let told: Stream[][];
  let restore: () => void;
  beforeEach(() => {
    told = [];
    const spy = jest.spyOn(database.db.hub, 'changed').mockImplementation((streams) => {
      if (streams.length > 0) told.push([...streams]);
    });
    restore = () => {
      spy.mockRestore();
    };
  });
  afterEach(() => {
    restore();
  });

  it('are sent after COMMIT, once for each stream', async () => {
    const id = freshId();
    await inTransaction(database.db, async (tx) => {
      await insert(tx, id);
      for (const stream of ['feed', 'run:t/1', 'feed'] as const) tx.changed(stream);
      expect(told).toEqual([]);
    });
    expect(told).toEqual([['feed', 'run:t/1']]);
  });

  it('are not sent after a rollback, nor those of an attempt that started over', async () => {
    let attempts = 0;
    await inTransaction(database.db, async (tx) => {
      attempts += 1;
      tx.changed(`run:t/${attempts}`);
      if (attempts === 1) await raise(tx, '40001');
    });
    await inTransaction(database.db, (tx) => {
      tx.changed('feed');
      return Promise.reject(new Error('no'));
    }).catch(() => undefined);
    expect(told).toEqual([['run:t/2']]);
  });
});

describe('a wait', () => {
  /** A store handle that waits for locks and statements less than a test lasts. */
  const impatiently = async (work: (db: Db) => Promise<void>): Promise<void> => {
    const db = await openDb({ url: database.url, lockTimeoutMs: 300, statementTimeoutMs: 1_000 });
    await work(db).finally(() => db.close());
  };

  it('for a locked row ends with LockTimeout below the transaction’s time, inside a transaction and alone', async () => {
    const id = freshId();
    await inTransaction(database.db, (tx) => insert(tx, id));
    const holder = await openClient(database.url);
    await holder.query('BEGIN');
    await holder.query('SELECT FROM runplane.tenants WHERE id = $1 FOR UPDATE', [id]);
    try {
      await impatiently(async (db) => {
        await expect(inTransaction(db, (tx) => update(tx, id))).rejects.toThrow(LockTimeout);
        for (const executor of [db.sql, db.lane]) {
          await expect(executor.query(sql`UPDATE runplane.tenants SET settings = '{}' WHERE id = ${id}::text`)).rejects.toThrow(
            LockTimeout,
          );
        }
      });
    } finally {
      await holder.end();
    }
    await inTransaction(database.db, (tx) => update(tx, id));
  });

  it('for a row that is released in time is no error', async () => {
    const id = freshId();
    await inTransaction(database.db, (tx) => insert(tx, id));
    const holder = await openClient(database.url);
    await holder.query('BEGIN');
    await holder.query('SELECT FROM runplane.tenants WHERE id = $1 FOR UPDATE', [id]);
    const waiting = inTransaction(database.db, (tx) => update(tx, id));
    await waitUntilBlocked(database.db, 1);
    await holder.query('COMMIT');
    await holder.end();
    expect(await waiting).toEqual([{ id }]);
  });

  it('for a connection ends with PoolTimeout, and the one that came too late is no open transaction in the pool', async () => {
    let letGo: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (letGo = resolve));
    const holders = Array.from({ length: 4 }, () => inTransaction(database.db, () => held));
    await delay(50);

    const late = Array.from({ length: 6 }, () => inTransaction(database.db, () => Promise.resolve(), { maxWaitMs: 50 }));

    for (const one of late) await expect(one).rejects.toThrow(PoolTimeout);
    letGo();
    await Promise.all(holders);
    await assertNothingOpen(database.db.pool); // it gives what came too late a moment to be rolled back
  });

  it('for a statement without end is cut by the server', async () => {
    await impatiently(async (db) => {
      await expect(inTransaction(db, (tx) => tx.query(sql`SELECT 1 AS v FROM pg_sleep(60)`))).rejects.toThrow(DatabaseUnavailable);
      await expect(db.sql.query(sql`SELECT 1 AS v FROM pg_sleep(60)`)).rejects.toThrow(DatabaseUnavailable);
    });
  });

  it('that makes the transaction too old ends in a rollback', async () => {
    const id = freshId();
    const slow = inTransaction(
      database.db,
      async (tx) => {
        await insert(tx, id);
        await delay(150);
        await update(tx, id);
      },
      { timeoutMs: 100 },
    );
    await expect(slow).rejects.toThrow(DatabaseUnavailable);
    expect(await exists(id)).toBe(false);
  });

  it('at COMMIT beyond the transaction’s time says truly whether the row is there', async () => {
    const id = `slow-${freshId()}`;
    const outcome = await inTransaction(database.db, (tx) => insert(tx, id), { timeoutMs: 200 }).then(
      () => 'committed',
      (error: unknown) => error,
    );
    await delay(500);
    if (outcome === 'committed') expect(await exists(id)).toBe(true);
    else if (!(outcome instanceof OutcomeUnknown)) expect(await exists(id)).toBe(false);
  });
});

describe('a connection that breaks', () => {
  let proxy: TcpProxy;
  let db: Db;
  beforeEach(async () => {
    proxy = await startTcpProxy(database.url);
    db = await openDb({ url: proxy.through(database.url), preparedStatements: false, onError: () => undefined });
  });
  afterEach(async () => {
    proxy.judge(() => 'forward');
    await db.close();
    await proxy.close();
  });

  /** The fate of the packet with this word, once. */
  const once = (word: string, fate: Fate): void => {
    proxy.judge((bytes) => {
      if (!bytes.includes(word)) return 'forward';
      proxy.judge(() => 'forward');
      return fate;
    });
  };

  it.each(['lose-request', 'lose-answer'] as const)('before COMMIT (%s) leaves nothing behind and says so', async (fate) => {
    const id = freshId();
    once('UPDATE', fate);
    await expect(inTransaction(db, async (tx) => (await insert(tx, id), update(tx, id)))).rejects.toThrow(DatabaseUnavailable);
    expect(await exists(id)).toBe(false);
  });

  it.each([
    ['lose-request', false],
    ['lose-answer', true],
  ] as const)('at COMMIT (%s) leaves the outcome unknown; no success is reported, nothing is repeated', async (fate, committed) => {
    const id = freshId();
    let attempts = 0;
    once('COMMIT', fate);
    const outcome = inTransaction(db, (tx) => ((attempts += 1), insert(tx, id)));
    await expect(outcome).rejects.toThrow(OutcomeUnknown);
    await delay(50);
    expect([attempts, await exists(id)]).toEqual([1, committed]);
    await inTransaction(db, (tx) => update(tx, id)); // the pool has recovered
  });

  it.each([
    ['lose-request', false],
    ['lose-answer', true],
  ] as const)('in a writing statement of its own (%s) leaves the outcome unknown', async (fate, committed) => {
    const id = freshId();
    once('INSERT', fate);
    await expect(db.sql.query(sql`INSERT INTO runplane.tenants (id) VALUES (${id}::text)`)).rejects.toThrow(OutcomeUnknown);
    await delay(50);
    expect(await exists(id)).toBe(committed);
  });

  it('in a reading statement has written nothing', async () => {
    once('pg_sleep', 'lose-answer');
    await expect(db.sql.query(sql`SELECT 1 AS v FROM pg_sleep(0)`)).rejects.toThrow(DatabaseUnavailable);
    expect(await db.sql.query(sql`SELECT 1 AS v`)).toEqual([{ v: 1 }]);
  });

  it('before anything was sent has written nothing', async () => {
    await proxy.close();
    await expect(db.lane.query(sql`INSERT INTO runplane.tenants (id) VALUES ('never')`)).rejects.toMatchObject({ retryable: true });
    const refused = openDb({ url: proxy.through(database.url), onError: () => undefined });
    await expect(refused).rejects.toThrow(DatabaseUnavailable);
    proxy = await startTcpProxy(database.url);
  });
});

it('a facade runs each call in a transaction of its own', async () => {
  const facade = eachInOwnTransaction(database.db, {
    addTenant: async (tx: Tx, id: string): Promise<{ id: string }> => (await insert(tx, id), { id }),
    countTenants: async (tx: Tx) => (await tx.query(sql`SELECT count(*)::int AS n FROM runplane.tenants`)).length,
  });
  const id = freshId();
  const added: { id: string } = await facade.addTenant(id);
  expect(added).toEqual({ id });
  const count: number = await facade.countTenants();
  expect(count).toBe(1);
  // @ts-expect-error the operation takes a text
  await facade.addTenant(7).catch(() => undefined);
});
