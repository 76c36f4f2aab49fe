import { allowedEnvironment, type Command, type Outcome, type ProcessJob } from '@runplane/contracts';
import type { ChildProcess } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ReceivedCommand } from './command-queue';
import { OutputChunks } from './output-chunks';
import { groupIsGone, signalGroup } from './process-group';
import type { RunnerContext } from './run-runner';
import { CancelRequested } from './stop-reasons';
import { spawnWatched } from './watchdog';
import { openWorkspace, WorkspaceRefused } from './workspace';

export type ProcessWork = Pick<ProcessJob, 'backend' | 'workspaceRoot' | 'workspacePath'>;

interface Exit {
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
}

/**
 * The built-in backend `process`: runs a command line in the workspace.
 *
 *   stdin     the turn, then (`stdin: 'steers'`) each steer, as one JSON line { type, commandId, payload }
 *   stdout,   become command_output events, in order per stream, each with the time at which it was read
 *   stderr
 *   exit      backend_status `process-exited` with exitCode and signal; 0 completes the run, anything else fails it
 *   cancel    SIGTERM to the process group, SIGKILL after graceMs (or shortly before the cancel's own deadline)
 *
 * The program leads a process group of its own. When it has ended, what is left of the group is killed; the run ends after that. Processes
 * that leave the group (setsid) are the program's own business. A watchdog ends the group when this runner dies without a word.
 */
export function processWork(job: ProcessWork): (context: RunnerContext) => Promise<Outcome> {
  return async (context) => {
    const { value: turn } = await context.commands.next();
    context.signal.throwIfAborted();
    if (turn === undefined) throw new Error('there is no turn to work on');
    try {
      const cwd = await openWorkspace(job.workspaceRoot, job.workspacePath);
      return await runProgram(job, cwd, turn, context);
    } catch (error) {
      if (error instanceof WorkspaceRefused) return failed('workspace-refused', error.message);
      throw error;
    }
  };
}

async function runProgram({ backend }: ProcessWork, cwd: string, turn: ReceivedCommand, context: RunnerContext): Promise<Outcome> {
  const { child, unwatch } = spawnWatched(backend.command, {
    cwd,
    graceMs: backend.graceMs,
    env: {
      ...allowedEnvironment(process.env, backend),
      RUNPLANE_RUN_ID: context.run.id,
      RUNPLANE_COMMAND_ID: turn.command.id,
      ...(context.run.sessionId === null ? {} : { RUNPLANE_SESSION_ID: context.run.sessionId }),
    },
  });
  const exited = exitOf(child);
  const { pid } = child;
  if (pid === undefined) {
    unwatch();
    return failed('backend-failed', `The program could not be started: ${await exited.then(String, String)}`);
  }

  const about = { commandId: turn.command.id };
  const output = (['stdout', 'stderr'] as const).map((stream) =>
    pump(child[stream], (text, time) => context.emit('command_output', { stream, text, time, ...about })),
  );
  const steers: Promise<void>[] = [];
  const unstop = stopWithContext(pid, backend.graceMs, context);
  let exit: Exit;
  let wasStopped: boolean;
  try {
    await turn.ack();
    void context.emit('backend_status', { phase: 'process-started', extra: { pid }, ...about });
    void feed(child.stdin, turn.command, context, backend.stdin, steers);
    exit = await exited;
    wasStopped = context.signal.aborted;
    await endGroup(pid);
  } catch (error) {
    signalGroup(pid, 'SIGKILL');
    throw error;
  } finally {
    unstop(); // the number of the group may be used again from now on
    unwatch();
  }
  await Promise.all([...output.map((each) => each.drained()), ...steers]);
  void context.emit('backend_status', { phase: 'process-exited', extra: { ...exit }, ...about });
  if (wasStopped) context.signal.throwIfAborted(); // how it ended then says nothing about the work
  return outcomeOf(exit);
}

function exitOf(child: ChildProcess): Promise<Exit> {
  return new Promise((resolve, reject) => {
    child.once('exit', (exitCode, signal) => resolve({ exitCode, signal }));
    child.once('error', reject);
  });
}

