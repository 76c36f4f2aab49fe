import { link, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { processStart } from './process-start';

const Noted = z.object({ pid: z.int(), startTime: z.string(), runnerId: z.string() });
/** Before the runner is noted the file holds its launcher. */
const Reserved = z.object({ launcher: z.object({ pid: z.int(), startTime: z.string() }) });
const StateFile = z.union([Noted, Reserved]);
type StateFile = z.infer<typeof StateFile>;

export type Place =
  | { readonly kind: 'alive'; readonly pid: number; readonly runnerId: string }
  | {
      readonly kind: 'reserved';
      /** 1 for the first process of a job, and so on. */
      readonly generation: number;
      readonly logName: string;
      note(runner: { pid: number; startTime: string | undefined; runnerId: string }): Promise<void>;
      /** After a failed start: the next try may follow at once. */
      giveBack(): Promise<void>;
    };

const RESERVATION_POLL_MS = 50;
/** A launcher that holds a reservation for so long without a process hangs; the dispatcher tries again later. */
const RESERVATION_MS_MAX = 20_000;
const KEPT_MS = 24 * 3_600_000;
const PRUNE_EVERY_MS = 3_600_000;

/**
 * Which process runs which job, in files `<job>.<generation>.json` that outlive the launcher. A generation is created exclusively: of two
 * launchers that find no live process, one wins the next number and starts it, the other waits for its entry. No file is ever replaced
 * by another launcher, so no step can undo a winner's.
 */
export class RunnerProcesses {
  private readonly dir: string;
  private prunedAt = -PRUNE_EVERY_MS;

  constructor(dir: string) {
    this.dir = dir;
  }

  async reserve(jobId: string): Promise<Place> {
    const job = encodeURIComponent(jobId);
    const giveUpAt = performance.now() + RESERVATION_MS_MAX;
    for (;;) {
      const generation = await this.lastGeneration(job);
      const state = generation === 0 ? undefined : await this.read(job, generation);
      if (state !== undefined && 'pid' in state && (await isAlive(state))) return { kind: 'alive', ...state };
      if (state !== undefined && 'launcher' in state && (await isAlive(state.launcher))) {
        if (performance.now() > giveUpAt) throw new Error(`another launcher has been starting the job ${jobId} for too long`);
        await sleep(RESERVATION_POLL_MS);
      } else if (await this.create(job, generation + 1)) return this.reserved(job, generation + 1);
    }
  }

  /** Whether the last process of a job lives; `unknown` where no file tells of one. */
  async look(jobId: string): Promise<'active' | 'gone' | 'unknown'> {
    const job = encodeURIComponent(jobId);
    const generation = await this.lastGeneration(job).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return 0;
      throw error;
    });
    const state = generation === 0 ? undefined : await this.read(job, generation);
    if (state === undefined) return 'unknown';
    return (await isAlive('launcher' in state ? state.launcher : state)) ? 'active' : 'gone';
  }

  /** Removes the files of jobs whose last process has been dead for long; at most once an hour. */
  async prune(): Promise<void> {
    if (performance.now() - this.prunedAt < PRUNE_EVERY_MS) return;
    this.prunedAt = performance.now();
    for (const name of await readdir(this.dir)) {
      if (!(await this.isOld(name))) continue;
      const [, job, generation] = /^(.+)\.(\d+)\.(?:json|log)$/.exec(name) ?? []; // else something unfinished
      const state = job === undefined ? undefined : await this.read(job, Number(generation));
      if (state !== undefined && (await isAlive('launcher' in state ? state.launcher : state))) continue;
      await rm(path.join(this.dir, name), { force: true });
    }
  }

  private reserved(job: string, generation: number): Place {
    const name = this.name(job, generation);
    return {
      kind: 'reserved',
      generation,
      logName: `${job}.${generation}.log`,
      note: async (runner) => {
        await writeFile(`${name}.new`, JSON.stringify({ ...runner, startTime: runner.startTime ?? '' }), { mode: 0o600 });
        await rename(`${name}.new`, name);
      },
      giveBack: () => writeFile(name, JSON.stringify({ launcher: { pid: 0, startTime: '' } })),
    };
  }

  /** The content appears with the name: written beside, then linked, which fails where the name exists. */
  private async create(job: string, generation: number): Promise<boolean> {
    const name = this.name(job, generation);
    const mine = `${name}.${process.pid}.${Math.random().toString(36).slice(2)}`;
    const launcher = { pid: process.pid, startTime: (await processStart(process.pid)) ?? '' };
    await writeFile(mine, JSON.stringify({ launcher }), { mode: 0o600 });
    try {
      await link(mine, name);
      return true;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
      throw error;
    } finally {
      await rm(mine, { force: true });
    }
  }

  private async lastGeneration(job: string): Promise<number> {
    const names = await readdir(this.dir);
    const generations = names.flatMap((name) => {
      const rest = name.startsWith(`${job}.`) ? /^(\d+)\.json$/.exec(name.slice(job.length + 1)) : null;
      return rest === null ? [] : [Number(rest[1])];
    });
    return Math.max(0, ...generations);
  }

  private async read(job: string, generation: number): Promise<StateFile | undefined> {
    const text = await readFile(this.name(job, generation), 'utf8').catch(() => '');
    try {
      return StateFile.parse(JSON.parse(text));
    } catch {
      return undefined; // cut off by a crash of the machine: its process is gone too
    }
  }

  private async isOld(name: string): Promise<boolean> {
    const file = await stat(path.join(this.dir, name)).catch(() => undefined);
    return file !== undefined && Date.now() - file.mtimeMs > KEPT_MS;
  }

  private name(job: string, generation: number): string {
    return path.join(this.dir, `${job}.${generation}.json`);
  }
}

async function isAlive({ pid, startTime }: { pid: number; startTime: string }): Promise<boolean> {
  return pid > 0 && startTime !== '' && (await processStart(pid)) === startTime;
}
