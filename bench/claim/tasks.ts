import { ensureTenant, type Db } from '@runplane/database';
import { claimQueueTasks, createQueue, createQueueTasks, settleQueueTasks } from '@runplane/queue';
import type pg from 'pg';
import { claimCase, type ClaimCase } from './claim-case';

const tenantId = 'bench';
const OTHERS = 20;
const QUEUE = 'work';
const claim = (db: Db, over: object = {}) => claimQueueTasks(db, { tenantId, queue: QUEUE, owner: 'bench', ...over });
const newTasks = (count: number, over: object = {}) =>
  Array.from({ length: count }, () => ({
    projectId: 'p',
    queue: QUEUE,
    lane: 'fast',
    title: 'a task',
    priority: 10,
    payload: { n: 1 },
    ...over,
  }));
const make =
  (count: number, over: object = {}) =>
  async (db: Db) =>
    void (await createQueueTasks(db, { tenantId, tasks: newTasks(count, over) }));
const nothing = (): Promise<void> => Promise.resolve();

const ofTasks = (
  name: string,
  gets: number,
  before: ClaimCase['before'],
  take: (db: Db) => ReturnType<typeof claimQueueTasks>,
): ClaimCase => claimCase({ name, gets, before, take, end: endClaims });

export const HUNDRED_TASKS = ofTasks('a hundred of a lane', 100, make(100), (db) => claim(db, { lane: 'fast', limit: 100 }));

export const TASK_CASES: readonly ClaimCase[] = [
  ofTasks('one of a lane', 1, make(1), (db) => claim(db, { lane: 'fast' })),
  HUNDRED_TASKS,
  ofTasks('one of a lane with a limit', 1, make(1, { lane: 'limited' }), (db) => claim(db, { lane: 'limited' })),
  ofTasks('one of all lanes of a queue', 1, make(1), (db) => claim(db)),
  ofTasks('one of all tenants in turn', 1, make(1), (db) => claimQueueTasks(db, { queue: QUEUE, owner: 'bench' })),
  ofTasks('idle poll of a queue', 0, nothing, (db) => claim(db, { queue: 'idle' })),
  ofTasks('idle poll of a full lane', 0, nothing, (db) => claim(db, { lane: 'full' })),
];

export async function prepareTasks(db: Db): Promise<void> {
  await ensureTenant(db.sql, tenantId);
  for (let n = 0; n < OTHERS; n += 1) await ensureTenant(db.sql, `other-${n}`);
  const { setLaneLimit } = createQueue(db);
  await setLaneLimit({ tenantId, queue: QUEUE, lane: 'limited', maxRunning: 1_000 });
  await setLaneLimit({ tenantId, queue: QUEUE, lane: 'full', maxRunning: 1 });
  await createQueueTasks(db, { tenantId, tasks: newTasks(2, { lane: 'full' }) });
  await claim(db, { lane: 'full', leaseMs: 600_000 });
}

/** Ready tasks in every lane, of lower priority than what is measured, of this tenant and of others; tasks that wait for their time before all of them. */
export async function fillTasks(admin: pg.Pool, tasks: number): Promise<void> {
  await admin.query(
    `INSERT INTO runplane.queue_tasks (tenant_id, id, project_id, queue, lane, title, priority, changed_tx, payload, payload_hash, hash_version, due, ready_at)
     SELECT CASE WHEN i % 2 = 0 THEN $1 ELSE 'other-' || i % ${OTHERS} END, 'backlog-' || i, 'p', $2, (ARRAY['fast', 'limited', 'full', 'slow'])[i % 4 + 1], 'a task',
       CASE WHEN i % 5 = 0 THEN 99 ELSE i % 10 END, 1, '{"n":1}', 'h', 1, i % 5 <> 0, now() + CASE WHEN i % 5 = 0 THEN interval '1 day' ELSE interval '0' END
     FROM generate_series(1, $3::int) i`,
    [tenantId, QUEUE, tasks],
  );
  await admin.query(
    `INSERT INTO runplane.queue_lanes (tenant_id, queue, lane) SELECT DISTINCT tenant_id, queue, lane FROM runplane.queue_tasks ON CONFLICT DO NOTHING`,
  );
  await admin.query('VACUUM ANALYZE runplane.queue_tasks');
}

/** Ends what was claimed. */
async function endClaims(db: Db, claimed: readonly { taskId: string; epoch: number; tenantId?: string }[]): Promise<void> {
  for (const of of new Set(claimed.map((task) => task.tenantId ?? tenantId))) {
    const settlements = claimed
      .filter((task) => (task.tenantId ?? tenantId) === of)
      .map(({ taskId, epoch }) => ({ taskId, epoch, outcome: 'completed' as const }));
    await settleQueueTasks(db, { tenantId: of, settlements });
  }
}
