import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { createApiKey } from '@runplane/api';
import { type Client, createClient } from '@runplane/client';
import { type AdmittedSteer, type AdmittedTurn, type RunEvent, SCOPES } from '@runplane/contracts';
import { ensureTenant } from '@runplane/database';
import { openClient, startTcpProxy, type TcpProxy, useDatabase } from '@runplane/database/testing';
import { ApiProcess, freePort } from '../support/api-process';
import { processesIn } from '../support/processes';
import { until } from '../support/until';

// The whole path: an API process, the dispatcher in it, real runner processes with a real program, HTTP between them. Needs a build.

/** The program of these tests: says where it is, then a number every few milliseconds, as its turn wishes; ends when a file is there, if asked. */
const PROGRAM = `
  process.stdin.once('data', async (line) => {
    const { lines = 3, everyMs = 20, stubborn = false, waitsFor } = JSON.parse(line).payload;
    if (stubborn) {
      process.on('SIGTERM', () => console.log('no'));
      require('node:child_process').spawn('sh', ['-c', 'trap "" TERM; sleep 1000; sleep 1000'], { stdio: 'ignore' });
    }
    require('node:fs').appendFileSync('starts', process.env.RUNPLANE_RUN_ID + '\\n');
    for (let n = 1; n <= lines; n += 1) {
      await new Promise((resolve) => setTimeout(resolve, everyMs));
      console.log('line', n);
    }
    while (waitsFor && !require('node:fs').existsSync(waitsFor)) await new Promise((resolve) => setTimeout(resolve, everyMs));
    process.exit(0);
  });`;
/** Answers every line that it reads, and ends with the word `stop`. */
const TALKER = `
  require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { type, payload } = JSON.parse(line);
    console.log(type, payload.text);
    if (payload.text === 'stop') process.exit(0);
  });`;

const backends = {
  agent: { command: [process.execPath, '-e', PROGRAM], graceMs: 500 },
  talker: { command: [process.execPath, '-e', TALKER] },
  deaf: { command: [process.execPath, '-e', PROGRAM], stdin: 'turn' as const },
  careful: { command: [process.execPath, '-e', PROGRAM], envAllow: ['DATABASE_URL', 'RUNPLANE_DATA_DIR'] },
};

const database = useDatabase();
let dataDir: string;
let workspaces: string;
let api: ApiProcess;
let client: Client;
/** Between runners and API. */
let network: TcpProxy;
let turns = 0;

beforeAll(async () => {
  dataDir = await realpath(await mkdtemp(path.join(os.tmpdir(), 'main-job-')));
  workspaces = path.join(dataDir, 'workspaces', 'acme');
  await ensureTenant(database.db.sql, 'acme');
  const { key } = await createApiKey(database.db.sql, { tenantId: 'acme', name: 'test', scopes: [...SCOPES] });
  const port = await freePort();
  network = await startTcpProxy(`http://127.0.0.1:${port}`);
  const RUNPLANE_PUBLIC_URL = network.through('http://127.0.0.1');
  api = await ApiProcess.start({ databaseUrl: database.url, dataDir, port, backends, env: { RUNPLANE_PUBLIC_URL } });
  client = createClient({ url: api.url, apiKey: key });
});
afterEach(() => network.judge(() => 'forward'));
afterAll(async () => {
  await api.stop();
  await network.close();
  for (const { pid } of await processesIn(dataDir)) process.kill(pid, 'SIGKILL');
  await rm(dataDir, { recursive: true });
});

interface TurnOptions {
  session?: string;
  profile?: string;
  folder?: string;
  onRunnerLost?: 'fail' | 'requeue';
  maxDurationMs?: number;
  payload?: { lines?: number; everyMs?: number; stubborn?: boolean; waitsFor?: string };
}

async function startTurn({
  session,
  profile = 'agent',
  folder,
  onRunnerLost = 'fail',
  maxDurationMs,
  payload = {},
}: TurnOptions = {}): Promise<AdmittedTurn> {
  turns += 1;
  return client.admitTurn(
    session ?? `session-${turns}`,
    {
      run: { projectId: 'p', backendProfile: profile, workspaceRef: { path: folder ?? `folder-${turns}` }, onRunnerLost, maxDurationMs },
      payload: { text: 'Do it.', ...payload },
    },
    { idempotencyKey: `turn-${turns}` },
  );
}

/** Follows a run to its end; `onEvent` may interfere. */
async function follow(runId: string, onEvent: (event: RunEvent) => unknown = () => undefined): Promise<RunEvent[]> {
  const events: RunEvent[] = [];
  for await (const event of client.followRun(runId)) {
    events.push(event);
    await onEvent(event);
  }
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
  return events;
}

