import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import {
  checkStore,
  inTransaction,
  isRebaseNeeded,
  migrate,
  openDb,
  startEmbeddedPostgres,
  type Db,
  type EmbeddedPostgres,
} from '@runplane/database';
import { assertInvariants, openClient, useDatabase, waitForHorizon } from '@runplane/database/testing';
import { commitFeedConsumer, createOutbox, readFeed } from '@runplane/outbox';
import { aSinkByHand } from '@runplane/outbox/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import { appendAsServer, createSessions } from '@runplane/sessions';

// A store that was dumped and restored into another cluster, whose transaction numbers are lower than those that its events have.

const old = useDatabase();
const tenantId = TENANT;
let dir = '';
let cluster: EmbeddedPostgres;
beforeAll(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'restored-'));
  cluster = await startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), durability: 'off', temporary: true });
  await migrate(cluster.url);
}, 60_000);
afterAll(async () => {
  await cluster.stop();
  await rm(dir, { recursive: true, force: true });
});

/** All rows of the store, as a dump has them, and where its numbers stand. */
async function restore(from: string, to: string): Promise<void> {
  const [source, target] = [await openClient(from), await openClient(to)];
  const { rows: tables } = await source.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relnamespace = 'runplane'::regnamespace AND relkind = 'r' AND relname <> '_prisma_migrations'`,
  );
  await target.query('SET session_replication_role = replica');
  for (const { name } of tables) {
    const { rows } = await source.query<{ all: string }>(`SELECT coalesce(json_agg(x), '[]')::text AS all FROM runplane.${name} x`);
    await target.query(`DELETE FROM runplane.${name}`);
    await target.query(
      `INSERT INTO runplane.${name} OVERRIDING SYSTEM VALUE SELECT * FROM json_populate_recordset(NULL::runplane.${name}, $1::json)`,
      [rows[0]?.all],
    );
  }
  await target.query(
    `SELECT setval(pg_get_serial_sequence('runplane.outbox_events', 'position'), coalesce(max(position + events), 1)) FROM runplane.outbox_events`,
  );
  await source.end();
  await target.end();
}

const append = (db: Db, sessionId: string, texts: string[]) =>
  inTransaction(db, (tx) =>
    appendAsServer(tx, { tenantId, sessionId }, { events: texts.map((text) => ({ type: 'custom/said', data: { text } })) }),
  );
async function readFrom(db: Db, after: string): Promise<{ said: unknown[]; cursor: string }> {
  await waitForHorizon(db);
  const said: unknown[] = [];
  for (let cursor = after; ;) {
    const page = await readFeed(db.sql, { tenantId, after: cursor, limit: 2 });
    said.push(...page.events.map(({ streamId, data }) => `${streamId} ${JSON.stringify(data['text'])}`));
    ({ cursor } = page);
    if (!page.more) return { said, cursor };
  }
}

test('a store that was restored into another cluster notices it at its start: cursors stay valid, no reader misses an event, the relay goes on', async () => {
  await makeTenants(old.db);
  for (const id of ['a', 'b']) await createSessions(old.db).createSession({ tenantId, header: { id } });
  await append(old.db, 'a', ['1', '2']);
  const relayed = await aSinkByHand(old.db, { name: 'all' });
  await waitForHorizon(old.db);
  const { consumer } = await createOutbox(old.db).registerFeedConsumer({ tenantId, name: 'c', after: 'now' });
  await append(old.db, 'b', ['1', '2', '3']);
  await relayed.pass();
  expect(relayed.arrived('b')).toEqual([0, 1, 2]);
  await append(old.db, 'a', ['3']);
  const { events } = await readFeed(old.db.sql, { tenantId, after: consumer.cursor, limit: 1 });
  const reading = events[0]?.cursor ?? '';
  await restore(old.url, cluster.url);

  const db = await openDb({ url: cluster.url, applicationName: 'restored', onError: () => undefined });
  try {
    expect(await isRebaseNeeded(db.sql)).toBe(true);
    expect(await checkStore(db)).toMatchObject({ rebased: true });
    await append(db, 'b', ['4']);
    await append(db, 'a', ['4', '5']);

    const { said, cursor } = await readFrom(db, reading);
    expect(said).toEqual(['b "2"', 'b "3"', 'a "3"', 'b "4"', 'a "4"', 'a "5"']);
    expect(await commitFeedConsumer(db, { tenantId, name: 'c', from: consumer.cursor, to: cursor })).toMatchObject({ replayed: false });
    const goingOn = await aSinkByHand(db, { name: 'all' });
    await goingOn.pass();
    expect([goingOn.arrived('a'), goingOn.arrived('b')]).toEqual([[2, 3, 4], [3]]);
    expect(await checkStore(db)).toMatchObject({ rebased: false });
    await assertInvariants(db.pool);
  } finally {
    await db.close();
  }
}, 60_000);
