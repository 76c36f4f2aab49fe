import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type pg from 'pg';
import { openDb } from './db';
import { migrate, migrationStatus, MigrationError, readMigrations } from './migrate';
import { dropTestDatabase, openClient, testServerUrl, waitUntilBlocked } from './testing';

const ROOT = path.resolve(__dirname, '../../..');
const CLI_TIMEOUT_MS = 60_000;

const server = testServerUrl();
const made: string[] = [];

afterAll(async () => {
  for (const name of made) await dropTestDatabase(server, name);
});

async function emptyDatabase(): Promise<string> {
  const url = new URL(server);
  const name = `migrate_${randomBytes(6).toString('hex')}`;
  await withClient(server, (client) => client.query(`CREATE DATABASE ${name}`));
  made.push(name);
  url.pathname = `/${name}`;
  url.searchParams.set('schema', 'runplane');
  return url.toString();
}

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await openClient(url);
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

/** Rows of one query, each as an array of text. */
function texts(url: string, query: string): Promise<unknown[][]> {
  return withClient(url, async (client) => (await client.query<unknown[]>({ text: query, rowMode: 'array' })).rows);
}

/** The real CLI on a database; exit code and everything it printed. */
function prisma(url: string, args: string[], config = path.join(ROOT, 'prisma.config.ts')): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [path.join(ROOT, 'node_modules/prisma/build/index.js'), ...args, '--config', config],
      { cwd: ROOT, env: { ...process.env, DATABASE_URL: url, NO_COLOR: '1' }, timeout: CLI_TIMEOUT_MS },
      (error, stdout, stderr) => resolve({ code: typeof error?.code === 'number' ? error.code : error ? -1 : 0, output: stdout + stderr }),
    );
  });
}

/** Everything that a migration can make in our schema, as PostgreSQL itself spells it. */
function describeSchema(url: string): Promise<unknown[][]> {
  return texts(
    url,
    `
    WITH home AS (SELECT oid FROM pg_namespace WHERE nspname = 'runplane')
    SELECT 'column', c.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull || ' ' || a.attidentity::text || a.attgenerated::text || ' '
           || coalesce(pg_get_expr(d.adbin, d.adrelid), '')
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (c.oid, a.attnum)
     WHERE c.relnamespace = (SELECT oid FROM home)
    UNION ALL SELECT 'relation', relname, relkind::text || coalesce(array_to_string(reloptions, ','), '') FROM pg_class WHERE relnamespace = (SELECT oid FROM home)
    UNION ALL SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = (SELECT oid FROM home)
    UNION ALL SELECT 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class c ON c.oid = indexrelid WHERE relnamespace = (SELECT oid FROM home)
    UNION ALL SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p WHERE pronamespace = (SELECT oid FROM home) AND prokind = 'f'
    UNION ALL SELECT 'enum', enumtypid::regtype::text, string_agg(enumlabel, ',' ORDER BY enumsortorder) FROM pg_enum GROUP BY enumtypid
    UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'view', c.oid::regclass::text, pg_get_viewdef(c.oid) FROM pg_class c WHERE relnamespace = (SELECT oid FROM home) AND relkind = 'v'
    ORDER BY 1, 2, 3`,
  );
}

const applied = (url: string): Promise<unknown[][]> =>
  texts(
    url,
    `SELECT migration_name, checksum, finished_at IS NOT NULL, rolled_back_at IS NULL, logs IS NULL, applied_steps_count
       FROM runplane._prisma_migrations ORDER BY migration_name`,
  );

/** A folder of migrations of its own, with the Prisma configuration that knows it. */
function scratchMigrations(scripts: Record<string, string>): { dir: string; config: string; write(name: string, script: string): void } {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'runplane-migrations-'));
  const dir = path.join(folder, 'migrations');
  const write = (name: string, script: string): void => {
    mkdirSync(path.join(dir, name), { recursive: true });
    writeFileSync(path.join(dir, name, 'migration.sql'), script);
  };
  for (const [name, script] of Object.entries(scripts)) write(name, script);
  writeFileSync(path.join(dir, 'migration_lock.toml'), 'provider = "postgresql"\n');
  const engine = JSON.stringify(path.join(ROOT, 'tools/schema-engine.mjs'));
  const config = path.join(folder, 'prisma.config.mjs');
  writeFileSync(
    config,
    `process.env.PRISMA_SCHEMA_ENGINE_BINARY = ${engine};
     export default { schema: ${JSON.stringify(path.join(ROOT, 'prisma/schema'))}, migrations: { path: ${JSON.stringify(dir)} }, datasource: { url: process.env.DATABASE_URL } };`,
  );
  folders.push(folder);
  return { dir, config, write };
}

const folders: string[] = [];
afterAll(() => folders.forEach((folder) => rmSync(folder, { recursive: true, force: true })));

