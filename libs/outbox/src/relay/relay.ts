import { newId } from '@runplane/contracts';
import { backOffMs, type Db, type Stream } from '@runplane/database';
import os from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { NOTHING_DONE, relayPass, type PassResult } from './pass';
import type { HeldShard } from './pass.sql';
import { registerSinks } from './register-sinks';
import { keepShards, releaseShards, removeRelay } from './shard.sql';
import type { Sink } from './sink';

// A relay: it serves sinks until it is stopped. Per sink it holds its share of the shards, gives signs of life (on the lane: a pool that is
// exhausted, or a slow send, takes no lease away), and passes over them in a few turns at a time, so that one reads while another sends.
//
// Woken by the hub; the safety poll finds what a lost hint would have told, and back-offs that are over.

export interface RelayOptions {
  readonly sinks: readonly Sink[];
  /** One incarnation of a process; default: a new name. */
  readonly owner?: string | undefined;
  readonly onError: (error: unknown, where: string) => void;
  /** How often a relay that has heard nothing looks. */
  readonly pollMs?: number | undefined;
  /** How long a stop waits for sends under way before it gives them up. */
  readonly stopMs?: number | undefined;
}

export interface SinkStats {
  readonly sink: string;
  readonly kind: string;
  readonly shards: number;
  readonly passes: number;
  readonly sent: number;
  readonly refused: number;
  /** Passes of a shard that a failure of the sink has ended. */
  readonly failures: number;
  /** Shards lost while a pass was under way. */
  readonly lost: number;
  /** Time since this relay last gave a sign of life for the sink. */
  readonly sinceBeatMs: number;
}

export interface Relay {
  readonly owner: string;
  readonly stats: readonly SinkStats[];
  /** Lets sends under way end, hands the shards back, closes the publishers. Repeat: safe. */
  stop(): Promise<void>;
}

/** Turns over the shards of a sink that go on at the same time; shard n belongs to turn n modulo this. */
const TURNS = 2;
const POLL_MS = 1_000;
const STOP_MS = 3_000;
const BEAT_MS_MAX = 1_000;
/** How soon to look again while a writer holds the horizon back. */
const HORIZON_BACK_OFF = { baseMs: 2, maxMs: 100 };
const ERROR_BACK_OFF = { baseMs: 100, maxMs: 10_000 };

const relaysOf = (sink: string): Stream => `relay:${sink}`;

/** Registers the sinks that are new, and relays to all of them until stopped. Errors: of the database, and of a cursor at which a new sink is to begin. */
export async function startRelay(
  db: Db,
  { sinks, onError, owner = newOwner(), pollMs = POLL_MS, stopMs = STOP_MS }: RelayOptions,
): Promise<Relay> {
  await registerSinks(db, sinks);
  const served = sinks.map((sink) => new ServedSink(db, sink, { owner, onError, pollMs, stopMs }));
  let stopping: Promise<void> | undefined;
  return {
    owner,
    get stats() {
      return served.map((sink) => sink.stats);
    },
    stop: () => (stopping ??= Promise.all(served.map((sink) => sink.stop())).then(() => undefined)),
  };
}

const newOwner = (): string => `${os.hostname().slice(0, 60)}/${process.pid}/${newId('relay')}`;

interface ServedOptions {
  readonly owner: string;
  readonly onError: RelayOptions['onError'];
  readonly pollMs: number;
  readonly stopMs: number;
}

class ServedSink {
  readonly #db: Db;
  readonly #sink: Sink;
  readonly #options: ServedOptions;
  /** Epochs of the shards that passes may take. */
  readonly #held = new Map<number, number>();
  readonly #underWay = new Map<number, Promise<unknown>>();
  readonly #stopped = new AbortController();
  /** Gives up the sends under way. */
  readonly #aborted = new AbortController();
  readonly #finished = new AbortController();
  readonly #counts = { passes: 0, sent: 0, refused: 0, failures: 0, lost: 0, beatAt: performance.now() };
  readonly #turns: Promise<unknown>;
  readonly #beats: Promise<unknown>;
  /** Ends the pauses of turns that wait. */
  readonly #waiting = new Set<AbortController>();
  #announced = false;
  #handingBack: Promise<void> | undefined;

  constructor(db: Db, sink: Sink, options: ServedOptions) {
    this.#db = db;
    this.#sink = sink;
    this.#options = options;
    this.#beats = this.#giveSigns();
    this.#turns = Promise.all(Array.from({ length: TURNS }, (_, turn) => this.#takeTurns(turn)));
  }