const textOf = ({ type, payload }: RunEvent) => (type === 'command_output' && typeof payload['text'] === 'string' ? payload['text'] : '');
const output = (events: readonly RunEvent[]) => events.map(textOf).join('');
const numbered = (lines: number) => Array.from({ length: lines }, (_, index) => `line ${index + 1}\n`).join('');
const phases = (events: readonly RunEvent[]) => events.map(({ payload }) => payload['phase']).filter((phase) => phase !== undefined);
const says = (event: RunEvent, text: string) => textOf(event).includes(text);
const programsIn = (folder: string) => processesIn(path.join(workspaces, folder));
const runners = () => processesIn(path.join(dataDir, 'runners'));
const starts = async (folder: string) => (await readFile(path.join(workspaces, folder, 'starts'), 'utf8')).trim().split('\n');

it('a turn goes from the request to a real program and back, followed live', async () => {
  const { run, command } = await startTurn({ session: 'first', folder: 'team/a' });

  const events = await follow(run.id);

  expect(output(events)).toBe(numbered(3));
  expect(phases(events)).toEqual(expect.arrayContaining(['run-created', 'run-claimed', 'process-started', 'process-exited']));
  expect(events.find(({ type }) => type === 'user_message')?.payload).toMatchObject({ text: 'Do it.' });
  expect(await client.getResult(run.id)).toMatchObject({ status: 'completed', finished: true, lastEventSeq: events.length });
  expect(await client.getCommand(command.id)).toMatchObject({ state: 'completed' });
  expect(await client.getSession('first')).toMatchObject({ executionState: 'terminal', activeRunId: null, lastRunId: run.id });
  expect(await starts('team/a')).toEqual([run.id]);
  await until('the runner has ended', async () => (await runners()).length === 0);
});

it('neither the runner nor its program shows a token or the database in arguments or environment', async () => {
  const { run } = await startTurn({ profile: 'careful', folder: 'careful', payload: { lines: 1_000, everyMs: 20 } });

  const pids = await until('both run', async () => {
    const found = [...(await runners()), ...(await programsIn('careful'))];
    return found.length >= 2 && existsSync(path.join(workspaces, 'careful/starts')) ? found.map(({ pid }) => pid) : undefined;
  });
  const shown = await Promise.all(
    pids.flatMap((pid) => [readFile(`/proc/${pid}/environ`, 'utf8'), readFile(`/proc/${pid}/cmdline`, 'utf8')]),
  );
  await client.cancelRun(run.id);
  await follow(run.id);

  expect(shown.join('\n')).not.toMatch(/DATABASE_URL|RUNPLANE_DATA_DIR|postgres|rp_|token/i);
});

it('steers reach the program while it works, and the log tells their way', async () => {
  const { run } = await startTurn({ session: 'steered', profile: 'talker' });
  const steer = async (text: string) => (await client.admitSteer('steered', { payload: { text } }, { idempotencyKey: text })).command.id;
  const steers: Promise<string>[] = [];

  const events = await follow(run.id, (event) => {
    if (says(event, 'turn Do it.')) steers.push(steer('to the left'));
    if (says(event, 'steer to the left')) steers.push(steer('stop'));
  });

  expect(output(events)).toBe('turn Do it.\nsteer to the left\nsteer stop\n');
  for (const commandId of await Promise.all(steers)) {
    expect(await client.getCommand(commandId)).toMatchObject({ state: 'completed' });
    expect(phases(events.filter((event) => event.commandId === commandId))).toEqual([
      'command-created',
      'steer-accepted',
      'command-acknowledged',
      'steer-delivered',
      'steer-consumed',
      'command-terminal',
    ]);
  }
});

it('a steer that its program does not take is reported as missed, and a late one is refused', async () => {
  const { run } = await startTurn({ session: 'deaf', profile: 'deaf', folder: 'deaf', payload: { waitsFor: 'go' } });
  let missed: Promise<AdmittedSteer> | undefined;

  const events = await follow(run.id, (event) => {
    if (!says(event, 'line 1')) return;
    missed = client.admitSteer('deaf', { payload: { text: 'hello?' } }, { idempotencyKey: 'early' }).then(async (steer) => {
      await writeFile(path.join(workspaces, 'deaf', 'go'), '');
      return steer;
    });
  });

  const commandId = (await missed)?.command.id ?? '';
  expect(await client.getCommand(commandId)).toMatchObject({ state: 'failed', failure: { kind: 'steer-missed' } });
  expect(phases(events.filter((event) => event.commandId === commandId))).toEqual([
    'command-created',
    'steer-accepted',
    'steer-missed',
    'command-terminal',
  ]);
  await expect(client.admitSteer('deaf', { payload: {} }, { idempotencyKey: 'late' })).rejects.toMatchObject({
    code: 'no_receivable_turn',
  });
});

