import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, type JsonObject, type Outcome, ProcessBackend, type Run } from '@runplane/contracts';
import { CommandQueue } from './command-queue';
import { CHUNK_BYTES_MAX, splitText } from './output-chunks';
import { processWork } from './process-backend';
import type { RunnerContext } from './run-runner';
import { CancelRequested, RunLost } from './stop-reasons';

let root: string;
beforeEach(async () => {
  root = await realpath(await mkdtemp(path.join(os.tmpdir(), 'backend-')));
});
afterEach(() => rm(root, { recursive: true }));

const command = (seq: number, type: string, text: string) => ({ id: `cmd_${seq}`, seq, type, payload: { text } }) as unknown as Command;

/** The SDK's side of the work, in memory. */
class Stage {
  readonly events: { type: string; payload: JsonObject }[] = [];
  readonly calls: string[] = [];
  readonly stop = new AbortController();
  readonly lost = new AbortController();
  readonly commands = new CommandQueue({
    ack: async (id) => this.calls.push(`ack ${id}`),
    finish: async (id, outcome) => this.calls.push(`finish ${id} ${outcome.terminalStatus}`),
  });
  emit = async (type: string, payload: JsonObject): Promise<void> => void this.events.push({ type, payload });

  context(): RunnerContext {
    return {
      run: { id: 'run_1', sessionId: 'session 1' } as Run,
      epoch: 1,
      signal: this.stop.signal,
      lost: this.lost.signal,
      commands: this.commands,
      emit: (type, payload) => this.emit(type, payload),
      flush: () => Promise.resolve(),
      approve: () => Promise.reject(new Error('a program asks nobody')),
      ask: () => Promise.reject(new Error('a program asks nobody')),
    };
  }

  text(stream: string): string {
    return this.outputs(stream).map(({ text }) => text).join(''); // prettier-ignore
  }
  outputs(stream: string): { text: string; time: string }[] {
    return this.events
      .filter(({ type, payload }) => type === 'command_output' && payload['stream'] === stream)
      .map(({ payload }) => payload as { text: string; time: string });
  }
  status(phase: string): JsonObject | undefined {
    return this.events.find(({ type, payload }) => type === 'backend_status' && payload['phase'] === phase)?.payload['extra'] as
      JsonObject | undefined;
  }
  async see(stream: string, text: string | RegExp): Promise<void> {
    await until(() => this.text(stream).match(text) !== null);
  }
}

async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await isSo()); tries += 1) {
    if (tries > 1_500) throw new Error('it did not happen');
    await sleep(10);
  }
}

type Options = Partial<Omit<ProcessBackend, 'command'>> & { folder?: string; stage?: Stage };
function run(
  script: string | string[],
  { folder = 'work', stage = new Stage(), ...backend }: Options = {},
): { stage: Stage; end: Promise<Outcome> } {
  stage.commands.push([command(1, 'turn', 'hello')]);
  const argv = typeof script === 'string' ? ['/bin/sh', '-c', script] : script;
  const work = processWork({
    backend: ProcessBackend.parse({ command: argv, stdin: 'turn', ...backend }),
    workspaceRoot: root,
    workspacePath: folder,
  });
  return { stage, end: work(stage.context()) };
}
const nodeScript = (script: string) => [process.execPath, '-e', script];