/** Ends the group when the context says so: with grace on a cancel or stop, at once when the run is lost. */
function stopWithContext(groupId: number, graceMs: number, context: RunnerContext): () => void {
  let timer: NodeJS.Timeout | undefined;
  const onStop = () => {
    const reason: unknown = context.signal.reason;
    const remainingMs = reason instanceof CancelRequested ? reason.remainingMs() : undefined;
    signalGroup(groupId, 'SIGTERM');
    timer = setTimeout(
      () => signalGroup(groupId, 'SIGKILL'),
      Math.max(0, Math.min(graceMs, (remainingMs ?? Infinity) - KILL_BEFORE_DEADLINE_MS)),
    );
  };
  const onLost = () => signalGroup(groupId, 'SIGKILL');
  if (context.signal.aborted) onStop();
  context.signal.addEventListener('abort', onStop, { once: true });
  context.lost.addEventListener('abort', onLost, { once: true });
  return () => {
    clearTimeout(timer);
    context.signal.removeEventListener('abort', onStop);
    context.lost.removeEventListener('abort', onLost);
  };
}

/** Leaves time to store the last output and to report the end. */
const KILL_BEFORE_DEADLINE_MS = 1_500;
const GROUP_END_MS = 5_000;

async function endGroup(groupId: number): Promise<void> {
  signalGroup(groupId, 'SIGKILL');
  if (!(await groupIsGone(groupId, GROUP_END_MS))) throw new Error(`processes of the group ${groupId} do not end`);
}

/** One output stream, read as fast as the events are taken. */
function pump(stream: Readable, emit: (text: string, time: string) => Promise<void>): { drained(): Promise<void> } {
  const chunks = new OutputChunks(emit);
  let isEmitting = false;
  let activeAt = performance.now();
  let isDone = false;
  const read = async () => {
    for await (const bytes of stream as AsyncIterable<Buffer>) {
      isEmitting = true;
      await chunks.write(bytes);
      isEmitting = false;
      activeAt = performance.now();
    }
  };
  const done = read()
    .catch(() => undefined) // nothing can be written any more, or the stream was destroyed below
    .then(() => chunks.end())
    .catch(() => undefined)
    .finally(() => (isDone = true));
  return {
    /** For the time after the program: a process outside the group may hold the other end open, silently and for ever. */
    async drained() {
      activeAt = performance.now();
      while (!isDone) {
        if (!isEmitting && performance.now() - activeAt > SILENT_MS) stream.destroy();
        await Promise.race([done, sleep(50)]);
      }
    },
  };
}

const SILENT_MS = 500;

/** The turn, then the steers. A steer is consumed when the program's standard input has taken it: what the program makes of it only it knows. */
async function feed(
  stdin: Writable,
  turn: Command,
  context: RunnerContext,
  until: 'turn' | 'steers',
  steers: Promise<void>[],
): Promise<void> {
  stdin.on('error', () => undefined); // the program does not read, or is gone
  stdin.write(commandLine(turn));
  if (until === 'turn') return void stdin.end();
  for await (const steer of context.commands) {
    if (steer.command.type !== 'steer') continue;
    stdin.write(commandLine(steer.command), (error) => {
      if (error == null) steers.push(steer.consumed().catch(() => undefined)); // refused: the run is over, its end has closed the steer
    });
  }
}

function commandLine({ type, id, payload }: Command): string {
  return `${JSON.stringify({ type, commandId: id, payload })}\n`;
}

function outcomeOf({ exitCode, signal }: Exit): Outcome {
  if (exitCode === 0) return { terminalStatus: 'completed' };
  return failed(
    'backend-failed',
    signal === null ? `The program ended with exit code ${exitCode}.` : `The program was ended by ${signal}.`,
  );
}

function failed(failureKind: string, failureMessage: string): Outcome {
  return { terminalStatus: 'failed', failureKind, failureMessage };
}
