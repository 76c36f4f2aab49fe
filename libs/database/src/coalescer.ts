import { BacklogFull, isDomainError, OutcomeUnknown, ShuttingDown } from '@runplane/contracts';
import { batchesFor, CallQueue, type BatchBounds, type Bounds, type QueuedCall } from './call-queue';
import { ParameterError } from './sql';
import { sqlStateOf } from './sql-state';

// Calls that arrive together in one process share one statement: the start of a statement and its commit cost more than its rows. Nobody waits
// for a clock. While few calls are under way each has a statement of its own, at once; with more, calls gather while a batch is under way,
// and go together as soon as another may start. So the batches are as large as the load makes them.
//
// At most two batches are under way. A call whose rows somebody else holds (busy) goes into the next one, then alone, on a connection of its
// own, by the statement that waits. What was answered is committed; what was refused for lack of room was never begun.

/** What became of one call of a batch. A promise is another look at the call: the next calls of its lane wait for it, the other lanes do not. */
export type Verdict<Answer> =
  { kind: 'answer'; answer: Answer | Promise<Answer> } | { kind: 'refused'; refusal: unknown } | { kind: 'busy' };

/** How calls of one kind are carried out. */
export interface CoalescedWork<Call, Answer> {
  describe(call: Call): QueuedCall;
  /** One statement or transaction for all: a verdict per call, in order. Fails only as a whole, with nothing written (or nothing known). */
  together(calls: readonly Call[]): Promise<readonly Verdict<Answer>[]>;
  /** One call by itself; waits for locks. */
  alone(call: Call): Promise<Answer>;
  /** True when the call may be sent again after a connection broke under it, without being carried out twice. */
  isRepeatable(call: Call): boolean;
  readonly queue: Bounds;
  readonly batch: BatchBounds;
  /** How many calls may wait for locks at a time, each on a connection. */
  readonly aloneMax: number;
  /** Up to so many calls are faster side by side, each with a statement and a connection of its own (measured: bench/results.md). */
  readonly sideBySideMax: number;
}

export interface CoalescerStats {
  /** Whatever became of them. */
  readonly calls: number;
  readonly batches: number;
  /** Calls in batches; one that was busy or lost its connection counts with each. */
  readonly together: number;
  /** Calls by themselves. */
  readonly alone: number;
  /** Calls that were put back because somebody else held their rows. */
  readonly busy: number;
  /** Calls for which there was no room. */
  readonly refused: number;
  readonly waiting: number;
  readonly waitingBytes: number;
}

const LOST_REPEATS_MAX = 2;

interface Waiting<Call, Answer> extends QueuedCall {
  readonly call: Call;
  /** How often a connection broke under it. */
  lost: number;
  /** Set when others have waited in vain for so long as this one has been kept waiting: it is tried once more. */
  waitedInVain: unknown;
  readonly resolve: (answer: Answer | Promise<Answer>) => void;
  readonly reject: (error: unknown) => void;
}

export class Coalescer<Call, Answer> {
  readonly #work: CoalescedWork<Call, Answer>;
  readonly #queue: CallQueue<Waiting<Call, Answer>>;
  readonly #counts = { calls: 0, batches: 0, together: 0, alone: 0, busy: 0, refused: 0 };
  #batchesUnderWay = 0;
  #callsTogether = 0;
  #rowsTogether = 0;
  #aloneUnderWay = 0;
  /** Lanes with calls of ended batches that are looked at again. */
  #lanesUnderReview = 0;
  #flushing = false;
  #closing: { readonly promise: Promise<void>; readonly done: () => void } | undefined;

  constructor(work: CoalescedWork<Call, Answer>) {
    this.#work = work;
    this.#queue = new CallQueue(work.queue, work.batch);
  }

