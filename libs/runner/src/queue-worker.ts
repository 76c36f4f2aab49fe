import { setTimeout as sleep } from 'node:timers/promises';
import { type Client, isPassing } from '@runplane/client';
import {
  CLAIM_LEASE_MS_DEFAULT,
  newId,
  QUEUE_BATCH_ROWS_MAX,
  redactError,
  type ClaimedQueueTask,
  type SettleQueueTasks,
} from '@runplane/contracts';

// A worker of a queue: claims tasks, runs a handler for each, keeps the leases, and tells how each ended.
//
//  - It holds at most `concurrency` tasks at work and `prefetch` more that wait for a place, and claims no more than it has room for.
//  - All its claims are renewed together, every third of a lease. A claim that is lost aborts its handler; nothing is told of it any more.
//  - To stop it claims no more, gives back at once what it has not begun, lets what is at work end for `drainMs`, then aborts that too and gives it
//    back. A stop is no failure: such tries do not count.

/** The claim is over: its lease ended, or the task was cancelled. What the handler does from now on is in vain. */
export class TaskLost extends Error {
  override readonly name = 'TaskLost';
}

/** The worker stops and has waited long enough. */
export class WorkerStopping extends Error {
  override readonly name = 'WorkerStopping';
}

export interface TaskContext {
  /** Aborts with TaskLost or WorkerStopping. */
  readonly signal: AbortSignal;
}

/** How a task ended; a handler that returns nothing has completed it, one that throws gives it back with its error, to be tried again. */
export type TaskOutcome =
  | { readonly outcome: 'completed' }
  | { readonly outcome: 'failed' | 'blocked'; readonly failureKind: string; readonly failureMessage?: string | undefined }
  | { readonly outcome: 'released'; readonly delayMs?: number | undefined };

export type TaskHandler = (task: ClaimedQueueTask, context: TaskContext) => Promise<TaskOutcome | undefined | void>;

export interface QueueWorkerOptions {
  readonly client: Pick<Client, 'claimQueueTasks' | 'renewQueueTasks' | 'settleQueueTasks'>;
  readonly queue: string;
  /** Absent: all lanes of the queue. */
  readonly lane?: string | undefined;
  readonly handle: TaskHandler;
  /** Ends the worker. */
  readonly signal: AbortSignal;
  /** One process start; made here unless given. */
  readonly owner?: string | undefined;
  readonly concurrency?: number | undefined;
  /** Tasks that are claimed before there is a place for them; they wait less, and are given back when the worker stops. */
  readonly prefetch?: number | undefined;
  readonly leaseMs?: number | undefined;
  readonly drainMs?: number | undefined;
  /** How long one claim waits for tasks; the hub wakes it before. A worker without tasks stops when this is over: see `claim`. */
  readonly waitSeconds?: number | undefined;
  readonly onError?: ((error: unknown, what: 'claim' | 'renew' | 'settle') => void) | undefined;
}

export interface QueueWorkerReport {
  readonly completed: number;
  readonly failed: number;
  readonly released: number;
  readonly lost: number;
}

type Settlement = SettleQueueTasks['settlements'][number];

/** A claim that this worker holds. */
interface Held {
  readonly task: ClaimedQueueTask;
  readonly controller: AbortController;
  /** Of its lease, on the monotonic clock and counted from before the call was sent: never later than the server's. */
  deadline: number;
}

const PAUSE_MS_MIN = 200;
const PAUSE_MS_MAX = 10_000;
const DRAIN_MS_DEFAULT = 30_000;
const WAIT_SECONDS_DEFAULT = 5;
/** A renewal that failed is tried again soon: the lease has room for several. */
const RENEW_AGAIN_MS = 500;

/** Works off a queue until `signal` aborts; resolves when every task that it held is told of, or lost. */
export async function runQueueWorker(options: QueueWorkerOptions): Promise<QueueWorkerReport> {
  const { signal, concurrency = 1, prefetch = 0, leaseMs = CLAIM_LEASE_MS_DEFAULT, drainMs = DRAIN_MS_DEFAULT } = options;
  const counts = { completed: 0, failed: 0, released: 0, lost: 0 };
  const waiting: Held[] = [];
  const working = new Map<Held, Promise<void>>();
  const renewals = new AbortController();
  const room = createGate();
  const held = (): Held[] => [...waiting, ...working.keys()];

  const begin = (): void => {
    while (working.size < concurrency && !signal.aborted) {
      const next = waiting.shift();
      if (next === undefined) return;
      const work = workOn(options, next, counts).finally(() => {
        working.delete(next);
        begin();
        room.open();
      });
      working.set(next, work);
    }
  };

  const renewing = renewClaims(options, leaseMs, held, renewals.signal);
  for (let failures = 0; !signal.aborted;) {
    const limit = Math.min(concurrency + prefetch - waiting.length - working.size, QUEUE_BATCH_ROWS_MAX);
    if (limit <= 0) {
      await room.wait(signal);
      continue;
    }
    const claimed = await claim(options, leaseMs, limit);
    failures = claimed === undefined ? failures + 1 : 0;
    waiting.push(...(claimed ?? []));
    begin();
    if (failures > 0) await pause(Math.min(PAUSE_MS_MAX, PAUSE_MS_MIN * 2 ** Math.min(failures, 10)), signal);
  }

  await giveBack(options, waiting.splice(0), counts);
  const stop = setTimeout(() => {
    for (const { controller } of working.keys()) controller.abort(new WorkerStopping('the worker stops'));
  }, drainMs);
  await Promise.all(working.values());
  clearTimeout(stop);
  renewals.abort();
  await renewing;
  return counts;
}

