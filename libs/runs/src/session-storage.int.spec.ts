import { inTransaction, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { confirmStorageEvicted, createSessions, getSession, refreshSessionStorage, markSessionRead } from '@runplane/sessions';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { appendRunEvents } from './append-run-events';
import { claimExpiredStorage } from './claim-expired-storage';
import { collectStorageOnce, type StorageCollector } from './collect-storage';
import { createFolderCollector } from './folder-collector';
import { foldSessionActivityOnce } from './fold-session-activity';
import { createRuns } from './runs';
import { getLatestSessionResourceRun, getSessionSummary } from './session-summary';
import { aClaimedTurn, aRun, makeTenants, message, newTurn, TENANT } from './testing';

// What sessions and their runs know of each other: last activity, the run whose resources a next turn may use, storage that nobody needs any more.

const t = useDatabase();
const tenantId = TENANT;
const key = (sessionId: string) => ({ tenantId, sessionId });
const completed = { terminalStatus: 'completed' } as const;
const sessions = () => createSessions(t.db);
const claim = () => inTransaction(t.db, (tx) => claimExpiredStorage(tx, { owner: 'gc' }));
const idsOf = (claims: readonly { sessionId: string }[]) => claims.map(({ sessionId }) => sessionId).sort();

/** A session whose folder has expired. */
async function expiredSession(sessionId: string): Promise<void> {
  const session = { projectId: 'p1', backendProfile: 'demo', expiresAt: '2020-01-01T00:00:00Z' };
  await sessions().upsertSession({ ...key(sessionId), session });
  await sessions().refreshSessionStorage({ ...key(sessionId), storage: { kind: 'folder', name: sessionId } });
}
/** What failed is not tried again behind another test's back. */
const keep = (sessionId: string) =>
  t.db.sql.query(sql`UPDATE runplane.sessions SET expires_at = NULL WHERE session_id = ${sessionId}::text`);
const letDue = () => t.db.sql.query(sql`UPDATE runplane.sessions SET storage_ready_at = NULL`);

beforeAll(() => makeTenants(t.db, 'other'));

test('the events of a run are activity of its session: at once in its summary, soon in its row, without a new version', async () => {
  await sessions().upsertSession({ ...key('a1'), session: { projectId: 'p1', backendProfile: 'demo', ttlSeconds: 60 } });
  const { run, epoch } = await aClaimedTurn(t.db, 'a1');
  await t.db.sql.query(
    sql`UPDATE runplane.sessions SET last_activity_at = last_activity_at - interval '1 hour', expires_at = expires_at - interval '1 hour' WHERE session_id = 'a1'`,
  );
  await markSessionRead(t.db, { ...key('a1'), readerId: 'ann' });
  const before = await getSession(t.db, key('a1'));
  await appendRunEvents(t.db, { tenantId, runId: run.id, epoch, events: [message('on')] });

  const summary = await getSessionSummary(t.db, { ...key('a1'), readerId: 'ann' });
  expect(Date.parse(summary.lastActivityAt)).toBeGreaterThan(Date.parse(before.lastActivityAt));
  expect(summary).toMatchObject({ version: before.version, activeRunId: run.id, reader: { unread: false, readVersion: before.version } });

  expect(await foldSessionActivityOnce(t.db)).toEqual({ changed: 1, failed: 0 });
  expect(await foldSessionActivityOnce(t.db)).toEqual({ changed: 0, failed: 0 });
  const after = await getSession(t.db, key('a1'));
  expect(after).toMatchObject({ version: before.version, updatedAt: before.updatedAt, lastActivityAt: summary.lastActivityAt });
  expect(Date.parse(after.expiresAt ?? '') - Date.parse(after.lastActivityAt)).toBe(60_000);
  await expect(getSessionSummary(t.db, { tenantId: 'other', sessionId: 'a1' })).rejects.toMatchObject({ code: 'session_not_found' });
});

test('the newest run of a session with a resource bundle is found behind those without', async () => {
  const sessionRef = { sessionId: 'b1' };
  expect(await getLatestSessionResourceRun(t.db, key('a1'))).toBeNull();
  await aRun(t.db, { sessionRef, resourceBundleRef: { bundle: 1 } });
  const newest = await aRun(t.db, { sessionRef, resourceBundleRef: { bundle: 2 } });
  await aRun(t.db, { sessionRef });
  expect(await getLatestSessionResourceRun(t.db, key('b1'))).toMatchObject({ id: newest.id, resourceBundleRef: { bundle: 2 } });
  await expect(getLatestSessionResourceRun(t.db, { tenantId: 'other', sessionId: 'b1' })).rejects.toMatchObject({
    code: 'session_not_found',
  });
});

test('expired storage is not claimed while any run of the session is open, also one without an open turn', async () => {
  for (const id of ['c1', 'c2', 'c3']) await expiredSession(id);
  const turn = await aClaimedTurn(t.db, 'c1');
  await createRuns(t.db).finishCommand({ tenantId, runId: turn.run.id, commandId: turn.command.id, epoch: turn.epoch, outcome: completed });
  const pending = await aRun(t.db, { sessionRef: { sessionId: 'c2' } });

  expect(idsOf(await claim())).toEqual(['c3']);
  await letDue();
  expect(await claim()).toEqual([]);

  await createRuns(t.db).finishRun({ tenantId, runId: turn.run.id, epoch: turn.epoch, outcome: completed });
  await createRuns(t.db).cancelRun({ tenantId, runId: pending.id });
  expect(await claim()).toEqual([]); // looked at again after a minute
  await letDue();
  expect(await claim()).toMatchObject([{ attempts: 1 }, { attempts: 1 }]);
});

test('storage that another session uses is not deleted, and while it is being deleted no other attaches it', async () => {
  const attach = (id: string, name: string) => sessions().refreshSessionStorage({ ...key(id), storage: { kind: 'folder', name } });
  const names: [string, string][] = [
    ['same', 's/a'],
    ['above', 's'],
    ['below', 's/a/b'],
    ['beside', 's/ab'],
  ];
  for (const [id, name] of names) {
    await expiredSession(`${id}-old`);
    await sessions().upsertSession({ ...key(`${id}-new`), session: { projectId: 'p1', backendProfile: 'demo' } });
    await attach(`${id}-old`, `${id}/s/a`);
    await attach(`${id}-new`, `${id}/${name}`);
  }
  const beside = (await claim()).map(({ sessionId }) => sessionId);
  expect(beside).toEqual(['beside-old']);
  for (const name of ['beside/s/a', 'beside/s', 'beside/s/a/b']) {
    await expect(attach('same-new', name)).rejects.toMatchObject({ code: 'storage_evicting', data: { sessionId: 'beside-old' } });
  }

  // An attachment that has not committed: the collector passes the expired session over.
  await expiredSession('late-old');
  await inTransaction(t.db, async (tx) => {
    await refreshSessionStorage(tx, { ...key('same-new'), storage: { kind: 'folder', name: 'late-old/x' } });
    expect(await claim()).toEqual([]);
  });
  expect(await claim()).toEqual([]);
});

test('no run starts in a session while its storage is being deleted; one that starts after the lease takes the deletion away', async () => {
  await expiredSession('d1');
  const [held] = await claim();
  const admit = () => createRuns(t.db).admitTurn({ ...key('d1'), turn: newTurn(), idempotencyKey: 'k' });
  await expect(admit()).rejects.toMatchObject({
    code: 'storage_evicting',
    retryable: true,
    data: { sessionId: 'd1', leaseRemainingMs: expect.any(Number) as number },
  });
  await expect(aRun(t.db, { sessionRef: { sessionId: 'd1' } })).rejects.toMatchObject({ code: 'storage_evicting' });
  await t.db.sql.query(sql`UPDATE runplane.sessions SET storage_lease_expires_at = runplane.app_now() WHERE session_id = 'd1'`);
  expect(await admit()).toMatchObject({ disposition: 'created' });
  if (held === undefined) throw new Error('no claim');
  await expect(inTransaction(t.db, (tx) => confirmStorageEvicted(tx, held))).rejects.toMatchObject({ code: 'storage_changed' });
  expect(await getSession(t.db, key('d1'))).toMatchObject({ storage: { kind: 'folder', version: 1 } });
});

describe('the collector of folders', () => {
  let root = '';
  beforeAll(async () => {
    root = await mkdtemp(path.join(os.tmpdir(), 'storage-'));
    await mkdir(folder('kept'), { recursive: true });
  });
  afterAll(() => rm(root, { recursive: true, force: true }));
  /** What fails is told to the operator, too. */
  const told: string[] = [];
  const quiet = () => ({
    ...t.db,
    options: { ...t.db.options, onError: (error: Error, where: string) => void told.push(`${where}: ${error.message}`) },
  });
  const collect = (collector: StorageCollector = createFolderCollector({ root })) =>
    collectStorageOnce(quiet(), { collector, owner: 'gc' });
  const folder = (...names: string[]) => path.join(root, tenantId, ...names);

  test('deletes what has expired and says so, also what is gone already, and clears what a crash has left', async () => {
    for (const id of ['e1', 'e2']) await expiredSession(id);
    await mkdir(folder('e1', 'sub'), { recursive: true });
    await writeFile(folder('e1', 'sub', 'file'), 'x');
    await mkdir(path.join(root, '.deleting', 'left'), { recursive: true });

    expect(await collect()).toEqual({ changed: 2, failed: 0 });
    expect(await readdir(folder())).toEqual(['kept']);
    expect(await readdir(path.join(root, '.deleting'))).toEqual([]);
    for (const id of ['e1', 'e2'])
      expect(await getSession(t.db, key(id))).toMatchObject({ storage: { kind: 'evicted', name: id, version: 2 } });
    expect(await collect()).toEqual({ changed: 0, failed: 0 });
  });

  test('does not follow a link out of the tenant’s folder, and leaves the failure to be seen', async () => {
    await mkdir(path.join(root, 'other', 'secret'), { recursive: true });
    await symlink(path.join(root, 'other'), folder('link'));
    await expiredSession('f1');
    await sessions().refreshSessionStorage({ ...key('f1'), storage: { kind: 'folder', name: 'link/secret' } });
    expect(await collect()).toEqual({ changed: 0, failed: 1 });
    expect(told).toEqual(['the deletion of the storage of session f1: a symbolic link leads out of the root']);
    expect(existsSync(path.join(root, 'other', 'secret'))).toBe(true);
    expect((await getSession(t.db, key('f1'))).storage).toMatchObject({
      kind: 'folder',
      evictionAttempts: 1,
      evictionError: 'a symbolic link leads out of the root',
    });
    await keep('f1');
    await expect(
      createFolderCollector({ root }).collect({ ...theClaim, name: '../other' }, { signal: new AbortController().signal }),
    ).rejects.toThrow('leaves its root');
    await expect(createFolderCollector({ root }).collect({ ...theClaim, name: 'kept' }, { signal: AbortSignal.abort() })).rejects.toThrow(
      'abort',
    );
  });

  test('is told to stop before its lease ends, however long the commit of its claim has taken', async () => {
    await expiredSession('h1');
    await t.db.pool.query(`
      CREATE FUNCTION pg_temp.late() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.7); RETURN NULL; END';
      CREATE CONSTRAINT TRIGGER late_commit AFTER UPDATE ON runplane.sessions DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW WHEN (OLD.storage_lease_owner IS NULL AND NEW.storage_lease_owner IS NOT NULL) EXECUTE FUNCTION pg_temp.late()`);
    const left: number[] = [];
    const { timeout } = AbortSignal;
    const timer = jest
      .spyOn(AbortSignal, 'timeout')
      .mockImplementation((ms) => (left.push(ms), timeout.call(AbortSignal, Math.min(ms, 10))));
    const collector: StorageCollector = {
      kinds: ['folder'],
      collect: async (_claim, { signal }) => {
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
      },
    };
    const askedAt = performance.now();
    await collectStorageOnce(t.db, { collector, owner: 'gc', leaseMs: 60_000 });
    timer.mockRestore();
    await t.db.pool.query('DROP TRIGGER late_commit ON runplane.sessions');
    await keep('h1');
    // Counted from before the claim was asked for: 700 ms and more of its minute went by until it was there.
    expect(left).toHaveLength(1);
    expect(left[0]).toBeLessThanOrEqual(60_000 - 700);
    expect(performance.now() - askedAt).toBeGreaterThan(700);
  });

  test('goes on when its folder of half deleted things is in the way at first, or tidied away later', async () => {
    const own = await mkdtemp(path.join(root, 'own-'));
    const graves = path.join(own, '.deleting');
    await writeFile(graves, '');
    const collector = createFolderCollector({ root: own });
    const remove = (name: string) => collector.collect({ ...theClaim, name }, { signal: new AbortController().signal });
    for (const name of ['a', 'b']) await mkdir(path.join(own, tenantId, name), { recursive: true });

    await expect(remove('a')).rejects.toThrow('EEXIST');
    await rm(graves);
    await remove('a');
    await rm(graves, { recursive: true });
    await remove('b');

    expect(await readdir(path.join(own, tenantId))).toEqual([]);
  });

  test('that comes too late confirms nothing: another folder is attached by then', async () => {
    await expiredSession('g1');
    const slow: StorageCollector = {
      kinds: ['folder'],
      collect: async () => {
        await sessions().refreshSessionStorage({ ...key('g1'), storage: { kind: 'folder', name: 'g2' } });
      },
    };
    expect(await collect(slow)).toEqual({ changed: 0, failed: 1 });
    expect((await getSession(t.db, key('g1'))).storage).toMatchObject({ kind: 'folder', name: 'g2', version: 2, evictionAttempts: 0 });
  });

  const theClaim = {
    tenantId,
    sessionId: 's',
    kind: 'folder',
    namespace: null,
    storageVersion: 1,
    owner: 'gc',
    epoch: 1,
    attempts: 1,
    leaseRemainingMs: 1,
  } as const;
});
