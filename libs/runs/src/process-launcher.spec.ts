import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { BackendProfiles, processBackendOf } from '@runplane/contracts';
import type { LaunchRequest, LaunchResult } from './launcher';
import { createProcessLauncher } from './process-launcher';
import { processStart } from './process-start';

// The runner program of these tests: writes the job it got beside its log and stays.
const PROGRAM = `
  let job = '';
  process.stdin.on('data', (chunk) => (job += chunk));
  process.stdin.on('end', () => {
    if (job === '') process.exit(64);
    require('node:fs').writeFileSync(process.pid + '.job', job);
    setInterval(() => {}, 1000);
  });`;

let dir: string;
let started: number[];

beforeEach(async () => {
  dir = await mkdtemp(path.join(os.tmpdir(), 'launcher-'));
  started = [];
});
afterEach(async () => {
  for (const pid of started) killIfThere(pid);
  await rm(dir, { recursive: true });
});

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error; // it has ended by itself meanwhile
  }
}

const backends = BackendProfiles.parse({
  agent: { command: ['agent', '--fast'], envAllow: ['LAUNCHER_TEST', 'DATABASE_URL', 'RUNPLANE_SECRET'], env: { FIXED: '1' } },
});
const request: LaunchRequest = {
  tenantId: 't',
  runId: 'run_1',
  commandId: 'cmd_1',
  intentId: 'intent_1',
  runnerJobId: 'rjob_1',
  runnerId: 'runner_1',
  backendProfile: 'agent',
  workspaceRef: { path: 'team/a' },
  input: {},
  executionPolicy: {},
};

const launcher = (runnerCommand = [process.execPath, '-e', PROGRAM]) =>
  createProcessLauncher({
    runnerCommand,
    stateDir: dir,
    apiUrl: 'http://127.0.0.1:3000',
    backends,
    workspaceRoot: '/srv/workspaces',
    issueToken: ({ runId, runnerId }) => Promise.resolve(`token-of-${runId}-${runnerId}`),
  });

async function launch(change: Partial<LaunchRequest> = {}, by = launcher()): Promise<LaunchResult & { pid: number }> {
  const launched = await by.launch({ ...request, ...change });
  const pid = launched.result['pid'] as number;
  started.push(pid);
  return { ...launched, pid };
}

async function eventually<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (let tries = 0; tries < 600; tries += 1) {
    const seen = await look().catch(() => undefined);
    if (seen !== undefined) return seen;
    await sleep(25);
  }
  throw new Error('it did not happen');
}
const jobOf = (pid: number) => eventually(async () => JSON.parse(await readFile(path.join(dir, `${pid}.job`), 'utf8')));
const gone = (pid: number) => eventually(async () => ((await processStart(pid)) === undefined ? true : undefined));

it('knows whether a process that it has started lives, and nothing of others', async () => {
  const by = launcher();
  const recorded = { tenantId: 't', runId: 'run_1', runnerJobId: request.runnerJobId, launcher: 'process', jobName: 'process', result: {} };
  expect(await by.find?.(recorded)).toEqual({ state: 'unknown' });
  const { pid } = await launch({}, by);

  expect(await by.find?.(recorded)).toEqual({ state: 'active' });
  killIfThere(pid);
  while ((await processStart(pid)) !== undefined) await sleep(5);
  expect(await by.find?.(recorded)).toEqual({ state: 'gone' });
});

it('hands the job over on standard input, and the token nowhere else', async () => {
  Object.assign(process.env, { LAUNCHER_TEST: 'seen', DATABASE_URL: 'postgres://secret', RUNPLANE_SECRET: 'x', LAUNCHER_OTHER: 'y' });

  const { pid, outcome } = await launch();

  expect(outcome).toBe('created');
  expect(await jobOf(pid)).toEqual({
    apiUrl: 'http://127.0.0.1:3000',
    token: 'token-of-run_1-runner_1',
    runId: 'run_1',
    commandId: 'cmd_1',
    runnerId: 'runner_1',
    backend: backends['agent'] && processBackendOf(backends['agent']),
    workspaceRoot: '/srv/workspaces/t',
    workspacePath: 'team/a',
  });
  const environ = (await readFile(`/proc/${pid}/environ`, 'utf8')).split('\0');
  expect(environ).toContain('LAUNCHER_TEST=seen');
  expect(environ.map((line) => line.split('=')[0])).not.toEqual(expect.arrayContaining(['DATABASE_URL']));
  expect(environ.join()).not.toMatch(/RUNPLANE|LAUNCHER_OTHER|token-of/);
  expect(await readFile(`/proc/${pid}/cmdline`, 'utf8')).not.toContain('token-of');
  expect(
    (
      await Promise.all((await readdir(dir)).filter((name) => !name.endsWith('.job')).map((name) => readFile(path.join(dir, name), 'utf8')))
    ).join(),
  ).not.toContain('token-of');
  for (const name of ['LAUNCHER_TEST', 'DATABASE_URL', 'RUNPLANE_SECRET', 'LAUNCHER_OTHER']) delete process.env[name];
});

