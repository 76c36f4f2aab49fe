import { spawnSync } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { DatabaseUnavailable, PoolTimeout } from '@runplane/contracts';
import { openDb, type Db } from './db';
import { sql } from './sql';
import { inTransaction } from './tx';
import { eventually, openClient, startTcpProxy, useDatabase } from './testing';

const database = useDatabase({ settings: { timezone: 'America/New_York' }, db: { poolMax: 4, connectTimeoutMs: 2_000 } });

describe('time', () => {
  it('is UTC on every connection, whatever the database and the process say', async () => {
    const zone = sql`SELECT current_setting('TimeZone') AS v`;
    expect(await database.db.sql.query(zone)).toEqual([{ v: 'UTC' }]);
    expect(await database.db.lane.query(zone)).toEqual([{ v: 'UTC' }]);
    expect(await inTransaction(database.db, (tx) => tx.query(zone))).toEqual([{ v: 'UTC' }]);

    // The zone of a process is fixed when it starts.
    const program = `
      const { PrismaPg } = require('@prisma/adapter-pg');
      const pg = require('pg');
      (async () => {
        const pool = new pg.Pool({ connectionString: process.env.URL, options: '-c TimeZone=UTC' });
        const { rows } = await pool.query("SELECT runplane.wire_time(runplane.app_now()) AS now, runplane.wire_time('2026-03-08T02:30:00+02:00') AS then");
        console.log(JSON.stringify({ offset: new Date().getTimezoneOffset(), skewMs: Date.parse(rows[0].now) - Date.now(), then: rows[0].then }));
        await pool.end();
      })();`;
    const { stdout, stderr } = spawnSync(process.execPath, ['-e', program], {
      cwd: __dirname,
      env: { ...process.env, TZ: 'Asia/Tokyo', URL: database.url },
      encoding: 'utf8',
    });
    expect(stderr).toBe('');
    const said = JSON.parse(stdout) as { offset: number; skewMs: number; then: string };
    expect(said).toMatchObject({ offset: -540, then: '2026-03-08T00:30:00.000Z' });
    expect(Math.abs(said.skewMs)).toBeLessThan(60_000);
  });

  it('goes through Prisma unchanged', async () => {
    const expiresAt = new Date('2026-11-01T01:30:00.123Z'); // an hour that New York has twice
    await database.db.prisma.tenant.create({
      data: { id: 'clock', apiKeys: { create: { id: 'k', name: 'n', keyHash: '0'.repeat(64), expiresAt } } },
    });
    const key = await database.db.prisma.apiKey.findUniqueOrThrow({ where: { id: 'k' } });
    expect(key.expiresAt).toEqual(expiresAt);
    expect(Math.abs(key.createdAt.getTime() - Date.now())).toBeLessThan(60_000);
    expect(await database.db.sql.query(sql`SELECT runplane.wire_time(expires_at) AS v FROM runplane.api_keys`)).toEqual([
      { v: '2026-11-01T01:30:00.123Z' },
    ]);
  });

  it('in another zone stops the process at start, with the way out', async () => {
    const wrong = openDb({ url: database.url, startupSettings: false });
    await expect(wrong).rejects.toThrow(/TimeZone is America\/New_York, not UTC: .*ALTER ROLE/);
  });

  it('may come from the role, for a pooler that refuses start-up options', async () => {
    const name = new URL(database.url).pathname.slice(1);
    await database.db.pool.query(`ALTER ROLE CURRENT_USER IN DATABASE ${name} SET timezone = 'UTC'`);
    const db = await openDb({ url: database.url, startupSettings: false });
    expect(await db.sql.query(sql`SELECT current_setting('TimeZone') AS v`)).toEqual([{ v: 'UTC' }]);
    await db.close();
    await database.db.pool.query(`ALTER ROLE CURRENT_USER IN DATABASE ${name} RESET timezone`);
  });
});

