import { mkdtemp } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../support/until';
import { findFaults, storyOf } from './find-faults';
import { Load } from './load';
import { between, pick, seededRandom, type Random } from './random';
import { endProcess, Stage } from './stage';

export const TARGETS = ['runner', 'api', 'postgres'] as const;
export type Target = (typeof TARGETS)[number];

export interface FaultOptions {
  readonly kills: number;
  readonly seed: number;
  readonly only?: Target | undefined;
  readonly apis: number;
  readonly sessions: number;
  readonly runnersByHand: number;
  /** How long everything may take to come to its end after the last kill of a round. */
  readonly drainMs?: number | undefined;
  /** How long what should come to rest behind it may take: the feed, the last processes, the readiness of an API. */
  readonly quietMs?: number | undefined;
  /** Lets PostgreSQL acknowledge commits before they are safe: to see that such a loss is found. */
  readonly unsafeCommits?: boolean | undefined;
  /** False: logs and data go also where faults were found. */
  readonly keep?: boolean | undefined;
  readonly say: (line: string) => void;
}

export interface FaultReport {
  readonly faults: readonly string[];
  readonly summary: string;
}

/** Between two looks at everything, in kills. */
const ROUND = 10;
/** A run ends without a person within this time after the last kill: leases, claims of dispatchers (30 s) and deadlines, one after another. */
const DRAIN_MS = 150_000;
const STORIES_MAX = 5;
const BACK_MS = 60_000;

/**
 * Kills processes at random moments under load and starts them again, and repairs nothing else. After each round of kills it waits until
 * everything has come to its end and looks whether all that was acknowledged is true. Stops at the first round with faults.
 */
export async function runFaults(options: FaultOptions): Promise<FaultReport> {
  const { kills, seed, say } = options;
  const startedAt = Date.now();
  const seconds = () => Math.round((Date.now() - startedAt) / 100) / 10;
  const dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-faults-'));
  say(`seed ${seed}, ${kills} kills, ${options.apis} API processes, in ${dir}`);
  const stage = await Stage.start(dir, options.apis, options.unsafeCommits === true ? { synchronous_commit: 'off' } : {});
  const load = new Load(stage, options);
  const killer = new Killer(stage, seededRandom(seed), options.only);
  let faults: string[] = [];
  try {
    for (let done = 0; done < kills && faults.length === 0;) {
      load.start();
      for (const last = Math.min(done + ROUND, kills); done < last; done += 1) {
        const what = await killer.kill();
        say(
          `${seconds()} s  kill ${done + 1}/${kills}: ${what}; ${load.told.turns.length} turns, ${load.told.appends.length} batches so far`,
        );
      }
      await killer.allBack();
      const quietAt = Date.now();
      faults = await load.drain(options.drainMs ?? DRAIN_MS);
      faults.push(...(await findFaults(stage, load.told, options.quietMs)));
      say(
        `${seconds()} s  quiet after ${Math.round((Date.now() - quietAt) / 100) / 10} s: ${faults.length === 0 ? 'everything holds' : `${faults.length} faults`}`,
      );
    }
    const summary = `${killer.summary()}; ${await summaryOf(stage, load)}; ${seconds()} s; seed ${seed}`;
    const stories = await tellStories(stage, faults);
    return { faults: [...faults, ...stories, ...(faults.length > 0 ? [`logs and data: ${dir}`] : [])], summary };
  } catch (error) {
    faults.push(String(error));
    throw error;
  } finally {
    await load.close();
    await killer.allBack().catch(() => undefined);
    await stage.close({ keep: faults.length > 0 && options.keep !== false });
  }
}

/** Kills one process at a time and sees to it that it comes back, sometimes while the next one is killed already. */
class Killer {
  private readonly stage: Stage;
  private readonly random: Random;
  private readonly targets: readonly Target[];
  private queue: Target[] = [];
  private readonly counts = new Map<Target, number>();
  private readonly comingBack = new Map<unknown, Promise<void>>();

