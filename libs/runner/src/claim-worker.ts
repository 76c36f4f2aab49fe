import { setTimeout as sleep } from 'node:timers/promises';
import { isPassing } from '@runplane/client';
import { CLAIM_LEASE_MS_DEFAULT, newId } from '@runplane/contracts';

// A worker: claims pieces of work, runs a handler for each, keeps the claims, and tells how each ended. What a piece of work is, a task of a queue or a
// submission of a session, says its source.
//
//  - It holds at most `concurrency` pieces at work and `prefetch` more that wait for a place, and claims no more than it has room for.
//  - All its claims are renewed together, every third of a lease. A claim that is lost aborts its handler, or is not begun; nothing is told of it any more.
//  - To stop it claims no more, gives back at once what it has not begun, lets what is at work end for `drainMs`, then aborts that too and gives it
//    back. A stop is no failure: such tries do not count.

/** The claim is over: its lease ended, or the work was taken away. What the handler does from now on is in vain. */
export class WorkLost extends Error {
  override readonly name = 'WorkLost';
}

/** The worker stops and has waited long enough. */
export class WorkerStopping extends Error {
  override readonly name = 'WorkerStopping';
}

export interface WorkContext {
  /** Aborts with WorkLost or WorkerStopping. */
  readonly signal: AbortSignal;
}

/** Where work comes from, and who hears of its end. */
export interface WorkSource<Work, Outcome extends { readonly outcome: string }> {
  /** Claims up to so many, and waits for some. `remainingMs`: of each lease. */
  claim(limit: number): Promise<{ readonly work: Work; readonly remainingMs: number }[]>;
  /** Prolongs claims: what remains of each, in their order; null: it is lost. */
  renew(works: readonly Work[]): Promise<(number | null)[]>;
  /** Tells of ends: for each, in their order, whether it was heard. */
  settle(ends: readonly { readonly work: Work; readonly outcome: Outcome }[]): Promise<boolean[]>;
  readonly completed: Outcome;
  /** Back into the queue; the try does not count. */
  readonly released: Outcome;
  /** Back into the queue after an error of the handler; the try counts. */
  failedTry(error: unknown): Outcome;
  /** Pieces that one call may name. */
  readonly batchMax: number;
}

/** What every worker can be told. */
export interface WorkerOptions {
  /** Ends the worker. */
  readonly signal: AbortSignal;
  /** One process start; made here unless given. */
  readonly owner?: string | undefined;
  readonly concurrency?: number | undefined;
  /** Pieces that are claimed before there is a place for them; they wait less, and are given back when the worker stops. */
  readonly prefetch?: number | undefined;
  readonly leaseMs?: number | undefined;
  readonly drainMs?: number | undefined;
  /** How long one claim waits for work; the hub wakes it before. A worker without work stops when this is over: see `claim`. */
  readonly waitSeconds?: number | undefined;
  readonly onError?: ((error: unknown, what: 'claim' | 'renew' | 'settle') => void) | undefined;
}

export interface WorkerReport {
  readonly completed: number;
  readonly failed: number;
  readonly released: number;
  readonly lost: number;
}

interface Worker<Work, Outcome extends { readonly outcome: string }> extends WorkerOptions {
  readonly source: WorkSource<Work, Outcome>;
  readonly handle: (work: Work, context: WorkContext) => Promise<Outcome | undefined | void>;
}

/** A claim that this worker holds. */
interface Held<Work> {
  readonly work: Work;
  readonly controller: AbortController;
  /** Of its lease, on the monotonic clock and counted from before the call was sent: never later than the server's. */
  deadline: number;
}

const PAUSE_MS_MIN = 200;
const PAUSE_MS_MAX = 10_000;
const DRAIN_MS_DEFAULT = 30_000;
export const WAIT_SECONDS_DEFAULT = 5;
/** A renewal that failed is tried again soon: the lease has room for several. */
const RENEW_AGAIN_MS = 500;
/** Of this process start, for workers that name none. */
export const ownOwner = newId('worker');

/** Works until `signal` aborts; resolves when every piece of work that it held is told of, or lost. */
export async function runClaimWorker<Work, Outcome extends { readonly outcome: string }>(
  worker: Worker<Work, Outcome>,
): Promise<WorkerReport> {
  const { source, signal, concurrency = 1, prefetch = 0, leaseMs = CLAIM_LEASE_MS_DEFAULT, drainMs = DRAIN_MS_DEFAULT } = worker;
  const counts = { completed: 0, failed: 0, released: 0, lost: 0 };
  const waiting: Held<Work>[] = [];
  const working = new Map<Held<Work>, Promise<void>>();
  const renewals = new AbortController();
  const room = createGate();
  const held = (): Held<Work>[] => [...waiting, ...working.keys()];

  const begin = (): void => {
    while (working.size < concurrency && !signal.aborted) {
      const next = waiting.shift();
      if (next === undefined) return;
      if (isOver(next)) {
        counts.lost += 1; // somebody else may have it by now
        continue;
      }
      const work = workOn(worker, next, counts).finally(() => {
        working.delete(next);
        begin();
        room.open();
      });
      working.set(next, work);
    }
  };

  const renewing = renewClaims(worker, leaseMs, held, renewals.signal);
  for (let failures = 0; !signal.aborted;) {
    const limit = Math.min(concurrency + prefetch - waiting.length - working.size, source.batchMax);
    if (limit <= 0) {
      await room.wait(signal);
      continue;
    }
    const askedAt = performance.now();
    const claimed = await claim(worker, limit);
    failures = claimed === undefined ? failures + 1 : 0;
    waiting.push(...(claimed ?? []));
    begin();
    if (failures > 0) await pause(Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** Math.min(failures, 10)), signal);
    else if (claimed?.length === 0) await pause(askedAt + PAUSE_MS_MIN - performance.now(), signal); // a server that stops does not wait
  }

  const stop = setTimeout(() => {
    for (const { controller } of working.keys()) controller.abort(new WorkerStopping('the worker stops'));
  }, drainMs);
  await Promise.all([settle(worker, waiting.splice(0), source.released, counts), ...working.values()]);
  clearTimeout(stop);
  renewals.abort();
  await renewing;
  return counts;
}

