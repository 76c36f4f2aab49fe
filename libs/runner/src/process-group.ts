import { readdir, readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';

/** False when the group has no process any more. */
export function signalGroup(groupId: number, signal: NodeJS.Signals | 0): boolean {
  if (!(groupId > 1)) throw new Error(`signalGroup: ${groupId} is no process group of a program`); // 0 is our own, 1 means everybody
  try {
    process.kill(-groupId, signal);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false;
    throw error;
  }
}

/** Waits until no process of the group runs; false when one still does after this time. */
export async function groupIsGone(groupId: number, timeoutMs: number): Promise<boolean> {
  for (const endAt = performance.now() + timeoutMs; performance.now() < endAt; await sleep(10)) {
    if (!signalGroup(groupId, 0) || !(await hasRunningMember(groupId))) return true;
  }
  return false;
}

/** Zombies count for kill(2), but do nothing; where nobody reaps orphans (a container without an init) they stay. */
async function hasRunningMember(groupId: number): Promise<boolean> {
  const entries = await readdir('/proc').catch(() => undefined);
  if (entries === undefined) return true;
  const stats = await Promise.all(
    entries.filter((name) => /^\d+$/.test(name)).map((pid) => readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')),
  );
  return stats.some((stat) => {
    const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(group) === groupId && state !== 'Z' && state !== 'X';
  });
}
