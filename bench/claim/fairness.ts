import { ensureTenant, type Db } from '@runplane/database';
import { claimQueueTasks, createQueueTasks, settleQueueTasks } from '@runplane/queue';
import type { Expectation } from '../support/result';

const TENANTS = 20;
const LOAD = 200;
const CLAIMERS = 8;

/** How tenants share the workers of a queue: what comes of one that has very much waiting beside one with a single task, and of twenty with as much each. */
export async function measureFairness(db: Db, say: (line: string) => void): Promise<Expectation[]> {
  say('fairness: 10,000 tasks of one tenant and one of another; twenty tenants with equal load');
  return [
    { what: 'claims until the one task of a tenant comes, beside 10,000 of another', found: await turnOfTheSmall(db), atMost: 4 },
    { what: `greatest share of ${TENANTS} tenants with equal load, against the least`, found: await sharesOfEquals(db), atMost: 1.5 },
  ];
}

async function add(db: Db, tenantId: string, queue: string, count: number): Promise<void> {
  await ensureTenant(db.sql, tenantId);
  const task = { projectId: 'p', queue, title: 'a task', payload: { n: 1 } };
  for (let made = 0; made < count; made += 100)
    await createQueueTasks(db, { tenantId, tasks: Array.from({ length: Math.min(100, count - made) }, () => task) });
}

async function takeOne(db: Db, queue: string): Promise<string> {
  const [task] = await claimQueueTasks(db, { queue, owner: 'bench' });
  if (task === undefined) throw new Error('there is nothing to claim');
  const { tenantId, taskId, epoch } = task;
  await settleQueueTasks(db, { tenantId, settlements: [{ taskId, epoch, outcome: 'completed' }] });
  return tenantId;
}

async function turnOfTheSmall(db: Db): Promise<number> {
  await add(db, 'fair-big', 'fair-two', 10_000);
  await takeOne(db, 'fair-two');
  await add(db, 'fair-small', 'fair-two', 1);
  for (let turn = 1; ; turn += 1) if ((await takeOne(db, 'fair-two')) === 'fair-small') return turn;
}

/** Claimers at once take one task after the other, until half of the load is done. */
async function sharesOfEquals(db: Db): Promise<number> {
  const tenants = Array.from({ length: TENANTS }, (_, n) => `fair-${n}`);
  for (const tenantId of tenants) await add(db, tenantId, 'fair-equal', LOAD);
  const shares = new Map(tenants.map((tenantId) => [tenantId, 0]));
  let left = (TENANTS * LOAD) / 2;
  const claimer = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const tenantId = await takeOne(db, 'fair-equal');
      shares.set(tenantId, (shares.get(tenantId) ?? 0) + 1);
    }
  };
  await Promise.all(Array.from({ length: CLAIMERS }, claimer));
  return Math.max(...shares.values()) / Math.min(...shares.values());
}