/** It waited for a place, and was lost meanwhile. */
const isOver = ({ controller, deadline }: Held<unknown>): boolean => controller.signal.aborted || performance.now() >= deadline;

type Counts = { -readonly [Name in keyof WorkerReport]: number };

/** A claim that is under way when the worker is told to stop is waited for: what its answer brings would otherwise lie until its lease ends. */
async function claim<Work, Outcome extends { readonly outcome: string }>(
  { source, signal, onError }: Worker<Work, Outcome>,
  limit: number,
): Promise<Held<Work>[] | undefined> {
  const sentAt = performance.now();
  try {
    const claimed = await source.claim(limit);
    return claimed.map(({ work, remainingMs }) => ({ work, controller: new AbortController(), deadline: sentAt + remainingMs }));
  } catch (error) {
    if (signal.aborted) return [];
    onError?.(error, 'claim');
    return undefined;
  }
}

/** Runs the handler and tells how it ended. Never throws. */
async function workOn<Work, Outcome extends { readonly outcome: string }>(
  worker: Worker<Work, Outcome>,
  held: Held<Work>,
  counts: Counts,
): Promise<void> {
  const { source, handle } = worker;
  const { signal } = held.controller;
  let outcome: Outcome;
  try {
    outcome = (await handle(held.work, { signal })) ?? source.completed;
  } catch (error) {
    outcome = signal.aborted && signal.reason instanceof WorkerStopping ? source.released : source.failedTry(error);
  }
  if (signal.aborted && signal.reason instanceof WorkLost) {
    counts.lost += 1;
    return;
  }
  await settle(worker, [held], outcome, counts);
}

/** Tells of ends until the server has heard, or the leases are over. A stop of the worker does not keep it from that. */
async function settle<Work, Outcome extends { readonly outcome: string }>(
  { source, onError }: Worker<Work, Outcome>,
  all: readonly Held<Work>[],
  outcome: Outcome,
  counts: Counts,
): Promise<void> {
  const name = outcome.outcome === 'completed' || outcome.outcome === 'released' ? outcome.outcome : 'failed';
  for (let from = 0; from < all.length; from += source.batchMax) {
    const batch = all.slice(from, from + source.batchMax);
    for (;;) {
      try {
        const heard = await source.settle(batch.map(({ work }) => ({ work, outcome })));
        for (const isHeard of heard) counts[isHeard ? name : 'lost'] += 1;
        break;
      } catch (error) {
        onError?.(error, 'settle');
        if (!isPassing(error) || batch.every(({ deadline }) => performance.now() >= deadline)) {
          counts.lost += batch.length; // their leases end, and somebody else gets them
          break;
        }
        await sleep(RENEW_AGAIN_MS);
      }
    }
  }
}

/** Prolongs all claims together until told to stop. */
async function renewClaims<Work, Outcome extends { readonly outcome: string }>(
  worker: Worker<Work, Outcome>,
  leaseMs: number,
  held: () => readonly Held<Work>[],
  stopped: AbortSignal,
): Promise<void> {
  const { batchMax } = worker.source;
  for (let pauseMs = leaseMs / 3; ;) {
    await pause(pauseMs, stopped);
    if (stopped.aborted) return;
    const all = held();
    pauseMs = leaseMs / 3;
    for (let from = 0; from < all.length; from += batchMax) {
      const isRenewed = await renewBatch(worker, all.slice(from, from + batchMax));
      if (!isRenewed) pauseMs = Math.min(RENEW_AGAIN_MS, leaseMs / 3);
    }
    for (const { controller, deadline } of all)
      if (performance.now() >= deadline) controller.abort(new WorkLost('the lease ended without a renewal that got through'));
  }
}

async function renewBatch<Work, Outcome extends { readonly outcome: string }>(
  { source, onError }: Worker<Work, Outcome>,
  batch: readonly Held<Work>[],
): Promise<boolean> {
  const sentAt = performance.now();
  try {
    const remaining = await source.renew(batch.map(({ work }) => work));
    batch.forEach((held, place) => {
      const remainingMs = remaining[place];
      if (remainingMs == null) held.controller.abort(new WorkLost('the work was taken away'));
      else held.deadline = sentAt + remainingMs;
    });
    return true;
  } catch (error) {
    onError?.(error, 'renew');
    return false;
  }
}

/** A wait that ends early, without an error, when the signal aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(Math.max(ms, 0), undefined, { signal }).catch(() => undefined);
}

interface Gate {
  open(): void;
  /** Until the next `open`, or until the signal aborts. */
  wait(signal: AbortSignal): Promise<void>;
}

function createGate(): Gate {
  let waiters: (() => void)[] = [];
  return {
    open() {
      for (const go of waiters.splice(0)) go();
    },
    wait(signal) {
      if (signal.aborted) return Promise.resolve();
      return new Promise((resolve) => {
        const go = (): void => {
          signal.removeEventListener('abort', go);
          waiters = waiters.filter((other) => other !== go);
          resolve();
        };
        waiters.push(go);
        signal.addEventListener('abort', go, { once: true });
      });
    },
  };
}