describe('migrate and the Prisma CLI', () => {
  test(
    'either may follow the other, and both make the same schema',
    async () => {
      const names = (await readMigrations()).map((migration) => migration.name);
      const ours = await emptyDatabase();
      const theirs = await emptyDatabase();

      expect(await migrate(ours)).toEqual(names);
      const deployed = await prisma(theirs, ['migrate', 'deploy']);

      expect(deployed).toMatchObject({ code: 0 });
      expect((await prisma(ours, ['migrate', 'status'])).output).toContain('Database schema is up to date!');
      expect((await prisma(ours, ['migrate', 'deploy'])).output).toContain('No pending migrations to apply.');
      expect(await migrate(theirs)).toEqual([]);
      expect(await applied(ours)).toEqual(await applied(theirs));
      expect(await describeSchema(ours)).toEqual(await describeSchema(theirs));
      expect((await describeSchema(ours)).length).toBeGreaterThan(50);
    },
    4 * CLI_TIMEOUT_MS,
  );

  test(
    'a migration that failed in one is refused by the other until somebody says what became of it',
    async () => {
      const scratch = scratchMigrations({
        '20260101000000_good': 'CREATE TABLE runplane.good (id int);',
        '20260102000000_bad': 'CREATE TABLE runplane.half (id int); SELECT 1 / 0;',
      });
      const url = await emptyDatabase();

      await expect(migrate(url, { dir: scratch.dir })).rejects.toThrow('20260102000000_bad: division by zero');
      await expect(migrate(url, { dir: scratch.dir })).rejects.toThrow(/never finished: 20260102000000_bad.*migrate resolve/s);
      expect((await prisma(url, ['migrate', 'deploy'], scratch.config)).output).toContain('P3009');
      expect(await texts(url, `SELECT to_regclass('runplane.good')::text, to_regclass('runplane.half')::text`)).toEqual([
        ['runplane.good', null],
      ]);

      scratch.write('20260102000000_bad', 'CREATE TABLE runplane.half (id int);');
      const resolved = await prisma(url, ['migrate', 'resolve', '--rolled-back', '20260102000000_bad'], scratch.config);
      expect(resolved).toMatchObject({ code: 0 });
      expect(await migrate(url, { dir: scratch.dir })).toEqual(['20260102000000_bad']);

      scratch.write('20260103000000_worse', 'SELECT 1 / 0;');
      expect((await prisma(url, ['migrate', 'deploy'], scratch.config)).code).not.toBe(0);
      await expect(migrate(url, { dir: scratch.dir })).rejects.toThrow('never finished: 20260103000000_worse');
    },
    5 * CLI_TIMEOUT_MS,
  );
});

describe('migrate', () => {
  test('a role that owns the schema and nothing else can apply everything', async () => {
    const url = new URL(await emptyDatabase());
    const role = `owner_${randomBytes(6).toString('hex')}`;
    await withClient(url.toString(), (client) =>
      client.query(`CREATE ROLE ${role} LOGIN PASSWORD 'x'; CREATE SCHEMA runplane AUTHORIZATION ${role}`),
    );
    try {
      const asRole = new URL(url);
      Object.assign(asRole, { username: role, password: 'x' });
      expect(await migrate(asRole.toString())).toEqual((await readMigrations()).map(({ name }) => name));
    } finally {
      await withClient(url.toString(), (client) => client.query(`DROP OWNED BY ${role} CASCADE; DROP ROLE ${role}`));
    }
  });

  test('two at once apply each migration once', async () => {
    const url = await emptyDatabase();

    const [first, second] = await Promise.all([migrate(url), migrate(url)]);

    const names = (await readMigrations()).map((migration) => migration.name);
    expect([...first, ...second].sort()).toEqual(names);
    expect((await applied(url)).map(([name]) => name)).toEqual(names);
  });

  test('a migration that was edited after it was applied is refused, and the status names it', async () => {
    const scratch = scratchMigrations({ '20260101000000_first': 'CREATE TABLE runplane.first (id int);' });
    const url = await emptyDatabase();
    await migrate(url, { dir: scratch.dir });

    scratch.write('20260101000000_first', 'CREATE TABLE runplane.first (id bigint);');
    scratch.write('20260102000000_second', 'CREATE TABLE runplane.second (id int);');

    await expect(migrate(url, { dir: scratch.dir })).rejects.toThrow('edited after it was applied: 20260101000000_first');
    const db = await openDb({ url });
    expect(await migrationStatus(db.sql, { dir: scratch.dir })).toEqual({
      pending: ['20260102000000_second'],
      failed: [],
      edited: ['20260101000000_first'],
      unknown: [],
    });
    await db.close();
  });

  test('a database that is newer than the files is left in peace', async () => {
    const scratch = scratchMigrations({ '20260101000000_first': 'SELECT 1;', '20260102000000_newer': 'SELECT 1;' });
    const url = await emptyDatabase();
    await migrate(url, { dir: scratch.dir });

    rmSync(path.join(scratch.dir, '20260102000000_newer'), { recursive: true });

    expect(await migrate(url, { dir: scratch.dir })).toEqual([]);
    const db = await openDb({ url });
    expect(await migrationStatus(db.sql, { dir: scratch.dir })).toEqual({
      pending: [],
      failed: [],
      edited: [],
      unknown: ['20260102000000_newer'],
    });
    await db.close();
  });

  test('a database that has never been migrated has everything pending', async () => {
    const db = await openDb({ url: await emptyDatabase() });

    const status = await migrationStatus(db.sql);

    expect(status.pending).toEqual((await readMigrations()).map((migration) => migration.name));
    await db.close();
  });

  test('a script that waits too long for a lock changes nothing and may be tried again', async () => {
    const scratch = scratchMigrations({ '20260101000000_first': 'CREATE TABLE runplane.busy (id int);' });
    const url = await emptyDatabase();
    await migrate(url, { dir: scratch.dir });
    scratch.write('20260102000000_second', 'CREATE TABLE runplane.early (id int); ALTER TABLE runplane.busy ADD COLUMN more int;');

    await withClient(url, async (client) => {
      await client.query('BEGIN; LOCK TABLE runplane.busy IN ACCESS SHARE MODE');
      await expect(migrate(url, { dir: scratch.dir, lockTimeoutMs: 200 })).rejects.toThrow(/lock timeout.*try again/);
      await client.query('COMMIT');
    });

    expect(await texts(url, `SELECT to_regclass('runplane.early')::text`)).toEqual([[null]]);
    expect(await migrate(url, { dir: scratch.dir })).toEqual(['20260102000000_second']);
  });

  test('a process that is killed inside a script leaves nothing behind, and the next start applies it', async () => {
    const scratch = scratchMigrations({
      '20260101000000_slow': 'CREATE TABLE runplane.slow (id int); SELECT pg_advisory_xact_lock(4711);',
    });
    const url = await emptyDatabase();

    await withClient(url, async (client) => {
      await client.query('SELECT pg_advisory_lock(4711)');
      const killed = migrate(url, { dir: scratch.dir });
      const [pid] = await waitUntilBlocked(client, 1);
      await Promise.all([expect(killed).rejects.toThrow(MigrationError), client.query('SELECT pg_terminate_backend($1)', [pid])]);
    });

    expect(await migrate(url, { dir: scratch.dir })).toEqual(['20260101000000_slow']);
  });

  test('a script that cannot run inside a transaction runs alone', async () => {
    const scratch = scratchMigrations({
      '20260101000000_table': 'CREATE TABLE runplane.t (id int);',
      '20260102000000_index': 'CREATE INDEX CONCURRENTLY t_id ON runplane.t (id);',
    });
    const url = await emptyDatabase();

    expect(await migrate(url, { dir: scratch.dir })).toEqual(['20260101000000_table', '20260102000000_index']);
    expect(await texts(url, `SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'runplane.t'::regclass`)).toEqual([
      ['runplane.t_id'],
    ]);
  });
});

