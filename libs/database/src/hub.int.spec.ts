import { setTimeout as delay } from 'node:timers/promises';
import { openDb, type Db, type DbOptions } from './db';
import type { Stream, StreamProbe } from './hub';
import { sql } from './sql';
import { readStore } from './store';
import { type TcpProxy, eventually, startTcpProxy, useDatabase } from './testing';

const database = useDatabase();

/** Far above every delay of the hub, far below a test's time: an answer before it came from what the test is about. */
const PATIENCE = { timeoutMs: 60_000 };
/** A safety poll that never comes, where a test is about hints. */
const NEVER_MS = 3_600_000;

// A table of the test's own, with a counter for each stream, stands for our aggregates.
const probe: StreamProbe = {
  kind: 'thing',
  async versionsOf(on, keys) {
    const found = await on.query(sql`SELECT id, version::text AS version FROM public.things WHERE id = ANY(${[...keys]}::text[])`);
    return new Map(found.map(({ id, version }) => [String(id), String(version)]));
  },
};
const advance = (id: string) =>
  database.db.pool.query('INSERT INTO public.things (id) VALUES ($1) ON CONFLICT (id) DO UPDATE SET version = things.version + 1', [id]);

const opened: Db[] = [];
async function openProcess(hub: DbOptions['hub'], options: Partial<DbOptions> = {}): Promise<Db> {
  const db = await openDb({ url: database.url, onError: () => undefined, ...options, hub });
  opened.push(db);
  db.hub.addProbe(probe);
  await db.hub.start();
  return db;
}

async function listeners(applicationName: string): Promise<number> {
  const { rows } = await database.db.pool.query('SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name = $1', [
    `${applicationName}-listener`,
  ]);
  return rows[0].n;
}

beforeAll(() => database.db.pool.query('CREATE TABLE public.things (id text PRIMARY KEY, version bigint NOT NULL DEFAULT 1)'));
afterEach(() => Promise.all(opened.splice(0).map((db) => db.close())));

describe('a hint', () => {
  it('wakes who waits in the same process at once, also when the hub was not started', async () => {
    const subscription = database.db.hub.subscribe('run:t/1');
    const wait = subscription.next(PATIENCE);
    database.db.changed(['run:t/1', 'feed']);
    expect(await wait).toBe('changed');
    subscription.close();
  });

  it('wakes who waits in another process, and nobody who waits for something else', async () => {
    const there = await openProcess({ pollMs: NEVER_MS });
    const [meant, other] = [there.hub.subscribe('session:t/会话 1'), there.hub.subscribe('session:t/会话 2')];
    const wait = meant.next(PATIENCE);

    database.db.changed(['session:t/会话 1']);

    expect(await wait).toBe('changed');
    expect(await other.next({ timeoutMs: 0 })).toBe('timeout');
  });

  it('is one of many in one notification', async () => {
    const here = await openProcess({ pollMs: NEVER_MS });
    const there = await openProcess({ pollMs: NEVER_MS });
    const last = there.hub.subscribe('run:t/199');
    const wait = last.next(PATIENCE);

    for (let number = 0; number < 200; number += 1) here.changed([`run:t/${number}`, 'feed']);

    expect(await wait).toBe('changed');
    await eventually(() => here.hub.stats.notificationsSent === 1);
    expect(there.hub.stats.notificationsReceived).toBe(1);
  });

  it('goes out at once when none has for a while; those that follow closely gather until they may', async () => {
    const there = await openProcess({ pollMs: NEVER_MS });
    const [first, last] = [there.hub.subscribe('run:t/first'), there.hub.subscribe('run:t/99')];
    const here = await openDb({ url: database.url, hub: { notifyEveryMs: NEVER_MS } });
    here.changed(['run:t/first']);
    expect(await first.next(PATIENCE)).toBe('changed');

    for (let number = 0; number < 100; number += 1) {
      here.changed([`run:t/${number}`]);
      await delay(0); // each may be sent by itself
    }
    await eventually(() => here.hub.stats.notificationsSent === 1);
    await here.close(); // which sends what waits

    expect(await last.next(PATIENCE)).toBe('changed');
    expect(there.hub.stats.notificationsReceived).toBe(2);
  });

  it('for many long names goes out in several, none refused by the server', async () => {
    const there = await openProcess({ pollMs: NEVER_MS });
    const streams = Array.from({ length: 300 }, (_, number): Stream => `session:t/${'会'.repeat(60)}${number}`);
    const subscriptions = streams.map((stream) => there.hub.subscribe(stream));
    const waits = subscriptions.map((subscription) => subscription.next(PATIENCE));
    const here = await openProcess({ pollMs: NEVER_MS });

    here.changed(streams);

    expect(new Set(await Promise.all(waits))).toEqual(new Set(['changed']));
    await eventually(() => here.hub.stats.notificationsSent > 1);
    expect(here.hub.stats).toMatchObject({ notifyFailures: 0 });
  });

  it('that was sent just before the end still arrives', async () => {
    const there = await openProcess({ pollMs: NEVER_MS });
    const wait = there.hub.subscribe('feed').next(PATIENCE);
    const here = await openDb({ url: database.url });
    here.changed(['feed']);
    await here.close();
    expect(await wait).toBe('changed');
  });

  it('that cannot be sent is reported and never thrown', async () => {
    const errors: string[] = [];
    const db = await openDb({ url: database.url, onError: (_, where) => void errors.push(where) });
    await db.pool.end();
    const wait = db.hub.subscribe('feed').next(PATIENCE);
    db.changed(['feed']);
    expect(await wait).toBe('changed');
    await eventually(() => errors.length > 0);
    expect(errors).toEqual(['hints']);
    expect(db.hub.stats).toMatchObject({ notifyFailures: 1 });
    await db.hub.close();
    await db.prisma.$disconnect();
  });

  it('of somebody else on the same channel is passed over', async () => {
    const there = await openProcess({ pollMs: NEVER_MS });
    const wait = there.hub.subscribe('feed').next(PATIENCE);
    await database.db.pool.query(`SELECT pg_notify('runplane_changes', 'not ours'), pg_notify('runplane_changes', '')`);
    database.db.changed(['feed']);
    expect(await wait).toBe('changed');
    expect(there.hub.stats.notificationsReceived).toBe(3);
  });
});

