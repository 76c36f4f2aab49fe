import { ConnectionFailed } from '@runplane/client';
import type { ClaimedQueueTask, ClaimVerdict } from '@runplane/contracts';
import timers, { setImmediate as turn } from 'node:timers/promises';
import { WorkerStopping, WorkLost } from './claim-worker';
import { runQueueWorker, type QueueWorkerOptions } from './queue-worker';

/** A queue as far as one worker sees it. */
class FakeQueue {
  readonly ready: string[] = [];
  readonly held = new Map<string, number>();
  readonly settled: { taskId: string; outcome: string; failureKind?: string | undefined; failureMessage?: string | null | undefined }[] =
    [];
  readonly limits: number[] = [];
  /** What comes in while the worker stops. */
  readonly late: string[] = [];
  renewals = 0;
  lost = new Set<string>();
  fault: (what: string) => void = () => undefined;

  readonly client: QueueWorkerOptions['client'] = {
    claimQueueTasks: async ({ limit = 1 }) => {
      this.fault('claim');
      this.limits.push(limit);
      while (this.ready.length === 0 && !stop.signal.aborted) await turn(); // a stop is the end of the wait, too
      if (stop.signal.aborted) this.ready.push(...this.late.splice(0));
      const taken = this.ready.splice(0, limit);
      for (const taskId of taken) this.held.set(taskId, 1);
      return taken.map((taskId) => ({ taskId, epoch: 1, leaseRemainingMs: 30_000 }) as ClaimedQueueTask);
    },
    renewQueueTasks: async ({ claims }) => {
      this.fault('renew');
      this.renewals += 1;
      return claims.map(({ taskId }) => this.verdict(taskId));
    },
    settleQueueTasks: async (settlements) => {
      this.fault('settle');
      return settlements.map((settlement) => {
        const verdict = this.verdict(settlement.taskId);
        if (verdict.verdict === 'ok') {
          this.settled.push(settlement);
          this.held.delete(settlement.taskId);
        }
        return verdict;
      });
    },
  };

  private verdict(taskId: string): ClaimVerdict {
    const verdict = this.held.has(taskId) && !this.lost.has(taskId) ? 'ok' : 'claim_lost';
    return { taskId, verdict, state: null, currentEpoch: null, leaseRemainingMs: 30_000 };
  }
}

let queue: FakeQueue;
let stop: AbortController;
beforeEach(() => {
  queue = new FakeQueue();
  stop = new AbortController();
});

const start = (handle: QueueWorkerOptions['handle'], over: Partial<QueueWorkerOptions> = {}) =>
  runQueueWorker({ client: queue.client, queue: 'q', handle, signal: stop.signal, ...over });
const until = async (condition: () => boolean): Promise<void> => {
  while (!condition()) await turn();
};

test('a handler’s end is the task’s: completed, failed, given back, or given back with its error', async () => {
  queue.ready.push('ok', 'no', 'later', 'throws');
  const running = start(async ({ taskId }) => {
    if (taskId === 'no') return { outcome: 'blocked', failureKind: 'timeout', failureMessage: 'x'.repeat(10_000) };
    if (taskId === 'later') return { outcome: 'released', delayMs: 5 };
    if (taskId === 'throws') throw new Error('password=hunter2 broke');
    return undefined;
  });

  await until(() => queue.settled.length === 4);
  stop.abort();

  expect(await running).toEqual({ completed: 1, failed: 1, released: 2, lost: 0 });
  expect(queue.settled).toMatchObject([
    { taskId: 'ok', outcome: 'completed' },
    { taskId: 'no', outcome: 'blocked', failureKind: 'timeout', failureMessage: `${'x'.repeat(1_999)}…` },
    { taskId: 'later', outcome: 'released', delayMs: 5 },
    { taskId: 'throws', outcome: 'released', failureKind: 'backend-failed', failureMessage: expect.not.stringContaining('hunter2') },
  ]);
});

test('it claims no more than it has room for, and gives back at its stop what it has not begun', async () => {
  queue.ready.push('a', 'b', 'c', 'd', 'e', 'f', 'g');
  const begun: string[] = [];
  let finish = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const running = start(
    async ({ taskId }) => {
      begun.push(taskId);
      await held;
    },
    { concurrency: 2, prefetch: 3 },
  );

  await until(() => begun.length === 2);
  for (let turns = 0; turns < 20; turns += 1) await turn();
  stop.abort();
  await until(() => queue.settled.length === 3);
  expect([begun, queue.settled.map(({ taskId, outcome }) => `${taskId} ${outcome}`)]).toEqual([
    ['a', 'b'],
    ['c released', 'd released', 'e released'],
  ]);
  finish();

  expect(await running).toEqual({ completed: 2, failed: 0, released: 3, lost: 0 });
  expect(queue.limits).toEqual([5]);
  expect([queue.ready, queue.held.size]).toEqual([['f', 'g'], 0]);
});

