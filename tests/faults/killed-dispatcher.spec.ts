import { randomUUID } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { claimDispatchIntents, createRuns, getDispatchIntent, getRun } from '@runplane/runs';
import { openClient, waitUntilBlocked } from '@runplane/database/testing';
import { story } from '@runplane/runs/testing';
import type { ApiProcess } from '../support/api-process';
import { TENANT, useMachine } from '../support/machine';
import { processesIn } from '../support/processes';
import { until } from '../support/until';

// A dispatcher is killed between the launch of a runner and its record, or before the launch: the next one takes the intent up, and the
// program runs once.

const machine = useMachine();
const stdin = 'turn' as const;
const backends = {
  marked: { command: ['/bin/sh', '-c', 'echo started >> marks; sleep 0.3; echo done'], stdin },
  patient: { command: ['/bin/sh', '-c', 'echo started >> marks; while [ ! -e go ]; do sleep 0.1; done'], stdin },
};
let api: ApiProcess | undefined;

afterEach(async () => {
  await api?.kill();
  api = undefined;
});

const runners = () => processesIn(path.join(machine.dir, 'data/runners'));

interface DispatchedTurn {
  readonly runId: string;
  readonly commandId: string;
  readonly folder: string;
  /** A line for each start of the program. */
  readonly marks: () => Promise<string[]>;
}

async function aDispatchedTurn(backendProfile: keyof typeof backends = 'marked'): Promise<DispatchedTurn> {
  const name = randomUUID();
  const folder = path.join(machine.dir, 'data/workspaces', TENANT, name);
  await mkdir(folder, { recursive: true });
  const file = path.join(folder, 'marks');
  await writeFile(file, '');
  const { run, command } = await createRuns(machine.db).admitTurn({
    tenantId: TENANT,
    sessionId: randomUUID(),
    idempotencyKey: randomUUID(),
    turn: { run: { projectId: 'p1', backendProfile, workspaceRef: { path: name } }, payload: { text: 'go' } },
  });
  return {
    runId: run.id,
    commandId: command.id,
    folder,
    marks: async () => (await readFile(file, 'utf8')).split('\n').filter((line) => line !== ''),
  };
}

/** What time does to the claim of a dead dispatcher. */
async function endDispatchLease(commandId: string): Promise<void> {
  const { rowCount } = await machine.db.pool.query(
    `UPDATE runplane.dispatch_intents SET ready_at = runplane.app_now() - interval '1 second', expires_at = runplane.app_now() - interval '1 second'
      WHERE command_id = $1 AND state = 'dispatching'`,
    [commandId],
  );
  expect(rowCount).toBe(1);
}

async function setAttempts(commandId: string, attempts: number): Promise<void> {
  await machine.db.pool.query('UPDATE runplane.dispatch_intents SET attempts = $2 WHERE command_id = $1', [commandId, attempts]);
}

/** Starts a dispatcher that launches the runner and cannot record it, stops the runner before its first call, and kills the dispatcher. */
async function launchWithoutRecord(runId: string): Promise<{ killed: ApiProcess; runnerPid: number }> {
  const holder = await openClient(machine.postgres.url);
  await holder.query('BEGIN');
  await holder.query('SELECT FROM runplane.runs WHERE id = $1 FOR NO KEY UPDATE', [runId]);
  const killed = (api = await machine.startApi({ backends }));
  const [runner] = await until('the runner is there', async () => nonEmpty(await runners()), 20_000, 5);
  process.kill(runner.pid, 'SIGSTOP');
  await waitUntilBlocked(machine.db, 1); // the record waits for the run
  await killed.kill();
  await holder.query('COMMIT');
  await holder.end();
  return { killed, runnerPid: runner.pid };
}

const nonEmpty = <T>(list: T[]): [T, ...T[]] | undefined => (list.length > 0 ? (list as [T, ...T[]]) : undefined);