  get stats(): SinkStats {
    const { beatAt, ...counts } = this.#counts;
    const { name: sink, kind } = this.#sink;
    return { sink, kind, shards: this.#held.size, ...counts, sinceBeatMs: performance.now() - beatAt };
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    for (const pause of this.#waiting) pause.abort();
    const giveUp = setTimeout(() => {
      this.#aborted.abort();
    }, this.#options.stopMs);
    await this.#turns;
    clearTimeout(giveUp);
    this.#finished.abort();
    await Promise.all([this.#beats, this.#handingBack]);
    await this.#leave().catch((error: unknown) => {
      this.#options.onError(error, `relay to ${this.#sink.name}: hand shards back`); // their leases end by themselves
    });
    await this.#sink.publisher.close();
  }

  async #leave(): Promise<void> {
    const names = { sink: this.#sink.name, owner: this.#options.owner };
    await releaseShards(this.#db.lane, { ...names, shards: this.#shards() });
    await removeRelay(this.#db.lane, names);
    this.#held.clear();
    this.#db.changed([relaysOf(this.#sink.name)]);
  }

  /** Signs of life, until the last pass has ended; each brings the share that this relay may hold now. */
  async #giveSigns(): Promise<void> {
    const { signal } = this.#finished;
    const everyMs = Math.min(this.#sink.limits.leaseMs / 4, BEAT_MS_MAX);
    const news = this.#db.hub.subscribe(relaysOf(this.#sink.name));
    for (let failures = 0; !signal.aborted;) {
      try {
        await this.#beat();
        failures = 0;
      } catch (error) {
        failures += 1;
        this.#options.onError(error, `relay to ${this.#sink.name}: sign of life`);
      }
      const timeoutMs =
        failures === 0 ? everyMs : backOffMs(failures, { ...ERROR_BACK_OFF, maxMs: Math.max(everyMs, ERROR_BACK_OFF.baseMs) });
      if (failures > 0 || (await news.next({ timeoutMs, signal })) === 'closed')
        await sleep(timeoutMs, undefined, { signal }).catch(() => undefined);
    }
    news.close();
  }

  async #beat(): Promise<void> {
    const { name: sink, limits } = this.#sink;
    const { owner } = this.#options;
    const { share, shards } = await keepShards(this.#db.lane, { sink, owner, leaseMs: limits.leaseMs });
    this.#counts.beatAt = performance.now();
    const kept = [...shards].sort((a, b) => a.shard - b.shard);
    const mine = this.#stopped.signal.aborted ? kept : kept.slice(0, share);
    const hasNew = mine.some(({ shard, epoch }) => this.#held.get(shard) !== epoch);
    this.#held.clear();
    for (const { shard, epoch } of mine) this.#held.set(shard, epoch);
    if (hasNew) for (const pause of this.#waiting) pause.abort();
    if (mine.length < kept.length)
      this.#handingBack ??= this.#handBack(kept.slice(mine.length)).finally(() => (this.#handingBack = undefined));
    // Once: whoever holds too much hands it back at once, and not at its next sign of life.
    if (!this.#announced && mine.length < share) this.#db.changed([relaysOf(sink)]);
    this.#announced = true;
  }

  /** After the passes under way, which may still settle them. */
  async #handBack(shards: readonly HeldShard[]): Promise<void> {
    try {
      await Promise.all(this.#underWay.values());
      await releaseShards(this.#db.lane, { sink: this.#sink.name, owner: this.#options.owner, shards });
      this.#db.changed([relaysOf(this.#sink.name)]);
    } catch (error) {
      this.#options.onError(error, `relay to ${this.#sink.name}: hand shards back`); // the next sign of life tries again
    }
  }

  #shards(turn?: number): HeldShard[] {
    return [...this.#held].filter(([shard]) => turn === undefined || shard % TURNS === turn).map(([shard, epoch]) => ({ shard, epoch }));
  }

  async #takeTurns(turn: number): Promise<void> {
    const { signal } = this.#stopped;
    const news = this.#db.hub.subscribe('feed');
    for (let failures = 0, horizonLooks = 0; !signal.aborted;) {
      let pauseMs = this.#options.pollMs;
      try {
        const { more, waiting, sent, backOffMs: ownMs } = await this.#pass(turn);
        failures = 0;
        horizonLooks = waiting && sent === 0 ? horizonLooks + 1 : 0;
        if (more) continue;
        if (ownMs !== undefined) pauseMs = Math.min(pauseMs, ownMs);
        if (waiting) pauseMs = Math.min(pauseMs, backOffMs(horizonLooks, HORIZON_BACK_OFF));
      } catch (error) {
        failures += 1;
        this.#options.onError(error, `relay to ${this.#sink.name}`);
        await sleep(backOffMs(failures, ERROR_BACK_OFF), undefined, { signal }).catch(() => undefined);
        continue;
      }
      await this.#pause(news, pauseMs);
    }
    news.close();
  }

  async #pause(news: ReturnType<Db['hub']['subscribe']>, timeoutMs: number): Promise<void> {
    if (this.#stopped.signal.aborted) return;
    const pause = new AbortController();
    this.#waiting.add(pause);
    const { signal } = pause;
    if ((await news.next({ timeoutMs, signal })) === 'closed') await sleep(timeoutMs, undefined, { signal }).catch(() => undefined);
    this.#waiting.delete(pause);
  }

  async #pass(turn: number): Promise<PassResult> {
    const shards = this.#shards(turn);
    if (shards.length === 0) return NOTHING_DONE;
    const passing = relayPass(this.#db, this.#sink, { owner: this.#options.owner, shards, signal: this.#aborted.signal });
    this.#underWay.set(
      turn,
      passing.catch(() => undefined),
    );
    const result = await passing;
    const counts = this.#counts;
    counts.passes += 1;
    counts.sent += result.sent;
    counts.refused += result.refused;
    counts.failures += result.failed;
    counts.lost += result.lost.length;
    for (const { shard, epoch } of result.lost) if (this.#held.get(shard) === epoch) this.#held.delete(shard);
    return result;
  }
}
