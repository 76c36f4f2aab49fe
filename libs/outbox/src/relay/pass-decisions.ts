import { backOffMs } from '@runplane/database';
import type { FeedPlace } from '../feed.sql';
import type { PublishOutcome, PublishRecord } from '../publisher';
import type { SinkLimits } from './sink';

// What a pass makes of the sink's answers, for one shard: from what was read and answered, and from nothing else. Table tests:
// pass-decisions.spec.ts. The protocol: docs/relay.md.

/** An event of a page; without a record its key is blocked, and it is to be held unread. */
export interface PageItem {
  readonly key: string;
  readonly place: FeedPlace;
  readonly record: PublishRecord | undefined;
}

/** Events in feed order behind a cursor. */
export interface Page {
  readonly items: readonly PageItem[];
  /** The last place looked at, behind all items; undefined: nothing was there. */
  readonly end: FeedPlace | undefined;
  /** There is more to read behind it. */
  readonly more: boolean;
}

/** The first held events of a key whose time has come. An event without a record is no more: its session was erased. */
export interface DueKey {
  readonly key: string;
  /** At which event it is blocked, how often that was refused, and since when it is. */
  readonly place: FeedPlace;
  readonly attempts: number;
  readonly failures: number;
  readonly blockedMs: number;
  readonly revision: number;
  readonly events: readonly { readonly place: FeedPlace; readonly record: PublishRecord | undefined }[];
  /** These are all that is held of it. */
  readonly complete: boolean;
}

export interface ShardPass {
  readonly shard: number;
  readonly epoch: number;
  /** Passes in a row that a failure of the sink has ended. */
  readonly failures: number;
  /** Since the last of them the sink has taken events of other shards. */
  readonly othersSent: boolean;
  readonly keys: readonly DueKey[];
  /** A range is being sent again: `replay` is its next page. */
  readonly replaying: boolean;
  readonly replay: Page;
  readonly fresh: Page;
}

export interface BlockedKey {
  readonly key: string;
  readonly place: FeedPlace;
  readonly attempts: number;
  readonly failures: number;
  readonly delayMs: number;
  readonly parked: boolean;
  readonly reason: string | null;
  readonly error: string | null;
  readonly revision: number;
}

/** What is to be written of a shard. */
export interface ShardSettlement {
  readonly shard: number;
  readonly epoch: number;
  /** Undefined: it stays where it is. */
  readonly cursor: FeedPlace | undefined;
  readonly replay: FeedPlace | undefined;
  /** The range that was being sent again is through. */
  readonly replayed: boolean;
  readonly held: readonly { readonly key: string; readonly place: FeedPlace }[];
  readonly released: readonly { readonly key: string; readonly place: FeedPlace }[];
  readonly blocked: readonly BlockedKey[];
  readonly freed: readonly { readonly key: string; readonly revision: number }[];
  /** The failure of the sink that has ended the pass; the shard waits so long. */
  readonly failure: { readonly error: string; readonly delayMs: number } | undefined;
  readonly sent: number;
  /** Nothing that was read is left unsent; else, with nothing sent and no failure, the sink was not asked. */
  readonly whole: boolean;
  /** The next pass finds something to do at once. */
  readonly more: boolean;
}

/** A record at which the sink has failed so many passes, while other shards or keys went through, blocks its key alone. */
export const ISOLATE_AFTER_PASSES = 5;

export type Outcomes = ReadonlyMap<PublishRecord, PublishOutcome>;
type Refused = Extract<PublishOutcome, { kind: 'refused' }>;
type Failed = Extract<PublishOutcome, { kind: 'failed' }>;

/** True for a key that is tried alone, behind everything else: what it makes fail must not be the others' failure. */
export const isIsolated = ({ failures }: { failures: number }): boolean => failures > 0;

/** What becomes of a shard's records; one without an outcome was not tried. */
export function settleShard(pass: ShardPass, outcomes: Outcomes, limits: SinkLimits, random?: () => number): ShardSettlement {
  return new Settling(pass, outcomes, limits, random ?? Math.random).settle();
}

