import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { createRuns, getRun } from '@runplane/runs';
import { appendAsServer, createSessions } from '@runplane/sessions';
import { runCliOn } from './testing/run-cli';

const database = useDatabase();

const runplane = (...args: string[]) => runCliOn(database.url, ...args);

describe('the command line', () => {
  test('makes a tenant and a key, lists the key without its secret, and revokes it', async () => {
    const tenant = await runplane('tenants', 'create', 'acme');
    const again = await runplane('tenants', 'create', 'acme', '--json');
    const made = JSON.parse(
      (
        await runplane(
          'keys',
          'create',
          '--tenant',
          'acme',
          '--name',
          'ci',
          '--scope',
          'runs:read, feed:read',
          '--expires',
          '30d',
          '--json',
        )
      ).stdout,
    );
    const plain = await runplane('keys', 'create', '--tenant', 'acme', '--name', 'web', '--scope', 'admin');
    const list = await runplane('keys', 'list', '--tenant', 'acme');
    const revoked = await runplane('keys', 'revoke', made.id);
    const after = JSON.parse((await runplane('keys', 'list', '--tenant', 'acme', '--json')).stdout);

    expect([tenant.code, tenant.stdout]).toEqual([0, expect.stringContaining('runplane keys create --tenant acme')]);
    expect(JSON.parse(again.stdout)).toEqual({ tenantId: 'acme', created: false });
    expect(made).toMatchObject({ key: expect.stringMatching(/^rp_/), scopes: ['runs:read', 'feed:read'] });
    expect([plain.stdout, plain.stderr]).toEqual([expect.stringMatching(/^rp_\S+\n$/), expect.stringContaining('not shown again')]);
    expect(list.stdout).toContain(made.id);
    expect(list.stdout).not.toContain(made.key.slice(36));
    expect([revoked.code, after[0].revokedAt]).toEqual([0, expect.any(String)]);
    expect(Date.parse(after[0].expiresAt) - Date.parse(after[0].createdAt)).toBeCloseTo(30 * 86_400_000, -4);
    expect((await runplane('tenants', 'list')).stdout).toMatch(/^acme /);
  });

  test('shows and changes how long a tenant keeps what has ended; says what would go, removes it, and reads a copy', async () => {
    await runplane('tenants', 'create', 'old');
    const archiveDir = await mkdtemp(path.join(os.tmpdir(), 'archive-'));
    const { run } = await createRuns(database.db).createRun({ tenantId: 'old', run: { projectId: 'p', backendProfile: 'b' } });
    await createRuns(database.db).cancelRun({ tenantId: 'old', runId: run.id });
    await database.db.pool.query(`UPDATE runplane.runs SET finished_at = finished_at - interval '40 days' WHERE id = $1`, [run.id]);
    const retention = (...args: string[]) => runplane('retention', '--tenant', 'old', '--archive-dir', archiveDir, ...args);

    expect((await runplane('tenants', 'retention', 'old')).stdout).toMatch(/runsDays +for ever/);
    expect((await retention('--dry-run')).stdout).toBe('Nothing would go.\n');
    expect((await retention('--dry-run', '--runs-days', '41')).stdout).toBe('Nothing would go.\n');
    const set = await runplane('tenants', 'retention', 'old', '--runs-days', '30', '--runners-days', '7');
    expect(set.stdout).toMatch(/runsDays +30 days[^]*runnersDays +7 days[^]*archive +a copy first/);
    expect((await retention('--dry-run')).stdout).toMatch(/old +runs +1 +1 runs, 5 events, 1 cancelRequests/);
    const withoutCopy = await runplane('retention', '--tenant', 'old');
    expect([withoutCopy.code, withoutCopy.stdout]).toEqual([1, expect.stringContaining('wants copies: set RUNPLANE_ARCHIVE_DIR')]);
    expect(await retention()).toMatchObject({ code: 0, stdout: expect.stringMatching(/old +runs +1/) });
    const gone = await getRun(database.db, { tenantId: 'old', runId: run.id }).catch((error: unknown) => error);
    expect(gone).toMatchObject({ code: 'run_deleted' });
    const { archiveKey } = (gone as { data: { archiveKey: string } }).data;
    const copy = await runplane('archive', 'read', archiveKey, '--archive-dir', archiveDir);
    const lines = copy.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { kind: string });
    expect(lines.map(({ kind }) => kind)).toEqual([
      'header',
      'run',
      'cancel-request',
      ...Array.from({ length: 5 }, () => 'event'),
      'manifest',
    ]);
    await rm(archiveDir, { recursive: true });
  });

  test.each([
    [['retention', '--runs-days', '30'], 2, '--tenant'],
    [['tenants', 'retention', 'acme', '--runs-days', '0'], 2, 'keep'],
    [['retention', '--kind', 'everything'], 2, 'run-events'],
    [['archive', 'read', 'x'], 1, '--archive-dir'],
    [['archive', 'read', '../etc/passwd', '--archive-dir', '.'], 1, 'no archive'],
    [['keys', 'create', '--tenant', 'nobody', '--name', 'x', '--scope', 'admin'], 1, 'runplane tenants create nobody'],
    [['keys', 'revoke', 'key_none'], 1, 'runplane keys list'],
    [['tenants', 'create', 'a/b'], 1, 'a tenant id has'],
    [['keys', 'create', '--tenant', 'acme', '--name', 'x', '--scope', 'everything'], 2, 'runs:read'],
    [['keys', 'create', '--tenant', 'acme', '--name', 'x', '--scope', 'admin', '--expires', 'soon'], 2, '90d'],
    [['keys', 'create', '--name', 'x'], 2, '--tenant'],
    [['nonsense'], 2, '--help'],
  ])('refuses %j and says what to do', async (args, code, advice) => {
    const refused = await runplane(...args);

    expect(refused.code).toBe(code);
    expect(refused.stderr).toContain(advice);
    expect(refused.stderr).not.toContain('DATABASE_URL');
    expect(refused.stdout).toBe('');
  });

  test('rebuilds the views of one session, of those that are stale, of all, and says what was wrong', async () => {
    await runplane('tenants', 'create', 'logs');
    const { createSession } = createSessions(database.db);
    for (const id of ['one', 'two']) await createSession({ tenantId: 'logs', header: { id } });
    const note = { type: 'context/note-written', data: { path: 'plan', text: 'right' } };
    await inTransaction(database.db, (tx) => appendAsServer(tx, { tenantId: 'logs', sessionId: 'one' }, { events: [note] }));
    const of = `tenant_id = 'logs' AND session_id = 'one'`;
    await database.db.pool.query(`UPDATE runplane.context_notes SET content = 'wrong' WHERE ${of}`);
    await database.db.pool.query(`UPDATE runplane.session_heads SET views_version = 0 WHERE ${of}`);

    expect((await runplane('sessions', 'views', '--tenant', 'logs')).stdout).toMatch(/staleCount +1\n/);
    expect((await runplane('sessions', 'views', 'one', '--tenant', 'logs')).stdout).toMatch(
      /^The views of one are stale: a built-in view has failed/,
    );
    expect((await runplane('why', 'session', 'one', '--tenant', 'logs')).stdout).toContain(
      'Its views are stale (a built-in view has failed): ask for a rebuild.',
    );
    const stale = await runplane('sessions', 'rebuild', '--stale');
    expect([stale.code, stale.stderr, stale.stdout]).toEqual([0, '1 sessions to rebuild\n', '1 sessions rebuilt, 0 failed.\n']);
    expect((await runplane('sessions', 'views', 'one', '--tenant', 'logs')).stdout).toMatch(/as its log says[^]*changedRows +2/);
    expect((await runplane('sessions', 'rebuild', 'one', '--tenant', 'logs')).stdout).toBe(
      'one: 1 events read, every view was as the log says.\n',
    );
    expect(JSON.parse((await runplane('sessions', 'rebuild', '--all', '--tenant', 'logs', '--json')).stdout)).toEqual({
      requested: 2,
      changed: 2,
      failed: 0,
      failures: [],
    });

    await database.db.pool.query(`UPDATE runplane.session_heads SET last_sequence = 5 WHERE ${of}`); // a log without its end
    const broken = await runplane('sessions', 'rebuild', '--all', '--tenant', 'logs');
    expect([broken.code, broken.stderr]).toEqual([1, expect.stringContaining('one: the log ends at 0, its head says 5')]);
    await database.db.pool.query(`UPDATE runplane.session_heads SET last_sequence = 0 WHERE ${of}`);
    expect(await runplane('sessions', 'rebuild', 'one', '--tenant', 'logs')).toMatchObject({ code: 0 });

    for (const args of [['--all', '--stale'], [], ['one'], ['one', '--all', '--tenant', 'logs']])
      expect((await runplane('sessions', 'rebuild', ...args)).code).toBe(2);
    expect(await runplane('sessions', 'rebuild', 'nobody', '--tenant', 'logs')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no session'),
    });
  });

  test('registers, lists, rewinds and forgets consumers of the feed, says how it is doing and why, prunes and rebases it', async () => {
    const made = await runplane('feed', 'consumers', 'register', 'audit', '--after', 'now', '--json');
    const listed = await runplane('feed', 'consumers', 'list');
    const rewound = await runplane('feed', 'consumers', 'rewind', 'audit', '--to', 'start');
    const status = await runplane('feed', 'status');
    const why = await runplane('why', 'feed', '--consumer', 'audit', '--json');
    const pruned = await runplane('feed', 'prune', '--dry-run');
    const rebased = [await runplane('feed', 'rebase'), await runplane('feed', 'rebase', '--force')];
    const deleted = await runplane('feed', 'consumers', 'delete', 'audit');
    const gone = await runplane('feed', 'consumers', 'delete', 'audit');

    expect(JSON.parse(made.stdout)).toMatchObject({ name: 'audit', tenantId: null, isExpired: false });
    expect(listed.stdout).toMatch(/\(all\) +audit +\d+/);
    expect([rewound.code, rewound.stdout]).toEqual([0, expect.stringContaining('Moved audit.')]);
    expect(status.stdout).toMatch(/rebase needed +no[\s\S]*audit/);
    expect(JSON.parse(why.stdout)).toMatchObject({ consumer: 'audit', isMoving: true });
    expect(pruned.stdout).toBe('Nothing is old enough yet.\n');
    expect(rebased.map(({ stdout }) => stdout.split(':')[0])).toEqual(['Nothing to do', 'Rebased']);
    expect([deleted.code, gone.code, gone.stderr]).toEqual([0, 1, expect.stringContaining('audit')]);
  });

  test('does nothing when every migration is there', async () => {
    expect(await runplane('migrate')).toEqual({ code: 0, stdout: 'Nothing to do.\n', stderr: '' });
  });

  test('shows examples', async () => {
    const { code, stdout } = await runplane('keys', 'create', '--help');

    expect([code, stdout]).toEqual([0, expect.stringContaining('runplane keys create --tenant acme --name')]);
  });

  test('says where to look when the database is away, without its password', async () => {
    const { code, stderr } = await runCliOn('postgresql://app:hunter2secret@127.0.0.1:1/x', 'tenants', 'list');

    expect([code, stderr]).toEqual([1, expect.stringContaining('DATABASE_URL')]);
    expect(stderr).not.toContain('hunter2secret');
  });

  test('writes a session out, reads it into another tenant, forks and deletes it', async () => {
    for (const tenant of ['from', 'to']) await runplane('tenants', 'create', tenant);
    const dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-cli-'));
    const file = path.join(dir, 'chat.ndjson');
    await createSessions(database.db).createSession({ tenantId: 'from', header: { id: 'chat' } });
    await inTransaction(database.db, (tx) =>
      appendAsServer(tx, { tenantId: 'from', sessionId: 'chat' }, { events: [{ type: 'user/message', data: { content: 'é' } }] }),
    );

    const exported = await runplane('session', 'export', 'chat', '--tenant', 'from');
    await writeFile(file, exported.stdout);
    const imported = await runplane('session', 'import', file, '--tenant', 'to');
    const again = await runplane('session', 'import', file, '--tenant', 'to');
    await writeFile(file, 'no');
    const bad = await runplane('session', 'import', file, '--tenant', 'to');
    const forked = await runplane('session', 'fork', 'chat', 'chat-2', '--tenant', 'to', '--through', '0', '--json');
    const wrong = await runplane('session', 'fork', 'chat', 'chat-3', '--tenant', 'to', '--through', 'x');
    const deleted = await runplane('session', 'delete', 'chat-2', '--tenant', 'to', '--reason', 'done');
    await rm(dir, { recursive: true });

    expect((await runplane('session', 'export', 'chat', '--tenant', 'to')).stdout).toBe(exported.stdout);
    expect([imported.code, imported.stdout]).toEqual([0, 'chat: 1 events copied, 0 open things closed; its log ends at 0.\n']);
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('in use')]);
    expect([bad.code, bad.stderr]).toEqual([1, expect.stringContaining('Line 1: it is no JSON')]);
    expect(JSON.parse(forked.stdout)).toMatchObject({ sessionId: 'chat-2', copiedThrough: 0, lastSequence: 1 });
    expect(wrong.code).toBe(2);
    expect([deleted.code, deleted.stdout]).toEqual([0, expect.stringContaining('chat-2 is deleted')]);
    expect((await runplane('session', 'export', 'chat-2', '--tenant', 'to')).code).toBe(1);
  });
});