describe('the safety poll', () => {
  it('finds a change that nobody told of', async () => {
    const there = await openProcess({ pollMs: 50 });
    await advance('silent');
    const subscription = there.hub.subscribe('thing:silent');
    expect(await subscription.next(PATIENCE)).toBe('changed'); // the first look
    const wait = subscription.next(PATIENCE);
    await eventually(() => there.hub.stats.polls > 2);
    await advance('silent');
    expect(await wait).toBe('changed');
  });

  it('says nothing while nothing changes', async () => {
    const there = await openProcess({ pollMs: 20 });
    await advance('quiet');
    const subscription = there.hub.subscribe('thing:quiet');
    expect(await subscription.next(PATIENCE)).toBe('changed');
    expect(await subscription.next({ timeoutMs: 200 })).toBe('timeout');
  });

  it('finds that a stream has come into being', async () => {
    const there = await openProcess({ pollMs: 20 });
    const subscription = there.hub.subscribe('thing:new');
    expect(await subscription.next(PATIENCE)).toBe('changed');
    const wait = subscription.next(PATIENCE);
    await advance('new');
    expect(await wait).toBe('changed');
  });

  it('asks for all streams in one statement, and for none when nobody waits', async () => {
    const asked: number[] = [];
    const there = await openProcess({ pollMs: 20 });
    there.hub.addProbe({ kind: 'counted', versionsOf: (_, keys) => (asked.push(keys.length), Promise.resolve(new Map())) });
    await delay(100);
    expect(asked).toEqual([]);
    const subscriptions = Array.from({ length: 500 }, (_, number) => there.hub.subscribe(`counted:${number}`));
    await eventually(() => asked.length > 0);
    expect(new Set(asked)).toEqual(new Set([500]));
    for (const subscription of subscriptions) subscription.close();
  });

  it('lives on after a failure, which it reports once', async () => {
    const errors: string[] = [];
    let failing = true;
    const there = await openProcess({ pollMs: 20 }, { onError: (_, where) => void errors.push(where) });
    there.hub.addProbe({
      kind: 'broken',
      versionsOf: () => (failing ? Promise.reject(new Error('on purpose')) : Promise.resolve(new Map([['x', '1']]))),
    });
    const wait = there.hub.subscribe('broken:x').next(PATIENCE);
    await eventually(() => there.hub.stats.pollFailures > 3);
    expect(errors).toEqual(['safety poll']);
    failing = false;
    expect(await wait).toBe('changed');
  });
});