  get stats(): CoalescerStats {
    return { ...this.#counts, waiting: this.#queue.calls, waitingBytes: this.#queue.bytes };
  }

  /** Carries out a call. Errors: those of the call; BacklogFull, ShuttingDown: it was not begun. */
  run(call: Call): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#closing !== undefined) throw new ShuttingDown();
      const waiting: Waiting<Call, Answer> = { ...this.#work.describe(call), call, lost: 0, waitedInVain: undefined, resolve, reject };
      const { lane } = waiting;
      this.#counts.calls += 1;
      if (this.#isCalm && !this.#queue.isUnderWay(lane)) {
        this.#queue.begin(waiting);
        void this.#runAlone(waiting);
      } else if (this.#queue.add(waiting)) {
        this.#flushSoon();
      } else {
        this.#counts.refused += 1;
        const { callsMax, bytesMax } = this.#work.queue;
        throw new BacklogFull('More calls wait for the database than this process may hold: repeat the call.', { callsMax, bytesMax });
      }
    });
  }

  /** Carries out what waits; later calls are refused. Repeat: safe. */
  close(): Promise<void> {
    if (this.#closing === undefined) {
      let done: () => void = () => undefined;
      const promise = new Promise<void>((resolve) => (done = resolve));
      this.#closing = { promise, done };
    }
    this.#endClosing();
    return this.#closing.promise;
  }

  /** So few calls that each has a statement of its own, at once. */
  get #isCalm(): boolean {
    return !this.#flushing && this.#queue.calls === 0 && this.#batchesUnderWay === 0 && this.#aloneUnderWay < this.#few;
  }

  get #few(): number {
    return Math.min(this.#work.sideBySideMax, this.#work.aloneMax);
  }

  get #isIdle(): boolean {
    return this.#queue.calls + this.#batchesUnderWay + this.#aloneUnderWay + this.#lanesUnderReview === 0;
  }

  #endClosing(): void {
    if (this.#isIdle) this.#closing?.done();
  }

  /** Not at once: whoever is answered in this turn of the event loop, or has its request read in it, can still join. */
  #flushSoon(): void {
    if (this.#mayStartBatch || this.#mayStartAlone) this.#gather();
  }

  #gather(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    setImmediate(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  get #mayStartBatch(): boolean {
    return this.#batchesUnderWay < this.#batches && this.#queue.hasBatch;
  }

  get #batches(): number {
    return batchesFor(this.#queue.rows + this.#rowsTogether);
  }

  get #mayStartAlone(): boolean {
    return this.#aloneUnderWay < this.#work.aloneMax && this.#queue.hasAlone;
  }

  #flush(): void {
    while (this.#mayStartAlone) void this.#runAlone(this.#queue.takeAlone());
    if (this.#batchesUnderWay === 0 && this.#aloneUnderWay + this.#queue.calls <= this.#few) {
      while (this.#queue.hasBatch) for (const waiting of this.#queue.takeBatch(1)) void this.#runAlone(waiting);
    }
    while (this.#mayStartBatch) {
      // An equal share each: a small batch beside a large one would come back again and again before the large one is done.
      const share = Math.ceil((this.#queue.calls + this.#callsTogether) / this.#batches);
      void this.#runTogether(this.#queue.takeBatch(share));
    }
  }

  async #runAlone(waiting: Waiting<Call, Answer>): Promise<void> {
    this.#aloneUnderWay += 1;
    this.#counts.alone += 1;
    const behind = this.#queue.callsOf(waiting.lane);
    const elsewhere = this.#queue.listAlone();
    const timeout = await this.#carryOut(waiting);
    if (timeout !== undefined) {
      // They have waited for the same lock as long: to make each wait again, one after the other, would keep the last one for minutes.
      for (const next of this.#queue.withdraw(waiting.lane, behind)) next.reject(lostBefore(next, timeout));
      // Those before other locks as well, but theirs may have been released: one more try tells.
      for (const next of elsewhere) {
        next.waitedInVain = timeout;
        this.#queue.tryTogether(next.lane);
      }
    }
    this.#aloneUnderWay -= 1;
    this.#queue.end(waiting.lane);
    this.#goOn();
  }

  /** Carries out one call by itself and answers it; gives the error when it has waited for a lock in vain. */
  async #carryOut(waiting: Waiting<Call, Answer>): Promise<unknown> {
    try {
      waiting.resolve(await this.#work.alone(waiting.call));
    } catch (error) {
      waiting.reject(lostBefore(waiting, error));
      return isDomainError(error) && error.code === 'lock_timeout' ? error : undefined;
    }
    return undefined;
  }

  async #runTogether(batch: readonly Waiting<Call, Answer>[]): Promise<void> {
    this.#batchesUnderWay += 1;
    this.#callsTogether += batch.length;
    const rows = batch.reduce((sum, waiting) => sum + waiting.rows, 0);
    this.#rowsTogether += rows;
    this.#counts.batches += 1;
    this.#counts.together += batch.length;
    let after: After<Waiting<Call, Answer>>;
    try {
      after = this.#answer(batch, await this.#work.together(batch.map(({ call }) => call)));
    } catch (error) {
      after = await this.#afterFailure(batch, error);
    }
    this.#batchesUnderWay -= 1;
    this.#callsTogether -= batch.length;
    this.#rowsTogether -= rows;
    for (const lane of new Set(batch.map((waiting) => waiting.lane))) {
      const back = after.back.length === 0 ? after.back : after.back.filter((waiting) => waiting.lane === lane);
      const end = (): void => {
        this.#queue.end(lane, back, { busy: after.busy && back.length > 0 });
      };
      const reviews = after.reviews.get(lane);
      if (reviews === undefined) end();
      else void this.#endAfter(reviews, end);
    }
    if (batch.length > 1) this.#gather(); // whoever was answered may call again at once: they go together, none of them alone
    this.#goOn();
  }

  async #endAfter(reviews: readonly Promise<unknown>[], end: () => void): Promise<void> {
    this.#lanesUnderReview += 1;
    await Promise.allSettled(reviews);
    this.#lanesUnderReview -= 1;
    end();
    this.#goOn();
  }

  #goOn(): void {
    this.#flushSoon();
    this.#endClosing();
  }

  #answer(batch: readonly Waiting<Call, Answer>[], verdicts: readonly Verdict<Answer>[]): After<Waiting<Call, Answer>> {
    const reviews = new Map<string, Promise<unknown>[]>();
    const busy = batch.filter((waiting, i) => {
      const verdict = verdicts[i];
      if (verdict === undefined) waiting.reject(new Error('a call got no verdict'));
      else if (verdict.kind === 'answer') {
        waiting.resolve(verdict.answer);
        if (verdict.answer instanceof Promise) reviews.set(waiting.lane, [...(reviews.get(waiting.lane) ?? []), verdict.answer]);
      } else if (verdict.kind === 'refused') waiting.reject(verdict.refusal);
      else if (waiting.waitedInVain === undefined) return true;
      else waiting.reject(lostBefore(waiting, waiting.waitedInVain));
      return false;
    });
    this.#counts.busy += busy.length;
    return { back: busy, busy: true, reviews };
  }

  /** Nobody has an answer: each call gets its own, goes into the next batch, or is told what is known. */
  async #afterFailure(batch: readonly Waiting<Call, Answer>[], error: unknown): Promise<After<Waiting<Call, Answer>>> {
    const again: Waiting<Call, Answer>[] = [];
    if (isDomainError(error) && error.code === 'outcome_unknown') {
      for (const waiting of batch) {
        waiting.lost += 1;
        if (this.#work.isRepeatable(waiting.call) && waiting.lost <= LOST_REPEATS_MAX) again.push(waiting);
        else waiting.reject(error);
      }
    } else if (
      !(error instanceof ParameterError) &&
      (sqlStateOf(error) === undefined || (isDomainError(error) && error.code !== 'transaction_conflict'))
    ) {
      // No room, no server, no lock on a table: each by itself would fare no better. Or a mistake in the code behind the commit.
      for (const waiting of batch) waiting.reject(lostBefore(waiting, error));
    } else {
      // PostgreSQL has refused the statement, or was not sent it: it is not known for which call. Each lane in its order.
      const lanes = new Map<string, Waiting<Call, Answer>[]>();
      for (const waiting of batch) lanes.set(waiting.lane, [...(lanes.get(waiting.lane) ?? []), waiting]);
      for (const lane of lanes.values()) {
        let timeout: unknown;
        for (const waiting of lane) {
          if (timeout === undefined) timeout = await this.#carryOut(waiting);
          else waiting.reject(lostBefore(waiting, timeout));
        }
      }
    }
    return { back: again, busy: false, reviews: new Map() };
  }
}

interface After<W> {
  /** Calls that go into the next batch. */
  readonly back: readonly W[];
  /** True when they go back because others hold their lanes. */
  readonly busy: boolean;
  /** What is still looked at, by lane. */
  readonly reviews: ReadonlyMap<string, readonly Promise<unknown>[]>;
}

/** "Nothing was written" does not hold for a call whose first try is not known to have failed. */
function lostBefore({ lost }: { lost: number }, error: unknown): unknown {
  return lost > 0 && isDomainError(error) && error.failureKind === 'infra-failed' ? new OutcomeUnknown(undefined, { cause: error }) : error;
}