it('a turn that interrupts has the program of the open one stopped, and comes after it', async () => {
  const first = await startTurn({ session: 'hurried', folder: 'hurried', payload: { lines: 10_000 } });
  let second: Promise<AdmittedTurn> | undefined;

  const events = await follow(first.run.id, (event) => {
    if (!says(event, 'line 1') || second !== undefined) return;
    const turn = { run: { projectId: 'p', backendProfile: 'agent', workspaceRef: { path: 'hurried' } }, payload: { text: 'No, this.' } };
    second = client.admitTurn('hurried', { ...turn, busyPolicy: 'interrupt' }, { idempotencyKey: 'hurried' });
  });

  expect(phases(events)).toEqual(expect.arrayContaining(['cancel-accepted', 'cancel-delivered', 'cancel-terminalized']));
  expect(await client.getResult(first.run.id)).toMatchObject({ status: 'cancelled' });
  const next = await second;
  expect(output(await follow(next?.run.id ?? ''))).toBe(numbered(3));
});

it('a runner whose calls lose their answers again and again stores every event once', async () => {
  let calls = 0;
  network.judge((bytes) =>
    /^POST \S+\/(events|finish|claim|ack)/.test(bytes.toString('latin1', 0, 200)) && (calls += 1) % 3 !== 0 ? 'lose-answer' : 'forward',
  );
  const { run } = await startTurn({ payload: { lines: 60, everyMs: 25 } });

  const events = await follow(run.id);

  expect(output(events)).toBe(numbered(60));
  expect(await client.getResult(run.id)).toMatchObject({ status: 'completed' });
  expect(calls).toBeGreaterThan(10);
});

it('a run outlives kill -9 of the API: program, runner and followers go on, nothing is lost', async () => {
  const { run } = await startTurn({ folder: 'survivor', payload: { lines: 100, everyMs: 40 } });
  let restart: Promise<void> | undefined;

  const events = await follow(run.id, async (event) => {
    if (restart !== undefined || !says(event, 'line 5\n')) return;
    await api.kill();
    restart = api.restart();
  });
  await restart;

  expect(output(events)).toBe(numbered(100));
  expect(await client.getResult(run.id)).toMatchObject({ status: 'completed' });
  expect(await starts('survivor')).toEqual([run.id]);
});

/** What the passing of the lease would do, without the wait for it. */
async function endLease(runId: string): Promise<void> {
  const raw = await openClient(database.url);
  await raw.query(`UPDATE runplane.run_leases SET expires_at = runplane.app_now() - interval '1 second' WHERE run_id = $1`, [runId]);
  await raw.end();
}

it.each([
  ['fails', 'fail'],
  ['is taken up by another runner', 'requeue'],
] as const)('kill -9 of a runner leaves no program behind, and its run %s', async (_, onRunnerLost) => {
  const folder = `orphan-${onRunnerLost}`;
  const { run } = await startTurn({ folder, onRunnerLost, payload: { lines: 60, everyMs: 50, stubborn: onRunnerLost === 'fail' } });
  await until('the program works', () => existsSync(path.join(workspaces, folder, 'starts')));

  for (const { pid } of await runners()) process.kill(pid, 'SIGKILL');

  await until('the program is gone', async () => (await programsIn(folder)).length === 0, 10_000);
  await endLease(run.id);
  const events = await follow(run.id);
  if (onRunnerLost === 'fail') {
    expect(await client.getResult(run.id)).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
    expect(await starts(folder)).toEqual([run.id]);
  } else {
    expect(await client.getResult(run.id)).toMatchObject({ status: 'completed' });
    expect(phases(events)).toContain('run-requeued');
    expect(await starts(folder)).toEqual([run.id, run.id]);
  }
});

it('SIGTERM to a runner ends its program and reports it, instead of leaving that to the end of the lease', async () => {
  const { run } = await startTurn({ folder: 'stopped', payload: { lines: 10_000 } });

  const events = await follow(run.id, async (event) => {
    if (says(event, 'line 3\n')) for (const { pid } of await runners()) process.kill(pid, 'SIGTERM');
  });

  expect(await client.getResult(run.id)).toMatchObject({
    status: 'failed',
    failure: { kind: 'runner-lost', message: 'the runner was asked to stop' },
  });
  expect(phases(events)).toContain('process-exited');
  expect(await programsIn('stopped')).toEqual([]);
});

it('a second SIGTERM to a runner that is ending its program changes nothing: the end is reported all the same', async () => {
  const { run } = await startTurn({ folder: 'stopped-twice', payload: { lines: 10_000, stubborn: true } });
  const signalled: number[] = [];

  const events = await follow(run.id, async (event) => {
    if (!says(event, 'line 3\n') && !says(event, 'no\n')) return; // the program says no to the first, and has half a second then
    for (const { pid } of await runners()) signalled.push(process.kill(pid, 'SIGTERM') ? pid : 0);
  });

  expect(signalled).toEqual([signalled[0], signalled[0]]);
  expect(await client.getResult(run.id)).toMatchObject({
    status: 'failed',
    failure: { kind: 'runner-lost', message: 'the runner was asked to stop' },
  });
  expect(phases(events)).toContain('process-exited');
  expect(await programsIn('stopped-twice')).toEqual([]);
});

