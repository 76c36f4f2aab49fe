import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { ensureTenant, inTransaction, migrate, openDb, startEmbeddedPostgres, type Db, type EmbeddedPostgres } from '@runplane/database';
import { assertInvariants, waitForHorizon } from '@runplane/database/testing';
import { commitFeedConsumer, createOutbox, getFeedConsumer, readFeed, waitForFeed } from '@runplane/outbox';
import { appendRunEvents, registerRunProbes } from '@runplane/runs';
import { aClaimedRun, message, TENANT } from '@runplane/runs/testing';

// Positions of the outbox come from a sequence: rollbacks burn them, a crash skips them. A reader of the feed waits for none of those.

let dir: string;
let postgres: EmbeddedPostgres;
let db: Db;

async function open(): Promise<void> {
  db = await openDb({ url: postgres.url, onError: () => undefined });
  registerRunProbes(db);
  await db.hub.start();
}

beforeAll(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-burnt-'));
  postgres = await startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), durability: 'server-default' });
  await migrate(postgres.url);
  await open();
  await ensureTenant(db.sql, TENANT);
});
afterAll(async () => {
  await db.close();
  await postgres.stop();
  await rm(dir, { recursive: true, force: true });
});

const headOfFeed = async (): Promise<string> => {
  await waitForHorizon(db);
  return (await readFeed(db.sql, { tenantId: TENANT, after: 'now', limit: 1 })).cursor;
};

async function nextPosition(): Promise<number> {
  const { rows } = await db.pool.query<{ position: string }>('SELECT max(position)::text AS position FROM runplane.outbox_events');
  return Number(rows[0]?.position);
}

/** The text of the next event behind a cursor, and how long the feed took to deliver it. */
async function deliver(after: string, append: () => Promise<unknown>): Promise<{ texts: unknown[]; ms: number }> {
  const waiting = waitForFeed(db, { tenantId: TENANT, after, limit: 10, waitMs: 10_000 });
  await append();
  const appendedAt = performance.now();
  const { events } = await waiting;
  return { texts: events.map(({ data }) => data['text']), ms: performance.now() - appendedAt };
}

/** A reader that waited for the burnt positions would wait for ever: far below the time of a test, far above a slow machine's. */
const DELIVERY_MS = 10_000;

test('fifty appends that are rolled back delay nobody who comes after them', async () => {
  const { run, epoch } = await aClaimedRun(db);
  const key = { tenantId: TENANT, runId: run.id, epoch };
  const before = await nextPosition();
  const burn = () =>
    inTransaction(db, async (tx) => {
      await appendRunEvents(tx, { ...key, events: [message('never')] });
      throw new Error('rolled back on purpose');
    });
  for (let i = 0; i < 50; i += 1) await expect(burn()).rejects.toThrow('on purpose');
  const cursor = await headOfFeed();

  const { texts, ms } = await deliver(cursor, () => appendRunEvents(db, { ...key, events: [message('after the gap')] }));

  expect(texts).toEqual(['after the gap']);
  expect(ms).toBeLessThan(DELIVERY_MS);
  expect((await nextPosition()) - before).toBeGreaterThan(50);
});

test('a crash of the server under load skips positions and loses no event: a reader goes on behind its cursor', async () => {
  const { run, epoch } = await aClaimedRun(db);
  const key = { tenantId: TENANT, runId: run.id, epoch };
  const cursor = await headOfFeed();
  const acknowledged: string[] = [];
  let crashed: Promise<void> | undefined;
  let producerSequence = 0;
  const load = (async () => {
    for (;;) {
      producerSequence += 1;
      const text = `event ${producerSequence}`;
      await appendRunEvents(db, { ...key, producerSequence, events: [message(text)] });
      acknowledged.push(text);
      if (acknowledged.length === 30) crashed = postgres.crash();
    }
  })();
  await expect(load).rejects.toMatchObject({ retryable: true });
  await crashed;
  await db.close();
  postgres = await startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), durability: 'server-default' });
  await open();

  const again = await appendRunEvents(db, { ...key, producerSequence, events: [message(`event ${producerSequence}`)] });
  const { events } = await readFeed(db.sql, { tenantId: TENANT, after: cursor, limit: 500 });
  const { texts, ms } = await deliver(await headOfFeed(), () => appendRunEvents(db, { ...key, events: [message('after the crash')] }));

  const wanted = [...acknowledged, `event ${producerSequence}`];
  expect(events.map(({ data }) => data['text'])).toEqual(wanted);
  expect(events.map(({ sequence }) => sequence)).toEqual(wanted.map((_, i) => again.lastSeq - wanted.length + 1 + i));
  expect(texts).toEqual(['after the crash']);
  expect(ms).toBeLessThan(DELIVERY_MS);
  await assertInvariants(db.pool);
});

test('transaction numbers that a crash gives out again hide nothing: a reader that stood beyond them misses no event', async () => {
  const { run, epoch } = await aClaimedRun(db);
  const client = await db.pool.connect();
  // Rolled back, so that nothing makes the server write them down before the crash.
  for (let i = 0; i < 50; i += 1) await client.query('BEGIN; SELECT pg_current_xact_id(); ROLLBACK');
  client.release();
  const cursors = [await headOfFeed(), (await readFeed(db.sql, { tenantId: TENANT, after: 'start', limit: 200 })).cursor];
  await postgres.crash();
  await db.close();
  postgres = await startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), durability: 'server-default' });
  await open();

  await appendRunEvents(db, { tenantId: TENANT, runId: run.id, epoch, events: [message('under a number of before')] });

  for (const after of cursors) {
    const { events } = await readFeed(db.sql, { tenantId: TENANT, after, limit: 200 });
    expect(events.map(({ data }) => data['text'])).toEqual(['under a number of before']);
  }
});

test('a consumer whose server is killed between handler and commit handles every acknowledged event, and none out of order', async () => {
  const { run, epoch } = await aClaimedRun(db);
  const key = { tenantId: TENANT, runId: run.id, epoch };
  const consumer = { tenantId: TENANT, name: 'through-crashes' };
  await createOutbox(db).registerFeedConsumer({ ...consumer, after: await headOfFeed() });
  const handled: string[] = [];
  const acknowledged: string[] = [];
  const handlePage = async (commits: boolean): Promise<number> => {
    const { cursor } = await getFeedConsumer(db, consumer);
    const page = await readFeed(db.sql, { tenantId: TENANT, after: cursor, limit: 7, filter: { runId: run.id } });
    handled.push(...page.events.map(({ data }) => data['text'] as string));
    if (commits) await commitFeedConsumer(db, { ...consumer, from: cursor, to: page.cursor });
    return page.events.length;
  };

  for (let n = 0; n < 20; n += 1) {
    const text = `event ${n}`;
    await appendRunEvents(db, { ...key, events: [message(text)] });
    acknowledged.push(text);
  }
  await handlePage(true);
  await handlePage(false);
  await postgres.crash();
  await db.close();
  postgres = await startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), durability: 'server-default' });
  await open();
  while ((await handlePage(true)) > 0);

  expect([...new Set(handled)]).toEqual(acknowledged);
  expect(handled.length).toBeGreaterThan(acknowledged.length); // what was handled and not committed came again
});