/** Whether the sink takes events of other keys of this shard than those at which it fails: where one shard alone has any, nothing else tells. */
function hasSentOthers({ keys, replay, fresh }: ShardPass, outcomes: Outcomes): boolean {
  const records = [...keys.flatMap(({ events }) => events), ...replay.items, ...fresh.items].flatMap(({ record }) => record ?? []);
  const keysOf = (kind: PublishOutcome['kind']) =>
    new Set(records.filter((record) => outcomes.get(record)?.kind === kind).map(({ partitionKey }) => partitionKey));
  const failing = keysOf('failed');
  return [...keysOf('sent')].some((key) => !failing.has(key));
}

const samePlace = (a: FeedPlace, b: FeedPlace): boolean => a.tx === b.tx && a.position === b.position;

class Settling {
  readonly #pass: ShardPass;
  readonly #outcomes: Outcomes;
  readonly #limits: SinkLimits;
  readonly #random: () => number;
  readonly #isolate: boolean;
  readonly #held: { key: string; place: FeedPlace }[] = [];
  readonly #released: { key: string; place: FeedPlace }[] = [];
  /** Blocked by this pass, or anew. */
  readonly #blocked = new Map<string, BlockedKey>();
  readonly #freed: { key: string; revision: number }[] = [];
  /** Keys of which this pass holds an event back. */
  readonly #holding = new Set<string>();
  #failure: { error: string; delayMs: number } | undefined;
  #sent = 0;
  #more = false;

  constructor(pass: ShardPass, outcomes: Outcomes, limits: SinkLimits, random: () => number) {
    this.#pass = pass;
    this.#outcomes = outcomes;
    this.#limits = limits;
    this.#random = random;
    this.#isolate = pass.failures + 1 >= ISOLATE_AFTER_PASSES && (pass.othersSent || hasSentOthers(pass, outcomes));
  }

  settle(): ShardSettlement {
    const { shard, epoch, keys, replaying } = this.#pass;
    // Pages first: a key of which they hold something back is not free, however well its due events went.
    const replay = this.#settlePage(this.#pass.replay);
    const fresh = this.#settlePage(this.#pass.fresh);
    for (const key of keys) this.#settleKey(key);
    const whole = replay.whole && fresh.whole;
    const moved = fresh.place !== undefined || replay.place !== undefined || this.#released.length > 0;
    return {
      shard,
      epoch,
      cursor: fresh.place,
      replay: replay.place,
      replayed: replaying && replay.whole && !this.#pass.replay.more,
      held: this.#held,
      released: this.#released,
      blocked: [...this.#blocked.values()],
      freed: this.#freed,
      failure: this.#failure,
      sent: this.#sent,
      whole,
      // A sink that has taken the first part, and not failed at the rest, is asked again at once.
      more: (this.#more || (moved && !whole)) && this.#failure === undefined,
    };
  }

  /** How far the page is done: up to the first event that the sink's failure has left unsent. */
  #settlePage({ items, end, more }: Page): { place: FeedPlace | undefined; whole: boolean } {
    let done: FeedPlace | undefined;
    for (const item of items) {
      if (!this.#settleItem(item)) return { place: done, whole: false };
      done = item.place;
    }
    if (more) this.#more = true;
    return { place: end ?? done, whole: true };
  }

  /** False where it must be sent again, and nothing behind it may count as done. */
  #settleItem({ key, place, record }: PageItem): boolean {
    const outcome = record === undefined ? undefined : this.#outcomes.get(record);
    if (outcome?.kind === 'sent') {
      this.#sent += 1;
      return true;
    }
    // Of a key that was blocked already, or by an earlier event of this pass: it waits behind that.
    if (record === undefined || this.#blocked.has(key)) {
      this.#hold(key, place);
      return true;
    }
    if (outcome?.kind === 'refused') {
      this.#block(key, this.#refusal(key, place, undefined, outcome));
      this.#hold(key, place);
      return true;
    }
    if (outcome?.kind !== 'failed') return false; // skipped behind an event that must be sent again, or not tried
    if (!this.#isolate || outcome.reason === 'stopped') {
      this.#fail(outcome);
      return false;
    }
    this.#block(key, this.#isolation(key, place, undefined, outcome));
    this.#hold(key, place);
    return true;
  }

  #settleKey(due: DueKey): void {
    const { key, events, complete, revision } = due;
    let done = 0;
    for (const { place, record } of events) {
      const outcome = record === undefined ? undefined : this.#outcomes.get(record);
      if (record === undefined || outcome?.kind === 'sent') {
        this.#released.push({ key, place });
        if (record !== undefined) this.#sent += 1;
        done += 1;
        continue;
      }
      if (outcome?.kind === 'refused') this.#block(key, this.#refusal(key, place, due, outcome));
      else if (outcome?.kind === 'failed') this.#settleFailedKey(due, place, outcome, done > 0);
      break;
    }
    const allDone = done === events.length;
    if (allDone && complete && !this.#holding.has(key)) {
      this.#freed.push({ key, revision });
      return;
    }
    if (done > 0 && !this.#blocked.has(key)) this.#goOn(due, (events[done] ?? events[done - 1])?.place ?? due.place);
    if (allDone) this.#more = true;
  }

  /** A failure at a key that is tried alone, or that has come too often, is the key's; any other ends the pass and leaves the key alone. */
  #settleFailedKey(due: DueKey, place: FeedPlace, outcome: Failed, progress: boolean): void {
    if (outcome.reason === 'stopped') return;
    if (isIsolated(due) || this.#isolate)
      this.#block(due.key, this.#isolation(due.key, place, progress ? undefined : due, outcome, due.revision));
    else this.#fail(outcome);
  }

  #hold(key: string, place: FeedPlace): void {
    this.#held.push({ key, place });
    this.#holding.add(key);
  }