it('`migrate dev` applies what is missing and makes a migration of a change in one go, without a question', async () => {
  const url = await emptyDatabase();
  const project = mkdtempSync(path.join(os.tmpdir(), 'runplane-dev-'));
  try {
    cpSync(path.join(ROOT, 'prisma'), path.join(project, 'prisma'), { recursive: true });
    const file = path.join(project, 'prisma/schema/access.prisma');
    writeFileSync(file, readFileSync(file, 'utf8').replace('model ApiKey {', 'model ApiKey {\n  remark String?\n'));
    const config = path.join(ROOT, `prisma.dev-${randomBytes(4).toString('hex')}.config.ts`); // beside the modules that it imports
    writeFileSync(
      config,
      `process.env.PRISMA_SCHEMA_ENGINE_BINARY = '${path.join(ROOT, 'tools/schema-engine.mjs')}';
       export default { schema: '${project}/prisma/schema', migrations: { path: '${project}/prisma/migrations' }, datasource: { url: process.env.DATABASE_URL } };`,
    );
    try {
      const { code, output } = await onTerminal(url, `migrate dev --name remark --config ${config}`);
      expect({ code, output }).toMatchObject({
        code: 0,
        output: expect.stringContaining('Your database is now in sync with your schema') as string,
      });
    } finally {
      rmSync(config);
    }
    const [made] = readdirSync(path.join(project, 'prisma/migrations')).filter((name) => name.endsWith('_remark'));
    expect(readFileSync(path.join(project, 'prisma/migrations', made ?? '', 'migration.sql'), 'utf8')).toMatch(
      /^-- AlterTable\nALTER TABLE "api_keys" ADD COLUMN +"remark" TEXT;\s*$/,
    );
  } finally {
    rmSync(project, { recursive: true, force: true });
  }
});

/** The CLI on a pseudo-terminal, without which `migrate dev` refuses to work. */
function onTerminal(url: string, args: string): Promise<{ code: number; output: string }> {
  const command = `${process.execPath} ${path.join(ROOT, 'node_modules/prisma/build/index.js')} ${args}`;
  return new Promise((resolve) => {
    const child = execFile(
      'script',
      ['-qec', command, '/dev/null'],
      { cwd: ROOT, env: { ...process.env, DATABASE_URL: url, NO_COLOR: '1' }, timeout: CLI_TIMEOUT_MS },
      (error, stdout) => resolve({ code: error ? Number(error.code ?? -1) : 0, output: stdout }),
    );
    child.stdin?.end();
  });
}