test('what a claim brings that was under way at the stop is given back at once', async () => {
  const report = start(async () => undefined);
  queue.late.push('t1');
  await turn();
  stop.abort();

  expect(await report).toEqual({ completed: 0, failed: 0, released: 1, lost: 0 });
  expect(queue.settled).toMatchObject([{ taskId: 't1', outcome: 'released' }]);
});

test('what is at work when the drain is over is aborted and given back, which is no failure', async () => {
  queue.ready.push('slow');
  const running = start(
    (_task, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(signal.reason as Error));
      }),
    { drainMs: 1 },
  );

  await until(() => queue.held.size === 1);
  stop.abort();

  expect(await running).toEqual({ completed: 0, failed: 0, released: 1, lost: 0 });
  expect(queue.settled).toEqual([{ taskId: 'slow', epoch: 1, outcome: 'released' }]);
});

test('the drain goes on while nobody hears of what is given back', async () => {
  queue.ready.push('slow', 'waits');
  let isBegun = false;
  let isAborted = false;
  queue.fault = (what) => {
    if (what === 'settle' && !isAborted) throw new ConnectionFailed('away', { cause: new Error('ECONNREFUSED') });
  };
  const running = start(
    (_task, { signal }) =>
      new Promise((_resolve, reject) => {
        isBegun = true;
        signal.addEventListener('abort', () => {
          isAborted = true;
          reject(signal.reason as Error);
        });
      }),
    { prefetch: 1, drainMs: 1 },
  );

  await until(() => isBegun);
  stop.abort();

  expect(await running).toEqual({ completed: 0, failed: 0, released: 2, lost: 0 });
});

test('a claim that is taken away aborts its handler, and nothing is told of it', async () => {
  queue.ready.push('mine');
  queue.lost.add('mine');
  let reason: unknown;
  const running = start(
    (_task, { signal }) =>
      new Promise((resolve) => {
        signal.addEventListener('abort', () => {
          reason = signal.reason;
          resolve(undefined);
        });
      }),
    { leaseMs: 30 },
  );

  await until(() => reason !== undefined);
  stop.abort();

  expect(await running).toEqual({ completed: 0, failed: 0, released: 0, lost: 1 });
  expect(reason).toBeInstanceOf(WorkLost);
  expect(reason).not.toBeInstanceOf(WorkerStopping);
  expect(queue.settled).toEqual([]);
});

test('what is lost while it waits for a place is not begun', async () => {
  queue.ready.push('first', 'lost', 'last');
  queue.lost.add('lost');
  const begun: string[] = [];
  const running = start(
    async ({ taskId }) => {
      begun.push(taskId);
      if (taskId === 'first') await until(() => queue.renewals > 0);
    },
    { leaseMs: 30, prefetch: 2 },
  );

  await until(() => queue.settled.length === 2);
  stop.abort();

  expect(begun).toEqual(['first', 'last']);
  expect(await running).toEqual({ completed: 2, failed: 0, released: 0, lost: 1 });
});

test('a server that has nothing and does not wait is not asked again and again', async () => {
  let asked = 0;
  queue.client.claimQueueTasks = async () => {
    asked += 1;
    return [];
  };
  const running = start(async () => undefined);
  for (let turns = 0; turns < 50; turns += 1) await turn();
  stop.abort();

  await running;
  expect(asked).toBeLessThan(10); // 1, unless the machine stands still
});

test('a server that is away for a while costs no task: claims, renewals and results are tried again', async () => {
  queue.ready.push('a');
  const errors: string[] = [];
  const faults = new Map([
    ['claim', 1],
    ['renew', 2],
    ['settle', 1],
  ]);
  queue.fault = (what) => {
    const left = faults.get(what) ?? 0;
    faults.set(what, left - 1);
    if (left > 0) throw new ConnectionFailed('away', { cause: new Error('ECONNREFUSED') });
  };
  // Pauses are short, and the lease is not: no stall of the machine ends it.
  const { setTimeout: sleep } = timers;
  const pauses = jest.spyOn(timers, 'setTimeout').mockImplementation((ms, ...rest) => sleep(Math.min(ms ?? 0, 10), ...rest));
  const running = start(() => until(() => queue.renewals > 0), { onError: (_error, what) => errors.push(what) });

  await until(() => queue.settled.length === 1);
  stop.abort();

  expect(await running).toMatchObject({ completed: 1, lost: 0 });
  pauses.mockRestore();
  expect(errors.sort()).toEqual(['claim', 'renew', 'renew', 'settle']);
});