  #block(key: string, blocked: BlockedKey): void {
    this.#blocked.set(key, blocked);
  }

  /** The key is through with the event at which it was blocked; the next one has attempts of its own. */
  #goOn({ key, revision }: DueKey, place: FeedPlace): void {
    this.#block(key, { key, place, attempts: 0, failures: 0, delayMs: 0, parked: false, reason: null, error: null, revision });
    this.#more = true;
  }

  #refusal(key: string, place: FeedPlace, due: DueKey | undefined, { reason, final, error }: Refused): BlockedKey {
    const again = due !== undefined && samePlace(due.place, place) && due.attempts > 0 ? due : undefined;
    const attempts = (again?.attempts ?? 0) + 1;
    const { attemptsMax, parkAfterMs } = this.#limits;
    const parked = final || attempts >= attemptsMax || (again !== undefined && again.blockedMs >= parkAfterMs);
    const delayMs = this.#backOff(attempts);
    return { key, place, attempts, failures: 0, delayMs, parked, reason, error, revision: due?.revision ?? 0 };
  }

  #isolation(key: string, place: FeedPlace, due: DueKey | undefined, { reason, error }: Failed, revision = 0): BlockedKey {
    const failures = (due?.failures ?? 0) + 1;
    const attempts = due !== undefined && samePlace(due.place, place) ? due.attempts : 0;
    return { key, place, attempts, failures, delayMs: this.#backOff(failures), parked: false, reason, error, revision };
  }

  /** Of several the first is told. A relay that stops has not failed. */
  #fail({ reason, error }: Failed): void {
    if (this.#failure !== undefined || reason === 'stopped') return;
    this.#failure = { error, delayMs: this.#backOff(this.#pass.failures + 1) };
  }

  #backOff(attempt: number): number {
    const { backOffMs: baseMs, backOffMaxMs } = this.#limits;
    return backOffMs(attempt, { baseMs, maxMs: Math.max(baseMs, backOffMaxMs) }, this.#random);
  }
}