describe('the listener', () => {
  it('is one connection for each process, however many wait', async () => {
    const there = await openProcess({ pollMs: NEVER_MS }, { applicationName: 'crowd' });
    const subscriptions = Array.from({ length: 2_000 }, (_, number) => there.hub.subscribe(`run:t/${number}`));
    const waits = subscriptions.map((subscription) => subscription.next(PATIENCE));

    expect(await listeners('crowd')).toBe(1);
    expect(there.pool.totalCount - there.pool.idleCount).toBe(0);
    expect(await there.sql.query(sql`SELECT 1 AS v`)).toEqual([{ v: 1 }]);

    await there.hub.close();
    expect(new Set(await Promise.all(waits))).toEqual(new Set(['closed']));
    expect(there.hub.stats).toMatchObject({ subscriptions: 0, streams: 0, connected: false });
  });

  it('comes back after its connection was killed, wakes everybody, and hears again', async () => {
    const there = await openProcess({ pollMs: NEVER_MS, reconnectMinMs: 10 }, { applicationName: 'killed' });
    const subscription = there.hub.subscribe('feed');
    const wait = subscription.next(PATIENCE);

    await database.db.pool.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'killed-listener'`);

    expect(await wait).toBe('changed');
    await eventually(async () => (await listeners('killed')) === 1); // the dead one may still be on its way out
    expect(there.hub.stats).toMatchObject({ connected: true, reconnects: 1 });
    database.db.changed(['feed']);
    expect(await subscription.next(PATIENCE)).toBe('changed');
  });

  it('that comes back looks whether the server is still the one that the store knows', async () => {
    const there = await openProcess({ pollMs: NEVER_MS, reconnectMinMs: 10 }, { applicationName: 'promoted' });
    const { storeId } = await readStore(there.sql);
    await database.db.pool.query('UPDATE runplane.store SET timeline = timeline + 1');
    await database.db.pool.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'promoted-listener'`);
    await eventually(async () => (await readStore(there.sql)).txOffset > 0n);
    expect(await readStore(there.sql)).toMatchObject({ storeId });
  });

  describe('behind a network that swallows everything', () => {
    let proxy: TcpProxy;
    beforeEach(async () => {
      proxy = await startTcpProxy(database.url);
    });
    afterEach(async () => {
      await Promise.all(opened.splice(0).map((db) => db.close()));
      await proxy.close();
    });

    it('notices, comes back when it can, and until then the safety poll answers', async () => {
      const there = await openProcess(
        { pollMs: 50, keepAliveMs: 50, keepAliveTimeoutMs: 1_000, reconnectMinMs: 10, reconnectMaxMs: 50 },
        { applicationName: 'swallowed', directUrl: proxy.through(database.url), connectTimeoutMs: 15_000 },
      );
      await advance('lone');
      const subscription = there.hub.subscribe('thing:lone');
      expect(await subscription.next(PATIENCE)).toBe('changed');

      proxy.swallow();
      await eventually(() => !there.hub.stats.connected);
      const blind = subscription.next(PATIENCE);
      await advance('lone');
      expect(await blind).toBe('changed');

      proxy.heal();
      await eventually(() => there.hub.stats.connected);
      expect(there.hub.stats.reconnects).toBe(1);
      const wait = there.hub.subscribe('feed').next(PATIENCE);
      database.db.changed(['feed']);
      expect(await wait).toBe('changed');
      await eventually(async () => (await listeners('swallowed')) === 1);
    });

    it('does not keep the process from ending', async () => {
      const there = await openProcess({ pollMs: NEVER_MS }, { directUrl: proxy.through(database.url) });
      const wait = there.hub.subscribe('feed').next(PATIENCE);
      proxy.swallow();
      const began = performance.now();
      await there.close();
      expect(await wait).toBe('closed');
      expect(performance.now() - began).toBeLessThan(10_000);
    });
  });

  it('is opened once, however often the hub is started', async () => {
    const there = await openProcess({ pollMs: NEVER_MS }, { applicationName: 'twice' });
    await Promise.all([there.hub.start(), there.hub.start()]);
    expect(await listeners('twice')).toBe(1);
  });

  it('that cannot connect at start says so', async () => {
    const db = await openDb({ url: database.url, directUrl: 'postgresql://nobody@127.0.0.1:1/none' });
    await expect(db.hub.start()).rejects.toThrow(/ECONNREFUSED/);
    await db.close();
  });
});
