import { ensureTenant, openDb } from '@runplane/database';
import { claimQueueTasks, createQueueTasks, settleQueueTasks } from '@runplane/queue';
import { openPlainPool } from '../support/store';
import { inCalls, PAYLOAD, untilEmpty, type PeerSetting, type QueuePeer } from './queue-peer';

// The library's doors, as an embedder calls them: input checks, content hash, attempts with history, leases with epochs, the list of changes, hints
// to waiters.

const tenantId = 'bench';
const QUEUE = { queue: 'bench', lane: 'main' };

/** Claims of one lane, or of all lanes of the queue. */
export async function openOurs({ url, callersMax }: PeerSetting, claimed: 'lane' | 'queue' = 'lane'): Promise<QueuePeer> {
  const db = await openDb({ url, applicationName: 'bench-queue-peers', poolMax: Math.max(callersMax, 2), onError: () => undefined });
  await db.hub.start();
  await ensureTenant(db.sql, tenantId);
  const admin = openPlainPool(url, 1);
  const task = { projectId: 'bench', ...QUEUE, title: 'a job', payload: PAYLOAD };
  const scope = { tenantId, owner: 'bench', queue: QUEUE.queue, ...(claimed === 'lane' && { lane: QUEUE.lane }) };
  return {
    description: `createQueueTasks, claimQueueTasks of a ${claimed}, settleQueueTasks; pool of ${callersMax}`,
    enqueue: (work) => inCalls(work, (jobs) => createQueueTasks(db, { tenantId, tasks: Array.from({ length: jobs }, () => task) })),
    workOff: (work) =>
      untilEmpty(work, async (limit) => {
        const tasks = await claimQueueTasks(db, { ...scope, limit });
        if (tasks.length === 0) return 0;
        const settlements = tasks.map(({ taskId, epoch }) => ({ taskId, epoch, outcome: 'completed' as const }));
        const verdicts = await settleQueueTasks(db, { tenantId, settlements });
        if (verdicts.some(({ verdict }) => verdict !== 'ok')) throw new Error('a claim of this benchmark was lost');
        return tasks.length;
      }),
    waiting: async () => {
      const { rows } = await admin.query<{ n: string }>('SELECT count(*) AS n FROM runplane.queue_tasks WHERE ended_at IS NULL');
      return Number(rows[0]?.n);
    },
    close: async () => {
      await admin.end();
      await db.close();
    },
  };
}
