import { type ChildProcessByStdio, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';

/**
 * Waits for the end of its standard input, which comes when the runner dies, whatever the cause, and then ends the group. The first line
 * names the group, a second one says that all is over.
 */
const WATCH = `
trap '' HUP INT TERM
read -r group || exit 0
read -r over && exit 0
kill -TERM "-$group" || exit 0
waited=0
while [ "$waited" -lt "$1" ] && kill -0 "-$group"; do sleep 1; waited=$((waited + 1)); done
kill -KILL "-$group"
`;

/** Becomes the program once it is told to; without that word (the runner has died) it ends. */
const WAIT_FOR_THE_WORD = 'read -r word <&3 && exec "$@" 3<&-';

export interface WatchedProgram {
  readonly child: ChildProcessByStdio<Writable, Readable, Readable>;
  /** Tells the watchdog that the group is watched no longer. */
  readonly unwatch: () => void;
}

/**
 * Starts a program as the leader of a process group that does not outlive this process: a watchdog in a session of its own ends it when we
 * are gone, even after SIGKILL. The program begins when the watchdog knows its group, so no moment is left in which it is unwatched.
 */
export function spawnWatched(
  command: readonly string[],
  options: { cwd: string; env: Record<string, string>; graceMs: number },
): WatchedProgram {
  const { cwd, env, graceMs } = options;
  const watchdog = spawn('/bin/sh', ['-c', WATCH, 'runplane-watchdog', String(Math.ceil(graceMs / 1_000))], {
    detached: true,
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore'],
    env: { PATH: process.env['PATH'] ?? '' },
  });
  watchdog.on('error', () => undefined);
  watchdog.stdin.on('error', () => undefined);
  const child = spawn('/bin/sh', ['-c', WAIT_FOR_THE_WORD, 'sh', ...command], {
    cwd,
    env,
    detached: true, // a session and a process group of its own
    stdio: ['pipe', 'pipe', 'pipe', 'pipe'],
  }) as ChildProcessByStdio<Writable, Readable, Readable>;
  const word = child.stdio[3] as Writable | null;
  word?.on('error', () => undefined);
  if (watchdog.pid !== undefined && child.pid !== undefined) watchdog.stdin.write(`${child.pid}\n`, () => word?.end('go\n'));
  else word?.destroy();
  return { child, unwatch: () => void watchdog.stdin.end('over\n') };
}
