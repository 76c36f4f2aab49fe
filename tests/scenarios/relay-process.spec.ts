import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { OUTBOX_SHARDS } from '@runplane/contracts';
import { useDatabase } from '@runplane/database/testing';
import { appendEvents } from '@runplane/outbox/testing';
import { until } from '../support/until';

// `npm run relay` as processes, to a webhook: told to stop, and killed. Needs a build.

const PROGRAM = path.resolve(path.dirname(require.resolve('@runplane/api/package.json')), 'dist/relay.js');
const SINK = 'partner';
const database = useDatabase({ checkInvariants: false });

/** What the endpoint has got, in its order: sequences by key. */
const got = new Map<string, number[]>();
const server = createServer((request, response) => {
  let body = '';
  request.on('data', (part: Buffer) => (body += part.toString()));
  request.on('end', () => {
    const { partitionkey, sequence } = JSON.parse(body) as { partitionkey: string; sequence: string };
    got.set(partitionkey, [...(got.get(partitionkey) ?? []), Number(sequence)]);
    response.writeHead(204).end();
  });
});
const children: ChildProcess[] = [];
let files = 0;
let dir = '';
beforeAll(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'relay-process-'));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
  server.closeAllConnections();
  server.close();
  await rm(dir, { recursive: true });
});

interface RelayProcess {
  readonly child: ChildProcess;
  /** As it says itself. */
  readonly owner: string;
}

async function startRelay({ leaseMs }: { leaseMs: number }): Promise<RelayProcess> {
  const { port } = server.address() as AddressInfo;
  const file = path.join(dir, `sinks-${(files += 1)}.json`);
  const options = {
    url: `http://127.0.0.1:${port}/events`,
    secrets: [`whsec_${Buffer.alloc(24, 1).toString('base64')}`],
    allowHttp: true,
    allowedRanges: ['127.0.0.0/8'],
  };
  await writeFile(file, JSON.stringify({ [SINK]: { kind: 'webhook', start: 'oldest', limits: { leaseMs }, options } }));
  const env = { PATH: process.env['PATH'], DATABASE_URL: database.url, RUNPLANE_SINKS_FILE: file };
  const child = spawn(process.execPath, [PROGRAM], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  children.push(child);
  let said = '';
  child.stderr.on('data', (part: Buffer) => (said += part.toString()));
  const owner = await until('a relay serves', () => {
    if (child.exitCode !== null) throw new Error(said);
    return / as (\S+)\n/.exec(said)?.[1];
  });
  return { child, owner };
}

const shardsOf = async ({ owner }: RelayProcess): Promise<number> =>
  (await database.db.pool.query('SELECT FROM runplane.outbox_shards WHERE sink = $1 AND owner = $2', [SINK, owner])).rowCount ?? 0;

const KEYS = Array.from({ length: 20 }, (_, n) => `s${n}`);
let appended = 0;
async function append(): Promise<void> {
  appended += 1;
  for (const sessionId of KEYS) await appendEvents(database.db.sql, { sessionId, sequence: appended });
}
/** The first appearances of each key are all of its events, in their order. */
const isWhole = (): boolean =>
  KEYS.every((id) => [...new Set(got.get(`acme/${id}`))].join() === Array.from({ length: appended }, (_, n) => n + 1).join());
const untilWhole = () => until('everything has come, in order', isWhole);

test('a relay that is told to stop hands its shards back and exits with 0; one that is killed loses them with its lease; nothing is missing', async () => {
  const [leaving, staying] = await Promise.all([startRelay({ leaseMs: 60_000 }), startRelay({ leaseMs: 1_000 })]);
  await until('both hold shards', async () => (await shardsOf(leaving)) > 0 && (await shardsOf(staying)) > 0);
  await append();
  await untilWhole();

  // Its lease would go on for a minute: whoever has its shards now has them from its own hand.
  await append();
  const exited = once(leaving.child, 'exit');
  leaving.child.kill('SIGTERM');
  expect(await exited).toEqual([0, null]);
  expect(await shardsOf(leaving)).toBe(0);
  await until('the other has all shards', async () => (await shardsOf(staying)) === OUTBOX_SHARDS);
  await append();
  await untilWhole();

  const coming = await startRelay({ leaseMs: 60_000 });
  await until('both hold shards', async () => (await shardsOf(coming)) > 0 && (await shardsOf(staying)) > 0);
  await append();
  staying.child.kill('SIGKILL');
  await append();
  await until('the other has all shards', async () => (await shardsOf(coming)) === OUTBOX_SHARDS);
  await untilWhole();
});
