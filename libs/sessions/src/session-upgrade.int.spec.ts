import { partitionOf } from '@runplane/contracts';
import { migrate, MIGRATIONS_DIR, openDb, type Db } from '@runplane/database';
import { assertInvariants, dropTestDatabase, openClient, testServerUrl } from '@runplane/database/testing';
import { randomBytes } from 'node:crypto';
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { acquireSessionLease, appendSessionEvents, getRebuildStatus, getSession } from '.';

// A database that had sessions before they had logs.

const FIRST_WITH_LOGS = '20261129200000_session_log';

const url = new URL(testServerUrl());
const name = `upgrade_${randomBytes(6).toString('hex')}`;
url.pathname = `/${name}`;
let earlier: string;
let db: Db;

beforeAll(async () => {
  earlier = mkdtempSync(path.join(os.tmpdir(), 'runplane-earlier-'));
  for (const folder of readdirSync(MIGRATIONS_DIR)) {
    if (folder < FIRST_WITH_LOGS) cpSync(path.join(MIGRATIONS_DIR, folder), path.join(earlier, folder), { recursive: true });
  }
  const admin = await openClient(testServerUrl());
  await admin.query(`CREATE DATABASE ${name}`);
  await admin.end();
  await migrate(url.toString(), { dir: earlier });
  const { partitionKey, shard } = partitionOf('acme', 'old');
  const before = await openClient(url.toString());
  await before.query(`INSERT INTO runplane.tenants (id) VALUES ('acme')`);
  await before.query(
    `INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard, last_tx) VALUES ('acme', 'old', 'p', 'b', $1, $2, 77)`,
    [partitionKey, shard],
  );
  await before.end();
  await migrate(url.toString());
  db = await openDb({ url: url.toString() });
});
afterAll(async () => {
  await db.close();
  await dropTestDatabase(testServerUrl(), name);
  rmSync(earlier, { recursive: true, force: true });
});

test('a session from before the log has an empty one, with nothing to be rebuilt, and takes events', async () => {
  const key = { tenantId: 'acme', sessionId: 'old' };
  expect(await getRebuildStatus(db)).toMatchObject({ staleCount: 0 });

  const { epoch } = await acquireSessionLease(db, { ...key, owner: 'w' });
  const { lastSequence } = await appendSessionEvents(db, { ...key, epoch, events: [{ type: 'turn/start', turnId: 't', data: {} }] });

  expect(lastSequence).toBe(0);
  expect(await getSession(db, key)).toMatchObject({ projectId: 'p', backendProfile: 'b' });
  await assertInvariants(db.pool);
});
