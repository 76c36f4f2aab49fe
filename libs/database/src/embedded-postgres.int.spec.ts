import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { startEmbeddedPostgres, type EmbeddedPostgres, type EmbeddedPostgresOptions } from './embedded-postgres';
import { openClient } from './testing';

const folder = mkdtempSync(path.join(os.tmpdir(), 'runplane-embedded-'));
const dataDir = path.join(folder, 'data');
const running: EmbeddedPostgres[] = [];

afterEach(async () => {
  for (const server of running.splice(0)) await server.stop();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function start(options: Partial<EmbeddedPostgresOptions> = {}): Promise<EmbeddedPostgres> {
  const server = await startEmbeddedPostgres({ dataDir, durability: 'server-default', ...options });
  running.push(server);
  return server;
}

async function query(server: { url: string }, text: string): Promise<unknown[]> {
  const client = await openClient(server.url);
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

async function until(what: string, holds: () => boolean): Promise<void> {
  for (const late = Date.now() + 60_000; !holds(); await delay(20)) if (Date.now() > late) throw new Error(`never: ${what}`);
}

/** Another process of ours that starts a server on the data directory, and then does nothing. */
async function startInOtherProcess(): Promise<{ pid: number; kill(): Promise<void> }> {
  const program = path.join(folder, 'owner.cjs');
  const dist = path.resolve(__dirname, '../dist/embedded-postgres.js');
  writeFileSync(
    program,
    `require(${JSON.stringify(dist)}).startEmbeddedPostgres({ dataDir: process.argv[2], durability: 'server-default' })
      .then((server) => { console.log(server.pid); setInterval(() => {}, 1000); }, (error) => { console.error(error); process.exit(1); });`,
  );
  const child = spawn(process.execPath, [program, dataDir], { stdio: ['ignore', 'pipe', 'inherit'] });
  const died = once(child, 'exit').then(() => Promise.reject(new Error('the other process did not start')));
  const [line] = (await Promise.race([once(child.stdout, 'data'), died])) as [Buffer];
  died.catch(() => undefined);
  return {
    pid: Number(line.toString()),
    async kill() {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

test('the data is there again after a stop, with the durability that a server has by default', async () => {
  const first = await start();
  await query(first, 'CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)');
  await first.stop();

  const second = await start();

  expect(await query(second, 'SELECT id FROM kept')).toEqual([{ id: 1 }]);
  expect(await query(second, `SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS commit`)).toEqual([
    { fsync: 'on', commit: 'on' },
  ]);
  expect(
    await query(second, `SELECT current_setting('listen_addresses') AS addresses, current_setting('server_encoding') AS encoding`),
  ).toEqual([{ addresses: '127.0.0.1', encoding: 'UTF8' }]);
  expect(second.url).toMatch(/^postgresql:\/\/.*\/runplane\?schema=runplane$/);
});

test('what was committed is there after a crash, on the same port', async () => {
  const first = await start();
  await query(first, 'CREATE TABLE survived (id int); INSERT INTO survived VALUES (7)');
  await first.crash();
  expect(existsSync(path.join(dataDir, 'postmaster.pid'))).toBe(true);

  const second = await start({ port: first.port });

  expect(await query(second, 'SELECT id FROM survived')).toEqual([{ id: 7 }]);
});

test('a data directory that another living process uses is refused, and is taken over once that process was killed', async () => {
  const other = await startInOtherProcess();
  await expect(start()).rejects.toThrow(/the process \d+ uses .*data, with its server on port \d+: stop it first/);

  await other.kill();
  const ours = await start();

  expect(await query(ours, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  expect(ours.pid).not.toBe(other.pid);
});

test('the server does not outlive a process that was killed', async () => {
  const other = await startInOtherProcess();

  await other.kill();

  await until('the server ends', () => !existsSync(path.join(dataDir, 'postmaster.pid')));
});

test('a note of a postmaster whose number another program has now stops nobody', async () => {
  await (await start()).stop();
  writeFileSync(path.join(dataDir, 'postmaster.pid'), `${process.pid}\n${dataDir}\n1\n5432\n\n127.0.0.1\n\n`);

  const server = await start();

  expect(await query(server, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
});

test('a server that keeps running is adopted by the next start', async () => {
  const first = await start({ keepRunning: true });

  const second = await start({ keepRunning: true });

  expect(second).toMatchObject({ pid: first.pid, port: first.port, url: first.url });
  await second.stop();
  expect(existsSync(path.join(dataDir, 'postmaster.pid'))).toBe(false);
});

test('of two starts at once one is refused soon, and the other server stays', async () => {
  await (await start()).stop();

  const starts = await Promise.allSettled([start(), start()]);

  const servers = starts.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  const refusals = starts.flatMap((each) => (each.status === 'rejected' ? [String(each.reason)] : []));
  expect(refusals).toEqual([expect.stringContaining('another server uses that data directory')]);
  expect(await query(servers[0] as EmbeddedPostgres, 'SELECT 1 AS one')).toEqual([{ one: 1 }]);
  expect(existsSync(path.join(dataDir, 'runplane-owner.json'))).toBe(true);
});

test('a port that is taken is named, with what the server said', async () => {
  const taken = net.createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const { port } = taken.address() as net.AddressInfo;

  await expect(start({ port })).rejects.toThrow(
    new RegExp(`did not start on port ${port} .*choose another port.*Address already in use`, 's'),
  );

  taken.close();
});

test('a folder that holds something else is left alone', async () => {
  const other = path.join(folder, 'other');
  mkdirSync(other);
  writeFileSync(path.join(other, 'letter.txt'), 'dear all');

  await expect(start({ dataDir: other })).rejects.toThrow('holds something else than a PostgreSQL data directory');

  expect(readFileSync(path.join(other, 'letter.txt'), 'utf8')).toBe('dear all');
});

test('a temporary data directory goes with its server', async () => {
  const temporary = path.join(folder, 'temporary');
  const server = await start({ dataDir: temporary, temporary: true, durability: 'off' });
  expect(await query(server, `SELECT current_setting('fsync') AS fsync`)).toEqual([{ fsync: 'off' }]);

  await server.stop();

  expect(existsSync(temporary)).toBe(false);
});
