import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openDb } from './db';
import { health, migrationContract } from './health';
import { readMigrations } from './migrate';
import { startTcpProxy, useDatabase } from './testing';

const t = useDatabase();

test('health: a migrated store is ready and names its newest migration', async () => {
  const newest = (await readMigrations()).at(-1)?.name;
  expect(await health(t.db)).toEqual({
    adapter: 'postgres',
    ready: true,
    reachable: true,
    migrationReady: true,
    migrationId: newest,
    missingMigrations: [],
    failureKind: null,
    message: null,
    credentialValuesPrinted: false,
  });
});

test('health: a missing migration is named, a newer one is no fault', async () => {
  const [first] = await readMigrations();
  await t.db.pool.query('BEGIN; DELETE FROM runplane._prisma_migrations WHERE migration_name = $$' + String(first?.name) + '$$; COMMIT');
  expect(await health(t.db)).toMatchObject({
    ready: false,
    reachable: true,
    failureKind: 'infra-failed',
    missingMigrations: [first?.name],
  });

  const none = await mkdtemp(path.join(tmpdir(), 'runplane-no-migrations-'));
  expect(await health(t.db, { dir: none })).toMatchObject({ ready: true, missingMigrations: [] });
  await rm(none, { recursive: true });
});

test('health: it never throws, answers in time, remembers the migration and tells nothing of the address', async () => {
  const proxy = await startTcpProxy(t.url);
  const db = await openDb({ url: proxy.through(t.url), poolMax: 2, applicationName: 'health', onError: () => undefined });
  try {
    const none = await mkdtemp(path.join(tmpdir(), 'runplane-no-migrations-'));
    const before = await health(db, { dir: none });
    await rm(none, { recursive: true });
    proxy.swallow();
    const after = await health(db, { timeoutMs: 300 });
    expect(after).toMatchObject({
      ready: false,
      reachable: false,
      migrationId: before.migrationId,
      message: 'the database does not answer',
    });
    expect(JSON.stringify(after)).not.toContain('127.0.0.1');
  } finally {
    await proxy.close();
    await db.close();
  }
});

test('the migration contract has the files with their checksums and the tables of a migrated store', async () => {
  const contract = await migrationContract();
  const files = await readMigrations();
  const { rows } = await t.db.pool.query<{ name: string }>(
    `SELECT relname AS name FROM pg_class WHERE relnamespace = 'runplane'::regnamespace AND relkind = 'r' AND relname <> '_prisma_migrations' ORDER BY relname COLLATE "C"`,
  );
  expect(contract).toEqual({
    migrationIds: files.map(({ name }) => name),
    latestMigrationId: files.at(-1)?.name,
    checksums: Object.fromEntries(files.map(({ name, checksum }) => [name, checksum])),
    requiredTables: rows.map(({ name }) => name),
    valuesPrinted: false,
  });
});
