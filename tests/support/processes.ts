import { readdir, readFile, readlink } from 'node:fs/promises';
import path from 'node:path';

export interface FoundProcess {
  readonly pid: number;
  readonly command: string;
}

/** Processes that run (zombies do not) with a working directory in or below a folder. Linux only: others find none. */
export async function processesIn(folder: string): Promise<FoundProcess[]> {
  const entries = await readdir('/proc').catch(() => []);
  const found = await Promise.all(entries.filter((name) => /^\d+$/.test(name)).map((name) => processIn(folder, Number(name))));
  return found.filter((each) => each !== undefined);
}

async function processIn(folder: string, pid: number): Promise<FoundProcess | undefined> {
  const cwd = await readlink(`/proc/${pid}/cwd`).catch(() => undefined); // gone, a zombie, or not ours
  if (cwd === undefined || (cwd !== folder && !cwd.startsWith(`${folder}${path.sep}`))) return undefined;
  const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return { pid, command: command.replaceAll('\0', ' ').trim() };
}