it('gives the runner a session of its own, so that it outlives the launcher', async () => {
  const { pid } = await launch();

  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  const [, , group, session] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');

  expect([Number(group), Number(session)]).toEqual([pid, pid]);
});

it('adopts the living process of a repeated job, also after a restart of the launcher', async () => {
  const first = await launch();
  const second = await launch({}, launcher());

  expect(second).toMatchObject({ outcome: 'adopted', pid: first.pid, jobName: first.jobName });
});

it('starts a dead job again, as another incarnation', async () => {
  const first = await launch();
  await jobOf(first.pid);
  process.kill(first.pid, 'SIGKILL');
  await gone(first.pid);

  const second = await launch();

  expect(second.outcome).toBe('created');
  expect(await jobOf(second.pid)).toMatchObject({ runId: 'run_1', runnerId: 'runner_1.2' });
});

it('is not misled by another process with the number of a dead runner', async () => {
  await writeFile(path.join(dir, 'rjob_1.1.json'), JSON.stringify({ pid: process.pid, startTime: 'earlier', runnerId: 'runner_1' }));

  expect((await launch()).outcome).toBe('created');
});

it('starts one process when two launchers race', async () => {
  const launches = await Promise.all([launcher(), launcher(), launcher(), launcher()].map((each) => launch({}, each)));

  expect(new Set(launches.map(({ pid }) => pid)).size).toBe(1);
  expect(launches.map(({ outcome }) => outcome).sort()).toEqual(['adopted', 'adopted', 'adopted', 'created']);
});

it('takes over from a launcher that died before it had noted a process', async () => {
  await writeFile(path.join(dir, 'rjob_1.1.json'), JSON.stringify({ launcher: { pid: process.pid, startTime: 'earlier' } }));
  await writeFile(path.join(dir, 'rjob_2.1.json'), '{"launch'); // the machine went down while it wrote

  expect((await launch()).outcome).toBe('created');
  expect((await launch({ runnerJobId: 'rjob_2' })).outcome).toBe('created');
});

it.each([
  [{ backendProfile: 'unknown' }, 'schema-invalid'],
  [{ backendProfile: 'constructor' }, 'schema-invalid'],
  [{ workspaceRef: { path: '../other' } }, 'workspace-refused'],
  [{ workspaceRef: { path: 'a/../../b' } }, 'workspace-refused'],
  [{ workspaceRef: { path: '/etc' } }, 'workspace-refused'],
  [{ workspaceRef: { path: 7 } }, 'workspace-refused'],
])('refuses %j for good', async (change, failureKind) => {
  await expect(launch(change)).rejects.toMatchObject({ name: 'LaunchFailed', permanent: true, failureKind });
  expect(await readdir(dir)).toEqual([]);
});

it('gives each tenant workspaces of its own, also under the same path or run id', async () => {
  const placeOf = async (change: Partial<LaunchRequest>) => {
    const { workspaceRoot, workspacePath } = await jobOf((await launch(change)).pid);
    return path.join(workspaceRoot, workspacePath);
  };
  const own = { workspaceRef: {} };

  expect(await placeOf({ runnerJobId: 'a', tenantId: 'acme', ...own })).toBe('/srv/workspaces/acme/runs/run_1');
  expect(await placeOf({ runnerJobId: 'b', tenantId: 'globex', ...own })).toBe('/srv/workspaces/globex/runs/run_1');
});

it.each(['..', '.', 'a/b', '会'.repeat(66)])('finds a folder for a run that its creator called %s', async (runId) => {
  const { workspacePath } = await jobOf((await launch({ runId, workspaceRef: {} })).pid);

  expect(workspacePath).toMatch(/^runs\/[0-9a-f]{64}$/);
});

it('can be tried again when the runner program does not start', async () => {
  await expect(launch({}, launcher(['/nowhere/runner']))).rejects.toMatchObject({ name: 'LaunchFailed', permanent: false });

  expect((await launch()).outcome).toBe('created');
});

it('forgets jobs that ended long ago', async () => {
  for (const name of ['old.1.json', 'old.1.log', 'new.1.json']) await writeFile(path.join(dir, name), '{}');
  for (const name of ['old.1.json', 'old.1.log']) await utimes(path.join(dir, name), 0, 0);

  await launch();

  expect((await readdir(dir)).filter((name) => /^(old|new)/.test(name))).toEqual(['new.1.json']);
});
