import {
  claimQueueTasks,
  expireReservationsOnce,
  explainQueueTask,
  getQueueCommander,
  getQueueTask,
  listQueueTaskChanges,
  listQueueTasks,
  readyDueTasksOnce,
  renewQueueTasks,
  settleAttemptsOnce,
  settleQueueTasks,
  sweepQueueLeasesOnce,
  type ClaimTasksInput,
  type ListQueueTasks,
} from '@runplane/queue';
import type { Hot } from '../../support/plans';
import { store, tenantId } from './store';

/** Queue tasks: a backlog with a lane that has a limit, tasks that wait for their time, that run, and that have ended. */
const claimOf = (over: Partial<ClaimTasksInput>, index = 'queue_tasks_claimable'): Hot => ({
  call: (db) => claimQueueTasks(db, { tenantId, queue: 'big', owner: 'w', limit: 10, ...over }),
  statement: /locked AS MATERIALIZED/,
  index,
});

const taskPages = (over: Omit<ListQueueTasks, 'tenantId'>): Hot => ({
  call: (db) => listQueueTasks(db, { tenantId, limit: 20, ...over, cursor: store.places.get(`tasks: ${JSON.stringify(over)}`) }),
  statement: /page AS MATERIALIZED/,
  index: 'queue_tasks_tenant_id_queue_state_priority_created_at_id_idx',
});

const TASK_LISTS: Omit<ListQueueTasks, 'tenantId'>[] = [
  {},
  { queue: 'big' },
  { queue: 'big', state: 'completed' },
  { state: 'pending', readerId: 'ann' },
];

const someTasks = [15, 25, 35, 45].map((i) => ({ taskId: `q${i}`, epoch: 2 }));

export const queueStatements: Record<string, Hot> = {
  'claim tasks of a lane': claimOf({ lane: 'l1' }),
  'claim tasks of a lane with a limit': { ...claimOf({ lane: 'l3' }), statement: /room AS MATERIALIZED/, needsRows: true },
  'claim a hundred tasks of a lane': { ...claimOf({ lane: 'l1', limit: 100 }), pagesMax: 6_000 }, // 40 pages a task: its row, its indexes, its attempt
  'claim tasks of all lanes of a queue': { ...claimOf({}), pagesMax: 900 },
  'claim tasks of all tenants': { ...claimOf({ tenantId: undefined }), pagesMax: 900 },
  'claim tasks of a queue that nobody knows': claimOf({ queue: 'no-such-queue', lane: 'l1' }),
  'claim tasks of all lanes of a queue that nobody knows': { ...claimOf({ queue: 'no-such-queue' }) },
  'claim tasks of all tenants from a queue that nobody knows': claimOf({ queue: 'no-such-queue', tenantId: undefined }),
  'renew claims of tasks': {
    call: (db) => renewQueueTasks(db, { tenantId, claims: someTasks }),
    statement: /renewed AS/,
    index: 'queue_tasks_pkey',
  },
  'complete claims of tasks': {
    call: (db) => settleQueueTasks(db, { tenantId, settlements: someTasks.map((claim) => ({ ...claim, outcome: 'completed' as const })) }),
    statement: /attempt_owner = t.owner/,
    index: 'queue_tasks_pkey',
    pagesMax: 400,
  },
  'complete a claim of a task': {
    call: (db) => settleQueueTasks(db, { tenantId, settlements: [{ taskId: 'q15', epoch: 2, outcome: 'completed' }] }),
    statement: /attempt_owner = t.owner/,
    index: 'queue_tasks_pkey',
  },
  'end claims of tasks': {
    call: (db) =>
      settleQueueTasks(db, {
        tenantId,
        settlements: someTasks.map((claim) => ({ ...claim, outcome: 'failed' as const, failureKind: 'infra-failed' })),
      }),
    statement: /ended AS/,
    index: 'queue_tasks_pkey',
    pagesMax: 400,
  },
  'take back tasks whose lease has ended': {
    call: (db) => sweepQueueLeasesOnce(db, { limit: 10 }),
    statement: /ended AS/,
    index: 'queue_tasks_leases',
    pagesMax: 900,
  },
  'make tasks claimable whose time has come': {
    call: (db) => readyDueTasksOnce(db, { limit: 10 }),
    statement: /SET due = true/,
    index: 'queue_tasks_waiting',
  },
  'find attempts whose run has ended': {
    call: (db) => settleAttemptsOnce(db),
    statement: /run_tombstones/,
    index: 'queue_attempts_running_runs',
  },
  'find reservations whose time is over': {
    call: (db) => expireReservationsOnce(db),
    statement: /'reserved'/,
    index: 'queue_attempts_reserved',
  },
  'read a task': {
    call: (db) => getQueueTask(db, { tenantId, taskId: 'q15' }).catch(() => null),
    statement: /t.payload::text/,
    index: 'queue_tasks_pkey',
  },
  'explain a task': {
    call: (db) => explainQueueTask(db, { tenantId, taskId: 'q16' }).catch(() => null),
    statement: /isQueueServed/,
    index: 'queue_tasks_claimable',
    pagesMax: 1_500,
  },
  ...Object.fromEntries(TASK_LISTS.map((over) => [`read a page of tasks ${JSON.stringify(over)}`, taskPages(over)])),
  'read changes of tasks': {
    call: (db) => listQueueTaskChanges(db, { tenantId, after: store.places.get('tasks') }),
    statement: /page AS MATERIALIZED/,
    index: 'queue_tasks_tenant_id_changed_tx_id_idx',
    pagesMax: 600,
  },
  'what wants a look among tasks': {
    call: (db) => getQueueCommander(db, { tenantId, readerId: 'eve' }),
    statement: /candidates AS MATERIALIZED/,
    pagesMax: 12_000, // bounded by the scan of changes and of the heads of each state, a thousand rows each, with their marks
  },
};

/** Cursors from where pages of a full store go on. */
export async function findQueuePlaces(): Promise<void> {
  for (const over of TASK_LISTS) {
    const { cursor } = await listQueueTasks(store.db, { tenantId, ...over, limit: 200 });
    if (cursor !== null) store.places.set(`tasks: ${JSON.stringify(over)}`, cursor);
  }
  store.places.set('tasks', (await listQueueTaskChanges(store.db, { tenantId, limit: 200 })).cursor);
}
