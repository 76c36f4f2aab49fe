import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const STOP_MS = 3_000;

/** Ends the runners that this demo has started and that still run; their programs end with them. */
export async function stopRunners(stateDir: string): Promise<void> {
  const pids = await runnerPids(stateDir);
  pids.forEach((pid) => signal(pid, 'SIGTERM'));
  for (const endAt = performance.now() + STOP_MS; pids.some((pid) => signal(pid, 0)) && performance.now() < endAt;) await sleep(50);
  pids.forEach((pid) => signal(pid, 'SIGKILL'));
}

/** Waits for the runners to end by themselves; false when one stays. */
export async function runnersHaveEnded(stateDir: string, timeoutMs: number): Promise<boolean> {
  const pids = await runnerPids(stateDir);
  for (const endAt = performance.now() + timeoutMs; pids.some((pid) => signal(pid, 0)); await sleep(50)) {
    if (performance.now() > endAt) return false;
  }
  return true;
}

async function runnerPids(stateDir: string): Promise<number[]> {
  const names = await readdir(stateDir).catch(() => []);
  const states = names.filter((name) => name.endsWith('.json')).map((name) => readFile(path.join(stateDir, name), 'utf8'));
  return (await Promise.all(states)).flatMap((text) => {
    const { pid } = JSON.parse(text) as { pid?: number };
    return pid !== undefined && pid > 1 ? [pid] : [];
  });
}

function signal(pid: number, name: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, name);
  } catch {
    return false;
  }
}