const intentOf = (commandId: string) => getDispatchIntent(machine.db, { tenantId: TENANT, commandId });
const ended = (runId: string) =>
  until('the run has ended', async () => {
    const run = await getRun(machine.db, { tenantId: TENANT, runId });
    return run.finishedAt !== null && run;
  });

test('a runner that was launched and not recorded is adopted by the next dispatcher: one process, one program', async () => {
  const { runId, commandId, marks } = await aDispatchedTurn();
  const { killed, runnerPid } = await launchWithoutRecord(runId);
  expect(await intentOf(commandId)).toMatchObject({ state: 'dispatching', attempts: 1 });

  await endDispatchLease(commandId);
  await killed.restart();
  const intent = await until('the launch is recorded', async () => {
    const found = await intentOf(commandId);
    return found?.state === 'dispatched' && found;
  });
  expect((await runners()).map(({ pid }) => pid)).toEqual([runnerPid]);
  process.kill(runnerPid, 'SIGCONT');

  expect(intent).toMatchObject({ dispatchOutcome: 'adopted', attempts: 2 });
  expect(await ended(runId)).toMatchObject({ status: 'completed', attempts: 1 });
  expect(await marks()).toEqual(['started']);
  expect((await story(machine.db, runId)).filter((what) => what === 'process-started')).toHaveLength(1);
});

test('a runner that was launched, not recorded, and has died is replaced', async () => {
  const { runId, commandId, marks } = await aDispatchedTurn();
  const { killed, runnerPid } = await launchWithoutRecord(runId);
  process.kill(runnerPid, 'SIGKILL');

  await endDispatchLease(commandId);
  await killed.restart();

  expect(await ended(runId)).toMatchObject({ status: 'completed', attempts: 1 });
  expect(await intentOf(commandId)).toMatchObject({ state: 'dispatched', dispatchOutcome: 'created', attempts: 2 });
  expect(await marks()).toEqual(['started']);
});

test('an intent that was claimed and never launched is launched by the next dispatcher', async () => {
  const { runId, commandId, marks } = await aDispatchedTurn();
  await claimDispatchIntents(machine.db, { owner: 'a dispatcher that is dead now' });

  await endDispatchLease(commandId);
  api = await machine.startApi({ backends });

  expect(await ended(runId)).toMatchObject({ status: 'completed', attempts: 1 });
  expect(await marks()).toEqual(['started']);
});

test('the last allowed attempt dies with its dispatcher: the run fails by itself, with the reason in its log', async () => {
  const { runId, commandId, marks } = await aDispatchedTurn();
  await setAttempts(commandId, 7);
  const { killed, runnerPid } = await launchWithoutRecord(runId);
  process.kill(runnerPid, 'SIGKILL');

  await endDispatchLease(commandId);
  await killed.restart();

  expect(await ended(runId)).toMatchObject({ status: 'failed', failure: { kind: 'infra-failed' } });
  expect(await intentOf(commandId)).toMatchObject({ state: 'failed', attempts: 8 });
  expect(await story(machine.db, runId)).toEqual(expect.arrayContaining(['runner-dispatch-failed', 'command-terminal', 'terminal_status']));
  expect(await marks()).toEqual([]);
});

test('the last allowed attempt dies with its dispatcher, and its runner works: the run is left to it', async () => {
  const { runId, commandId, folder, marks } = await aDispatchedTurn('patient');
  await setAttempts(commandId, 7);
  const { killed, runnerPid } = await launchWithoutRecord(runId);
  await killed.restart();
  process.kill(runnerPid, 'SIGCONT');
  await until('the program works', async () => (await marks()).length > 0);

  await endDispatchLease(commandId);
  await until('the intent is given up', async () => (await intentOf(commandId))?.state === 'failed', 20_000);
  expect(await getRun(machine.db, { tenantId: TENANT, runId })).toMatchObject({ status: 'claimed' });
  await writeFile(path.join(folder, 'go'), '');

  expect(await ended(runId)).toMatchObject({ status: 'completed', attempts: 1 });
  expect(await marks()).toEqual(['started']);
});