describe('the pool', () => {
  it('needs at least two connections', async () => {
    await expect(openDb({ url: database.url, poolMax: 1 })).rejects.toThrow('poolMax is 1');
  });

  it('leaves the lane free when it is exhausted', async () => {
    let letGo: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (letGo = resolve));
    const started: (() => void)[] = [];
    const holding = Promise.all(Array.from({ length: 4 }, () => new Promise<void>((resolve) => started.push(resolve))));
    const holders = Array.from({ length: 4 }, () => inTransaction(database.db, () => (started.pop()?.(), held)));
    await holding;
    const waiting = database.db.sql.query(sql`SELECT 1 AS v`);
    waiting.catch(() => undefined);

    for (let beat = 0; beat < 20; beat += 1) await database.db.lane.query(sql`SELECT 1 AS v`); // while the pool is held

    await expect(waiting).rejects.toThrow(PoolTimeout);
    letGo();
    await Promise.all(holders);
  });

  it('keeps a connection after an error of a statement', async () => {
    const pid = sql`SELECT pg_backend_pid() AS v`;
    const before = await database.db.lane.query(pid);
    await expect(database.db.lane.query(sql`SELECT nothing`)).rejects.toThrow(/nothing/);
    expect(await database.db.lane.query(pid)).toEqual(before);
  });

  it('reports idle connections that the server closes, and goes on with new ones', async () => {
    const reported: string[] = [];
    const db = await openDb({ url: database.url, applicationName: 'idle', onError: (_, where) => void reported.push(where) });
    await db.lane.query(sql`SELECT 1 AS v`);
    await database.db.pool.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'idle%'`);
    await eventually(() => reported.length >= 2);
    expect(reported).toEqual(['idle connection', 'idle connection']);
    expect(await db.sql.query(sql`SELECT 1 AS v`)).toEqual([{ v: 1 }]);
    expect(await db.lane.query(sql`SELECT 1 AS v`)).toEqual([{ v: 1 }]);
    await db.close();
  });

  it('bounds every wait of its connections', async () => {
    const settings = sql`SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) AS v FROM pg_settings
       WHERE name IN ('lock_timeout', 'statement_timeout', 'idle_in_transaction_session_timeout')`;
    const bounded = [{ v: 'idle_in_transaction_session_timeout=60000 lock_timeout=4000 statement_timeout=15000' }];
    expect(await database.db.sql.query(settings)).toEqual(bounded);
    expect(await database.db.lane.query(settings)).toEqual(bounded);
  });

  it('closes once, however often it is asked', async () => {
    const db = await openDb({ url: database.url, applicationName: 'closing' });
    await db.hub.start();
    await Promise.all([db.close(), db.close()]);
    const left = sql`SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name LIKE 'closing%'`;
    await eventually(async () => (await database.db.sql.query(left))[0]?.['n'] === 0); // the server takes a moment to see them go
  });

  it('refuses a URL that is none without showing it', async () => {
    await expect(openDb({ url: 'postgres//u:secret@h' })).rejects.toThrow(/^((?!secret).)*$/);
  });
});

it('a statement on a connection that the network has swallowed ends, and the pool recovers', async () => {
  const proxy = await startTcpProxy(database.url);
  const db = await openDb({ url: proxy.through(database.url), statementTimeoutMs: 1_000, onError: () => undefined });
  await db.lane.query(sql`SELECT 1 AS v`);
  proxy.swallow();
  const lost = [db.sql.query(sql`SELECT 1 AS v`), db.lane.query(sql`SELECT 1 AS v`)];
  for (const one of lost) await expect(one).rejects.toThrow(DatabaseUnavailable);
  proxy.heal();
  expect(await db.sql.query(sql`SELECT 1 AS v`)).toEqual([{ v: 1 }]);
  expect(await db.lane.query(sql`SELECT 1 AS v`)).toEqual([{ v: 1 }]);
  await db.close();
  await proxy.close();
});

it('twenty connections killed at random under load leave the process alive, and every call gets an answer', async () => {
  const reported: string[] = [];
  const db = await openDb({ url: database.url, poolMax: 4, applicationName: 'victim', onError: (_, where) => void reported.push(where) });
  await db.hub.start();
  const killer = await openClient(database.url);
  let killing = true;
  let answers = 0;
  const load = async (call: (on: Db) => Promise<unknown>): Promise<void> => {
    while (killing) {
      await call(db).catch((error: unknown) => {
        expect(error).toMatchObject({ retryable: true });
      });
      answers += 1;
    }
  };
  const loads = [
    load((on) => on.sql.query(sql`SELECT 1 AS v FROM pg_sleep(0.002)`)),
    load((on) => on.lane.query(sql`SELECT 1 AS v FROM pg_sleep(0.002)`)),
    load((on) => inTransaction(on, (tx) => tx.query(sql`SELECT 1 AS v FROM pg_sleep(0.005)`))),
    load((on) => inTransaction(on, (tx) => tx.query(sql`UPDATE runplane.tenants SET settings = '{}' WHERE id = 'clock'`))),
    load((on) => on.prisma.store.count().catch(() => undefined)),
  ];

  for (let kills = 0; kills < 20;) {
    const { rowCount } = await killer.query(
      `SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'victim%' ORDER BY random() LIMIT 1) AS one`,
    );
    kills += rowCount ?? 0;
    await delay(20);
  }
  await killer.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'victim%'`);
  killing = false;
  await Promise.all(loads);

  expect(answers).toBeGreaterThan(20);
  await eventually(() => reported.includes('listener'));
  // An idle connection that was killed is met, or reports its end, once; then it is another one.
  const answersOf = (call: () => Promise<unknown>) =>
    eventually(() =>
      call().then(
        () => true,
        (error: unknown) => (expect(error).toMatchObject({ retryable: true }), false),
      ),
    );
  await answersOf(() => db.lane.query(sql`SELECT 1 AS v`));
  await answersOf(() => inTransaction(db, (tx) => tx.query(sql`SELECT 1 AS v`)));
  await killer.end();
  await db.close();
});