  constructor(stage: Stage, random: Random, only: Target | undefined) {
    this.stage = stage;
    this.random = random;
    this.targets = only === undefined ? TARGETS : [only];
  }

  async kill(): Promise<string> {
    await sleep(between(this.random, 100, 3_500));
    const target = this.nextTarget();
    const what = await this.killOne(target);
    this.counts.set(target, (this.counts.get(target) ?? 0) + 1);
    return what;
  }

  async allBack(): Promise<void> {
    await Promise.all(this.comingBack.values());
  }

  summary(): string {
    return [...this.counts].map(([target, count]) => `${count} × ${target}`).join(', ');
  }

  /** Each target as often as the others, in random order. */
  private nextTarget(): Target {
    if (this.queue.length === 0) this.queue = [...this.targets];
    const target = pick(this.random, this.queue);
    this.queue.splice(this.queue.indexOf(target), 1);
    return target;
  }

  private async killOne(target: Target): Promise<string> {
    switch (target) {
      case 'runner': {
        const runners = await until('a runner is alive', async () => nonEmpty(await this.stage.runners()), 60_000);
        const { pid } = pick(this.random, runners);
        return endProcess(pid) ? `runner ${pid}` : this.killOne(target);
      }
      case 'api': {
        const api = pick(this.random, this.stage.apis);
        await this.comingBack.get(api);
        const what = `api ${api.pid}`;
        await api.kill();
        this.bringBack(api, () => api.restart());
        return what;
      }
      case 'postgres': {
        await this.comingBack.get('postgres');
        const { restart } = await this.stage.killPostgres();
        this.bringBack('postgres', restart);
        return 'postgres';
      }
    }
  }

  /** An API that starts while the database is down ends again, as it should; whoever starts it tries again, as an orchestrator does. */
  private bringBack(what: unknown, restart: () => Promise<void>): void {
    const pauseMs = between(this.random, 0, 1_500);
    const back = sleep(pauseMs).then(async () => {
      for (const late = Date.now() + BACK_MS; ; await sleep(200)) {
        try {
          return await restart();
        } catch (error) {
          if (Date.now() > late) throw error;
        }
      }
    });
    back.catch(() => undefined); // whoever waits for it sees the error
    this.comingBack.set(what, back);
  }
}

const nonEmpty = <T>(list: T[]): T[] | undefined => (list.length > 0 ? list : undefined);

async function summaryOf(stage: Stage, { told }: Load): Promise<string> {
  const runs = await stage.query<{ line: string }>(
    `SELECT count(*) || ' ' || concat_ws(' ', payload ->> 'terminalStatus', payload ->> 'failureKind', '(' || (payload ->> 'reason') || ')') AS line
       FROM runplane.run_events WHERE type = 'terminal_status'
      GROUP BY payload ->> 'terminalStatus', payload ->> 'failureKind', payload ->> 'reason' ORDER BY count(*) DESC`,
  );
  const requeued = await stage.query<{ n: number }>(
    `SELECT count(*)::int AS n FROM runplane.run_events WHERE type = 'backend_status' AND payload ->> 'phase' = 'run-requeued'`,
  );
  const events = told.followed.reduce((sum, followed) => sum + followed.events.length, 0);
  return `runs: ${runs.map(({ line }) => line).join(', ')}, ${requeued[0]?.n} requeued; acknowledged: ${told.turns.length} turns, ${told.appends.length} batches, ${told.cancels.length} cancels; ${events} events followed`;
}

async function tellStories(stage: Stage, faults: readonly string[]): Promise<string[]> {
  const runIds = [...new Set(faults.flatMap((fault) => fault.match(/run_[0-9a-f-]{36}/g) ?? []))];
  return Promise.all(runIds.slice(0, STORIES_MAX).map((runId) => storyOf(stage, runId)));
}