async function isRunning(pid: number): Promise<boolean> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return stat !== '' && !/^ Z/.test(stat.slice(stat.lastIndexOf(')') + 1));
}
async function groupMembers(group: number): Promise<number> {
  const stats = await Promise.all(
    (await readdir('/proc')).filter((name) => /^\d+$/.test(name)).map((pid) => readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')),
  );
  return stats
    .map((stat) => stat.slice(stat.lastIndexOf(')') + 2).split(' '))
    .filter(([state, , pgrp]) => Number(pgrp) === group && state !== 'Z').length;
}

describe('a program', () => {
  it('works in its folder, which is made for it, and completes the run with exit code 0', async () => {
    const { stage, end } = run('pwd; read turn; echo "$turn"; echo file > made.txt', { folder: 'team/a' });

    expect(await end).toEqual({ terminalStatus: 'completed' });

    expect(stage.text('stdout')).toBe(
      `${root}/team/a\n${JSON.stringify({ type: 'turn', commandId: 'cmd_1', payload: { text: 'hello' } })}\n`,
    );
    expect(existsSync(path.join(root, 'team/a/made.txt'))).toBe(true);
    expect(stage.calls).toEqual(['ack cmd_1']);
    expect(stage.status('process-exited')).toEqual({ exitCode: 0, signal: null });
    expect(stage.events.at(-1)?.payload).toMatchObject({ phase: 'process-exited' });
  });

  it('fails the run with another exit code, by a signal, or when it cannot be started', async () => {
    expect(await run('exit 3').end).toMatchObject({
      terminalStatus: 'failed',
      failureKind: 'backend-failed',
      failureMessage: expect.stringMatching(/exit code 3/),
    });
    const killed = run('kill -SEGV $$');
    expect(await killed.end).toMatchObject({ terminalStatus: 'failed', failureMessage: expect.stringMatching(/SIGSEGV/) });
    expect(killed.stage.status('process-exited')).toEqual({ exitCode: null, signal: 'SIGSEGV' });
    const missing = run(['no-such-program']);
    expect(await missing.end).toMatchObject({ failureMessage: expect.stringMatching(/exit code 127/) });
    expect(missing.stage.text('stderr')).toContain('no-such-program');
  });

  it('that reads its input to the end gets the end after the turn, or the steers first', async () => {
    expect(await run(['cat']).end).toEqual({ terminalStatus: 'completed' });

    const { stage, end } = run('read turn; echo ready; read steer; echo "got $steer"', { stdin: 'steers' });
    await stage.see('stdout', 'ready');
    stage.commands.push([command(2, 'steer', 'left')]);

    expect(await end).toEqual({ terminalStatus: 'completed' });
    expect(stage.text('stdout')).toContain('"commandId":"cmd_2","payload":{"text":"left"}');
    expect(stage.calls).toEqual(['ack cmd_1', 'ack cmd_2', 'finish cmd_2 completed']);
  });

  it('sees an allow-list of the environment and nothing private', async () => {
    Object.assign(process.env, {
      BACKEND_TEST: 'listed',
      OTHER_TEST: 'not listed',
      DATABASE_URL: 'postgres://secret',
      RUNPLANE_TOKEN: 'secret',
    });
    const { stage, end } = run('env', {
      envAllow: ['BACKEND_TEST', 'DATABASE_URL', 'RUNPLANE_TOKEN'],
      env: { FIXED: '1', DATABASE_DIRECT_URL: 'no' },
    });
    await end;
    for (const name of ['BACKEND_TEST', 'OTHER_TEST', 'DATABASE_URL', 'RUNPLANE_TOKEN']) delete process.env[name];

    const names = stage.text('stdout').trim().split('\n').map((line) => line.split('=')[0]); // prettier-ignore
    expect(stage.text('stdout')).toContain('RUNPLANE_SESSION_ID=session 1\n');
    expect(names).toEqual(expect.arrayContaining(['PATH', 'BACKEND_TEST', 'FIXED', 'RUNPLANE_RUN_ID', 'RUNPLANE_COMMAND_ID']));
    expect(names.filter((name) => /DATABASE|TOKEN|OTHER_TEST|NODE_/.test(name ?? ''))).toEqual([]);
  });

  it('is unaware of its watchdog: no child, no descriptor 3', async () => {
    const { stage, end } = run('test -e /proc/$$/fd/3; echo $?; cat /proc/$$/task/$$/children');

    await end;

    const [descriptor, children = ''] = stage.text('stdout').split('\n');
    expect(descriptor).toBe('1'); // there is none
    expect(children.trim().split(' ')).toHaveLength(1); // cat
  });
});

describe('output', () => {
  it('keeps the order of each stream, its time, and characters that are cut between two writes', async () => {
    const script = `
      for (let i = 0; i < 300; i += 1) (i % 2 ? process.stdout : process.stderr).write(i + '\\n');
      const text = Buffer.from('grüße 🎉\\n');
      for (const byte of text) require('node:fs').writeSync(1, Buffer.from([byte]));
      require('node:fs').writeSync(1, Buffer.from([0xff, 0x0a]));`;
    const { stage, end } = run(nodeScript(script));
    await end;

    const numbers = (odd: number) => Array.from({ length: 150 }, (_, index) => `${index * 2 + odd}\n`).join('');
    expect(stage.text('stderr')).toBe(numbers(0));
    expect(stage.text('stdout')).toBe(`${numbers(1)}grüße 🎉\n\uFFFD\n`);
    for (const stream of ['stdout', 'stderr']) {
      const times = stage.outputs(stream).map(({ time }) => time);
      expect(times).toEqual([...times].sort());
      expect(new Date(times[0] ?? '').getTime()).toBeGreaterThan(Date.now() - 60_000);
    }
  });

  it('comes in whole lines, an unfinished line after a moment', async () => {
    const { stage, end } = run(
      'go() { while [ ! -e $1 ]; do sleep 0.02; done; }; printf "one\\ntwo"; go 1; printf " more\\n"; go 2; printf end',
    );
    await stage.see('stdout', /two$/);
    await writeFile(path.join(root, 'work', '1'), '');
    await stage.see('stdout', /more\n$/);
    await writeFile(path.join(root, 'work', '2'), '');
    await end;

    expect(stage.outputs('stdout').map(({ text }) => text)).toEqual(['one\n', 'two', ' more\n', 'end']);
  });

  it('is cut into parts of bounded size, never inside a character', async () => {
    const { stage, end } = run(nodeScript(`process.stdout.write('ü'.repeat(200_000) + '\\n' + 'x'.repeat(100_000))`));
    await end;

    expect(stage.text('stdout')).toBe(`${'ü'.repeat(200_000)}\n${'x'.repeat(100_000)}`);
    expect(Math.max(...stage.outputs('stdout').map(({ text }) => Buffer.byteLength(text)))).toBeLessThanOrEqual(CHUNK_BYTES_MAX);
    expect(splitText('aé\nbcd', 5)).toEqual(['aé\n', 'bcd']);
    expect(splitText('ééé', 3)).toEqual(['é', 'é', 'é']);
  });

  it('waits for the store: a program that prints faster is slowed down, and nothing is lost', async () => {
    const stage = new Stage();
    const { emit } = stage;
    stage.emit = async (type, payload) => {
      await sleep(5);
      await emit(type, payload);
    };
    const { end } = run(nodeScript(`for (let i = 0; i < 40_000; i += 1) console.log('line', i, 'x'.repeat(40))`), { stage });
    await end;

    expect(stage.text('stdout').trim().split('\n').map((line) => Number(line.split(' ')[1]))).toEqual(Array.from({ length: 40_000 }, (_, i) => i)); // prettier-ignore
  });
});

describe('the end of a program', () => {
  it('takes the rest of its process group along, before the end is reported', async () => {
    const { stage, end } = run('(trap "" TERM HUP; sleep 100) & echo $!; exit 0');

    expect(await end).toEqual({ terminalStatus: 'completed' });

    expect(await isRunning(Number(stage.text('stdout')))).toBe(false);
    expect(await groupMembers(stage.status('process-started')?.['pid'] as number)).toBe(0);
  });

  it('does not wait for a stranger that keeps its output open', async () => {
    const { stage, end } = run("setsid sh -c 'echo $$; touch said; exec sleep 30' & while [ ! -e said ]; do sleep 0.02; done");

    expect(await end).toEqual({ terminalStatus: 'completed' });
    const stranger = Number(stage.text('stdout'));
    expect(stranger).toBeGreaterThan(1);
    process.kill(stranger, 'SIGKILL');
  });

  it('comes by SIGTERM on a cancel, with the time to clean up', async () => {
    const { stage, end } = run('trap "echo cleaning; exit 0" TERM; echo ready; while :; do sleep 0.05; done');
    await stage.see('stdout', 'ready');

    stage.stop.abort(new CancelRequested('changed my mind', 30_000));

    await expect(end).rejects.toThrow('changed my mind');
    expect(stage.text('stdout')).toBe('ready\ncleaning\n');
    expect(stage.status('process-exited')).toEqual({ exitCode: 0, signal: null });
  });

  it('comes by SIGKILL when the program and its children ignore SIGTERM', async () => {
    const { stage, end } = run('trap "" TERM; (sleep 100) & echo $!; sleep 100', { graceMs: 200 });
    await stage.see('stdout', /\d+\n/);
    const startedAt = performance.now();

    stage.stop.abort(new CancelRequested('enough', 30_000));

    await expect(end).rejects.toThrow('enough');
    expect(performance.now() - startedAt).toBeGreaterThan(190);
    expect(stage.status('process-exited')).toEqual({ exitCode: null, signal: 'SIGKILL' });
    expect(await groupMembers(stage.status('process-started')?.['pid'] as number)).toBe(0);
  });

  it('comes before the deadline of the cancel, whatever the grace of the backend', async () => {
    const { stage, end } = run('trap "" TERM; echo ready; sleep 100', { graceMs: 60_000 });
    await stage.see('stdout', 'ready');

    stage.stop.abort(new CancelRequested('enough', 1_700));

    await expect(end).rejects.toThrow('enough');
  });

  it('comes at once when the run is lost', async () => {
    const { stage, end } = run('trap "" TERM; echo ready; sleep 100', { graceMs: 60_000 });
    await stage.see('stdout', 'ready');
    const reason = new RunLost('lease over');

    stage.lost.abort(reason);
    stage.stop.abort(reason);

    await expect(end).rejects.toThrow('lease over');
  });
});

describe('a workspace', () => {
  const refused = { terminalStatus: 'failed', failureKind: 'workspace-refused' };

  it.each(['../out', '/tmp', 'a/../../out', 'link', 'link/deeper', 'dangling', 'file', 'inside/link'])('%s is refused', async (folder) => {
    const outside = await mkdtemp(path.join(os.tmpdir(), 'outside-'));
    await mkdir(path.join(root, 'inside'));
    await symlink(outside, path.join(root, 'link'));
    await symlink(outside, path.join(root, 'inside/link'));
    await symlink(path.join(root, 'nowhere'), path.join(root, 'dangling'));
    await writeFile(path.join(root, 'file'), '');

    expect(await run('touch was-here', { folder }).end).toMatchObject(refused);

    expect(await readdir(outside)).toEqual([]);
    await rm(outside, { recursive: true });
  });

  it('may be a link to another folder of its root', async () => {
    await mkdir(path.join(root, 'real'));
    await symlink('real', path.join(root, 'alias'));

    expect(await run('touch was-here', { folder: 'alias/deeper' }).end).toEqual({ terminalStatus: 'completed' });
    expect(existsSync(path.join(root, 'real/deeper/was-here'))).toBe(true);
  });
});