it('a cancel ends a program that ignores SIGTERM, with its children, and frees the session', async () => {
  const { run } = await startTurn({ session: 'stubborn', folder: 'stubborn', payload: { lines: 10_000, everyMs: 20, stubborn: true } });

  const events = await follow(run.id, async (event) => says(event, 'line 3\n') && (await client.cancelRun(run.id, { reason: 'enough' })));

  expect(await client.getResult(run.id)).toMatchObject({ status: 'cancelled' });
  expect(output(events)).toContain('no\n');
  expect(events.find(({ payload }) => payload['phase'] === 'process-exited')?.payload['extra']).toEqual({
    exitCode: null,
    signal: 'SIGKILL',
  });
  expect(phases(events)).toEqual(
    expect.arrayContaining(['cancel-accepted', 'cancel-persisted', 'cancel-delivered', 'cancel-aborting', 'cancel-terminalized']),
  );
  expect(await programsIn('stubborn')).toEqual([]);
  expect((await startTurn({ session: 'stubborn', folder: 'stubborn' })).disposition).toBe('created');
});

it('the end of its time ends a run although its runner works and heartbeats, and the program with it', async () => {
  const { run } = await startTurn({ session: 'limited', folder: 'limited', maxDurationMs: 2_000, payload: { lines: 10_000 } });

  const events = await follow(run.id);

  expect(await client.getResult(run.id)).toMatchObject({ status: 'cancelled', failure: { kind: 'timeout' } });
  expect(output(events)).toContain('line 3\n');
  expect(await programsIn('limited')).toEqual([]);
  expect(await client.getSession('limited')).toMatchObject({ executionState: 'terminal', failureKind: 'timeout' });
});

it('a session is told to stop in the middle of its turn, whichever run that is, and takes the next one', async () => {
  const { run } = await startTurn({ session: 'stopped-session', folder: 'stopped-session', payload: { lines: 10_000 } });
  const asked: Awaited<ReturnType<Client['cancelSession']>>[] = [];

  const events = await follow(run.id, async (event) => {
    if (says(event, 'line 3\n')) asked.push(await client.cancelSession('stopped-session', { reason: 'enough' }));
  });

  expect(asked).toMatchObject([{ changed: true, run: { id: run.id }, request: { targetKind: 'session', targetId: 'stopped-session' } }]);
  expect(phases(events)).toEqual(expect.arrayContaining(['cancel-delivered', 'cancel-aborting', 'cancel-terminalized']));
  expect(await client.cancelSession('stopped-session')).toMatchObject({ run: null, changed: false });
  expect(await client.listSessionCancelRequests('stopped-session')).toMatchObject({
    requests: [{ stage: 'terminalized', reason: 'enough' }],
  });
  expect((await startTurn({ session: 'stopped-session', folder: 'stopped-session' })).disposition).toBe('created');
});

it('a runner that is killed before it claims ends its run at once', async () => {
  let claims = 0;
  network.judge((bytes) => {
    const isClaim = /^POST \S+\/claim/.test(bytes.toString('latin1', 0, 200));
    claims += Number(isClaim);
    return isClaim ? 'hold' : 'forward';
  });
  const { run } = await startTurn({ folder: 'never-claimed' });
  await until('its runner asks for the run', () => claims > 0);

  for (const { pid } of await runners()) process.kill(pid, 'SIGKILL');

  await follow(run.id);
  expect(await client.getResult(run.id)).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
});

it('a workspace that leads out of its root is refused for good, by the launcher or by the runner', async () => {
  const outside = path.join(dataDir, 'outside');
  await mkdir(outside);
  await mkdir(workspaces, { recursive: true });
  await symlink(outside, path.join(workspaces, 'way-out'));

  for (const folder of ['../outside', 'way-out', 'way-out/deeper']) {
    const { run } = await startTurn({ folder });
    await follow(run.id);
    expect(await client.getResult(run.id)).toMatchObject({ status: 'failed', failure: { kind: 'workspace-refused' } });
  }
  expect(await readdir(outside)).toEqual([]);
});

it('an unknown backend profile fails the run with words that help', async () => {
  const { run } = await startTurn({ profile: 'nobody-made-this' });
  await follow(run.id);

  expect(await client.getResult(run.id)).toMatchObject({
    status: 'failed',
    failure: { message: expect.stringContaining('nobody-made-this') },
  });
});
