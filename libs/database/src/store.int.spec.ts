import { checkStore, isRebaseNeeded, readStore, rebaseStore } from './store';
import { sql } from './sql';
import { openClient, useDatabase, waitUntilBlocked } from './testing';
import { inTransaction } from './tx';

const database = useDatabase({ db: { lockTimeoutMs: 9_000 }, checkInvariants: false });

const feedTx = async (): Promise<bigint> =>
  inTransaction(database.db, async (tx) =>
    BigInt(String((await tx.query(sql`SELECT (pg_current_xact_id()::text::bigint + tx_offset)::text AS v FROM runplane.store`))[0]?.['v'])),
  );
const writeOutbox = (tx: bigint) =>
  database.db.sql
    .query(sql`INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type, event_id, data)
    VALUES (${String(tx)}::bigint, 0, 't/r', 't', 'run', 'r', 1, 'x', 'e', '{}')`);
/** What a restore into another cluster leaves: a row that names the cluster it came from. */
const comeFromElsewhere = () => database.db.sql.query(sql`UPDATE runplane.store SET system_identifier = '1', tx_offset = 5`);

it('the first migration makes the store, named by a random id and knowing its cluster', async () => {
  const store = await readStore(database.db.sql);
  expect(store).toMatchObject({ txOffset: 0n });
  expect(store.storeId).toMatch(/^[0-9a-f-]{36}$/);
});

it('a store in its own cluster is left as it is', async () => {
  const before = await readStore(database.db.sql);
  expect(await checkStore(database.db)).toEqual({ storeId: before.storeId, rebased: false });
  expect(await readStore(database.db.sql)).toEqual(before);
});

it.each([
  ['in another cluster', comeFromElsewhere],
  ['on another timeline', () => database.db.sql.query(sql`UPDATE runplane.store SET timeline = timeline + 1`)],
])('a store that finds itself %s is rebased above every stored number, and keeps its id', async (_, change) => {
  const before = await readStore(database.db.sql);
  const stored = (await feedTx()) + 1_000_000n;
  await writeOutbox(stored);
  await change();

  expect(await checkStore(database.db)).toEqual({ storeId: before.storeId, rebased: true });

  expect(await feedTx()).toBeGreaterThan(stored + 2n ** 32n);
  const after = await readStore(database.db.sql);
  expect(after).toMatchObject({ systemIdentifier: before.systemIdentifier, timeline: before.timeline });
  expect(await checkStore(database.db)).toMatchObject({ rebased: false });
});

it('numbers of aggregates count too, where retention has deleted their events', async () => {
  await database.db.pool.query(`INSERT INTO runplane.tenants (id) VALUES ('t')`);
  await database.db.pool
    .query(`INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, last_tx, partition_key, shard)
    VALUES ('t', 's', 'p', 'b', 99000000000000, 't/s', 0)`);
  await comeFromElsewhere();
  await checkStore(database.db);
  expect(await feedTx()).toBeGreaterThan(99000000000000n + 2n ** 32n);
});

it('a rebase waits for open appends, and of many processes one does it', async () => {
  await comeFromElsewhere();
  const before = await readStore(database.db.sql);
  const writer = await openClient(database.url);
  await writer.query('BEGIN; LOCK TABLE runplane.outbox_events IN ROW EXCLUSIVE MODE');

  const checks = [checkStore(database.db), checkStore(database.db)];
  await waitUntilBlocked(database.db, 2);
  expect(await readStore(database.db.sql)).toEqual(before);
  await writer.query('COMMIT');
  await writer.end();

  expect((await Promise.all(checks)).map(({ rebased }) => rebased).sort()).toEqual([false, true]);
});

it('a rebase is noticed, done by hand, and forced where the cluster looks the same; never below the floor or a consumer', async () => {
  await database.db.sql.query(sql`UPDATE runplane.outbox_floor SET tx = 99900000000000`);
  await database.db.sql.query(sql`INSERT INTO runplane.feed_consumers (scope, name, tx, position) VALUES ('*', 'far', 99910000000000, 0)`);
  expect([await isRebaseNeeded(database.db.sql), await rebaseStore(database.db)]).toEqual([false, false]);
  await comeFromElsewhere();

  expect([await isRebaseNeeded(database.db.sql), await rebaseStore(database.db), await isRebaseNeeded(database.db.sql)]).toEqual([
    true,
    true,
    false,
  ]);
  expect(await feedTx()).toBeGreaterThan(99910000000000n + 2n ** 32n);
  const before = await readStore(database.db.sql);
  expect(await rebaseStore(database.db, { force: true })).toBe(true);
  expect(await readStore(database.db.sql)).toMatchObject({ storeId: before.storeId, txOffset: before.txOffset + 2n ** 32n });
});