type Counts = { -readonly [Name in keyof QueueWorkerReport]: number };

/** A claim that is under way when the worker is told to stop is waited for: what its answer brings would otherwise lie until its lease ends. */
async function claim(
  { client, queue, lane, owner, signal, waitSeconds = WAIT_SECONDS_DEFAULT, onError }: QueueWorkerOptions,
  leaseMs: number,
  limit: number,
): Promise<Held[] | undefined> {
  const sentAt = performance.now();
  try {
    const tasks = await client.claimQueueTasks(
      { queue, ...(lane === undefined ? {} : { lane }), owner: owner ?? ownOwner, limit, leaseMs },
      { waitSeconds },
    );
    return tasks.map((task) => ({ task, controller: new AbortController(), deadline: sentAt + task.leaseRemainingMs }));
  } catch (error) {
    if (signal.aborted) return [];
    onError?.(error, 'claim');
    return undefined;
  }
}

/** Of this process start, for workers that name none. */
const ownOwner = newId('worker');

/** Runs the handler and tells how it ended. Never throws. */
async function workOn(options: QueueWorkerOptions, held: Held, counts: Counts): Promise<void> {
  const { task, controller } = held;
  const { signal } = controller;
  let outcome: TaskOutcome;
  let failure: { failureKind: string; failureMessage: string } | undefined;
  try {
    outcome = (await options.handle(task, { signal })) ?? { outcome: 'completed' };
  } catch (error) {
    outcome = { outcome: 'released' };
    if (!(signal.aborted && signal.reason instanceof WorkerStopping))
      failure = { failureKind: 'backend-failed', failureMessage: redactError(error) };
  }
  if (signal.aborted && signal.reason instanceof TaskLost) {
    counts.lost += 1;
    return;
  }
  await settle(options, [held], () => ({ ...outcome, ...failure }), counts);
}

function giveBack(options: QueueWorkerOptions, tasks: readonly Held[], counts: Counts): Promise<void> {
  return settle(options, tasks, () => ({ outcome: 'released' }), counts);
}

/** Tells of ends until the server has heard, or the leases are over. A stop of the worker does not keep it from that. */
async function settle(
  { client, onError }: QueueWorkerOptions,
  tasks: readonly Held[],
  outcomeOf: (held: Held) => Omit<Settlement, 'taskId' | 'epoch'>,
  counts: Counts,
): Promise<void> {
  for (let from = 0; from < tasks.length; from += QUEUE_BATCH_ROWS_MAX) {
    const batch = tasks.slice(from, from + QUEUE_BATCH_ROWS_MAX);
    const settlements = batch.map((held) => ({ taskId: held.task.taskId, epoch: held.task.epoch, ...outcomeOf(held) }));
    for (;;) {
      try {
        const verdicts = await client.settleQueueTasks(settlements);
        verdicts.forEach(({ verdict }, place) => {
          const { outcome } = settlements[place] ?? { outcome: 'released' };
          const told = verdict === 'ok' || verdict === 'replayed';
          counts[!told ? 'lost' : outcome === 'completed' ? 'completed' : outcome === 'released' ? 'released' : 'failed'] += 1;
        });
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
async function renewClaims(options: QueueWorkerOptions, leaseMs: number, held: () => readonly Held[], stopped: AbortSignal): Promise<void> {
  for (let pauseMs = leaseMs / 3; ;) {
    await pause(pauseMs, stopped);
    if (stopped.aborted) return;
    const all = held();
    pauseMs = leaseMs / 3;
    for (let from = 0; from < all.length; from += QUEUE_BATCH_ROWS_MAX) {
      const isRenewed = await renewBatch(options, leaseMs, all.slice(from, from + QUEUE_BATCH_ROWS_MAX));
      if (!isRenewed) pauseMs = Math.min(RENEW_AGAIN_MS, leaseMs / 3);
    }
    for (const { controller, deadline } of all)
      if (performance.now() >= deadline) controller.abort(new TaskLost('the lease ended without a renewal that got through'));
  }
}

async function renewBatch({ client, onError }: QueueWorkerOptions, leaseMs: number, batch: readonly Held[]): Promise<boolean> {
  const sentAt = performance.now();
  try {
    const verdicts = await client.renewQueueTasks({ claims: batch.map(({ task: { taskId, epoch } }) => ({ taskId, epoch })), leaseMs });
    batch.forEach((held, place) => {
      const verdict = verdicts[place];
      if (verdict?.verdict === 'ok') held.deadline = sentAt + (verdict.leaseRemainingMs ?? 0);
      else held.controller.abort(new TaskLost('the task was taken away'));
    });
    return true;
  } catch (error) {
    onError?.(error, 'renew');
    return false;
  }
}

/** A wait that ends early, without an error, when the signal aborts. */
async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch(() => undefined);
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
