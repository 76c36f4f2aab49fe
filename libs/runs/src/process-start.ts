import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

/**
 * What tells a process from a later one with the same number: its start, in ticks since boot with the boot's id (Linux), or as `ps` prints
 * it. Undefined when no such process runs; a zombie does not.
 */
export async function processStart(pid: number): Promise<string | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (stat !== undefined) return startOf(stat, await bootId());
  return (await hasProc()) ? undefined : askPs(pid);
}

/** The command name, in parentheses, may hold anything; the fields after it are the third and following. */
function startOf(stat: string, boot: string): string | undefined {
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [state] = fields;
  return state === 'Z' || state === 'X' ? undefined : `${boot}/${fields[19]}`;
}

/** Ticks start anew with each boot. */
async function bootId(): Promise<string> {
  return (await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '')).trim();
}

async function hasProc(): Promise<boolean> {
  return readFile('/proc/self/stat').then(
    () => true,
    () => false,
  );
}

async function askPs(pid: number): Promise<string | undefined> {
  const printed = await promisify(execFile)('ps', ['-o', 'stat=,lstart=', '-p', String(pid)]).catch(() => ({ stdout: '' }));
  const [, state, start] = /^\s*(\S+)\s+(.+?)\s*$/.exec(printed.stdout) ?? [];
  return state === undefined || state.startsWith('Z') ? undefined : start;
}
