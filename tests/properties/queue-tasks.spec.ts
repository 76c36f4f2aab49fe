import { QUEUE_ATTEMPT_TRANSITIONS, QUEUE_TASK_TRANSITIONS } from '@runplane/contracts';
import {
  claimQueueTasks,
  createQueue,
  createQueueTask,
  expireReservationsOnce,
  readyDueTasksOnce,
  settleQueueTasks,
  sweepQueueLeasesOnce,
} from '@runplane/queue';
import { endTaskLease, passDelay } from '@runplane/queue/testing';
import { useDatabase } from '@runplane/database/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import fc from 'fast-check';
import { search, SEARCH_TIMEOUT_MS } from '../support/properties';

// Random sequences of operations on a few tasks of a queue with limits, against a model that knows what each must answer. After every step the states
// are the model's, after every case the invariants hold (counts of lanes, attempts), and every state has moved along the tables of libs/contracts.

jest.setTimeout(SEARCH_TIMEOUT_MS);
const t = useDatabase();
const tenantId = TENANT;
const LANE_LIMIT = 2;
const QUEUE_LIMIT = 3;
const ATTEMPTS_MAX = 2;

interface ModelTask {
  readonly id: string;
  readonly lane: string;
  readonly priority: number;
  state: string;
  epoch: number;
  attempts: number;
  due: boolean;
  isLeaseOver: boolean;
  reserved: 'no' | 'yes' | 'over';
}

beforeAll(async () => {
  await makeTenants(t.db);
  await t.db.pool.query(
    'CREATE TABLE public.moves (machine text, from_state text, to_state text, PRIMARY KEY (machine, from_state, to_state))',
  );
  await t.db.pool.query(`CREATE FUNCTION public.note_move() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN INSERT INTO public.moves VALUES (TG_ARGV[0], OLD.state, NEW.state) ON CONFLICT DO NOTHING; RETURN NULL; END $$`);
  for (const table of ['queue_tasks', 'queue_attempts'])
    await t.db.pool.query(`CREATE TRIGGER note_move AFTER UPDATE OF state ON runplane.${table} FOR EACH ROW WHEN (OLD.state <> NEW.state)
      EXECUTE FUNCTION public.note_move('${table}')`);
});

const step = fc.record({
  operation: fc.constantFrom(
    'create',
    'claim',
    'claim',
    'settle',
    'settle',
    'stale',
    'end-lease',
    'sweep',
    'pass-delay',
    'cancel',
    'reserve',
    'activate',
    'expire',
  ),
  which: fc.nat(7),
  lane: fc.constantFrom('a', 'b', undefined),
  n: fc.integer({ min: 1, max: 3 }),
  outcome: fc.constantFrom('completed', 'failed', 'blocked', 'released', 'released-failed'),
});
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

class World {
  readonly tasks: ModelTask[] = [];
  readonly queue: string;
  keys = 0;

  constructor(queue: string) {
    this.queue = queue;
  }

  running(lane?: string): number {
    return this.tasks.filter((task) => task.state === 'running' && (lane === undefined || task.lane === lane)).length;
  }

  /** Greedy by priority and age, past lanes that are full. */
  claimable(lane: string | undefined, limit: number): ModelTask[] {
    const taken: ModelTask[] = [];
    const line = this.tasks.filter((task) => task.state === 'pending' && task.due && (lane === undefined || task.lane === lane));
    for (const task of [...line].sort((a, b) => b.priority - a.priority)) {
      const inLane = this.running(task.lane) + taken.filter((other) => other.lane === task.lane).length;
      if (taken.length < limit && this.running() + taken.length < QUEUE_LIMIT && (task.lane !== 'a' || inLane < LANE_LIMIT))
        taken.push(task);
    }
    return taken;
  }
}

async function take(world: World, { operation, which, lane, n, outcome }: Step): Promise<void> {
  const { queue } = world;
  const task = world.tasks.length === 0 ? undefined : world.tasks[which % world.tasks.length];
  if (operation === 'create') {
    const priority = n - 2;
    const { task: made } = await createQueueTask(t.db, {
      tenantId,
      task: { projectId: 'p', queue, lane: lane ?? 'a', priority, title: 'x', payload: {}, maxAttempts: ATTEMPTS_MAX },
    });
    const fresh = { state: 'pending', epoch: 0, attempts: 0, due: true, isLeaseOver: false, reserved: 'no' as const };
    world.tasks.push({ id: made.id, lane: lane ?? 'a', priority, ...fresh });
    return;
  }
  if (operation === 'claim') {
    const expected = world.claimable(lane, n);
    const claimed = await claimQueueTasks(t.db, { tenantId, queue, lane, owner: 'w', limit: n });
    expect(claimed.map(({ taskId }) => taskId)).toEqual(expected.map(({ id }) => id));
    for (const [place, each] of expected.entries()) {
      Object.assign(each, { state: 'running', epoch: each.epoch + 1, attempts: each.attempts + 1, isLeaseOver: false });
      expect(claimed[place]?.epoch).toBe(each.epoch);
    }
    return;
  }
  if (operation === 'sweep') {
    await sweepQueueLeasesOnce(t.db);
    for (const each of world.tasks.filter(({ state, isLeaseOver }) => state === 'running' && isLeaseOver)) giveBack(each, true);
    return;
  }
  if (operation === 'expire') {
    await expireReservationsOnce(t.db);
    for (const each of world.tasks) if (each.reserved === 'over') each.reserved = 'no';
    return;
  }
  if (task === undefined) return;
  const key = { tenantId, taskId: task.id };
  switch (operation) {
    case 'settle':
    case 'stale': {
      const epoch = operation === 'settle' ? Math.max(task.epoch, 1) : task.epoch + 1;
      const told = outcome === 'released-failed' ? 'released' : outcome;
      const failure = outcome === 'completed' || outcome === 'released' ? {} : { failureKind: 'timeout' };
      const [verdict] = await settleQueueTasks(t.db, { tenantId, settlements: [{ taskId: task.id, epoch, outcome: told, ...failure }] });
      const isHeld = operation === 'settle' && task.state === 'running' && !task.isLeaseOver;
      if (!isHeld) {
        expect(['claim_lost', 'replayed']).toContain(verdict?.verdict);
        return;
      }
      expect(verdict?.verdict).toBe('ok');
      if (told === 'released') giveBack(task, outcome === 'released-failed');
      else task.state = told;
      return;
    }
    case 'end-lease':
      await endTaskLease(t.db, task.id);
      task.isLeaseOver = task.state === 'running';
      if (task.reserved === 'yes') task.reserved = 'over';
      return;
    case 'pass-delay':
      await passDelay(t.db, task.id);
      await readyDueTasksOnce(t.db);
      if (task.state === 'pending') task.due = true;
      return;
    case 'cancel': {
      const isOpen = task.state === 'pending' || task.state === 'running' || task.reserved !== 'no';
      expect((await createQueue(t.db).cancelQueueTask(key)).changed).toBe(isOpen);
      if (isOpen) Object.assign(task, { state: 'cancelled', epoch: task.epoch + 1, reserved: 'no' });
      return;
    }
    case 'reserve': {
      const call = createQueue(t.db).reserveQueueRetry({ ...key, idempotencyKey: `k${(world.keys += 1)}`, reason: 'again' });
      if (task.reserved === 'yes') await expect(call).rejects.toMatchObject({ code: 'retry_reserved' });
      else if (task.state !== 'failed' && task.state !== 'blocked')
        await expect(call).rejects.toMatchObject({ code: 'task_not_retryable' });
      else {
        expect((await call).created).toBe(true);
        task.reserved = 'yes';
      }
      return;
    }
    case 'activate': {
      const { rows } = await t.db.pool.query(
        `SELECT attempt_id AS id FROM runplane.queue_attempts WHERE task_id = $1 AND state = 'reserved'`,
        [task.id],
      );
      if (rows.length === 0) return;
      const call = createQueue(t.db).activateQueueRetry({ ...key, attemptId: rows[0].id, state: 'blocked', failureKind: 'timeout' });
      if (task.reserved === 'over') await expect(call).rejects.toMatchObject({ code: 'retry_reservation_expired' });
      else {
        expect((await call).activated).toBe(true);
        Object.assign(task, { state: 'blocked', reserved: 'no' });
      }
    }
  }
}

/** Whoever backs off does so for longer than a case takes on any machine. */
async function backOffLonger(world: World): Promise<void> {
  const ids = world.tasks.filter(({ state, due }) => state === 'pending' && !due).map(({ id }) => id);
  if (ids.length === 0) return;
  const { rowCount } = await t.db.pool.query(
    `UPDATE runplane.queue_tasks SET ready_at = runplane.app_now() + interval '1 hour' WHERE id = ANY ($1) AND NOT due`,
    [ids],
  );
  expect(rowCount).toBe(ids.length);
}

/** Back to the line, or failed where that was the last try. */
function giveBack(task: ModelTask, failed: boolean): void {
  if (failed && task.attempts >= ATTEMPTS_MAX) task.state = 'failed';
  else Object.assign(task, { state: 'pending', epoch: task.epoch + 1, attempts: task.attempts - (failed ? 0 : 1), due: !failed });
}

/** One task to each end: whatever the search comes to on a slow machine, these moves are tried. */
const EVERY_END: readonly Step[] = (['completed', 'failed', 'blocked', 'released'] as const).flatMap((outcome, which) =>
  (['create', 'claim', 'settle'] as const).map((operation) => ({ operation, which, lane: undefined, n: 1, outcome })),
);

test('random operations on tasks give what the model says, and break no invariant', async () => {
  let cases = 0;
  const play = async (steps: readonly Step[]): Promise<void> => {
    const world = new World(`case-${(cases += 1)}`);
    const { setLaneLimit } = createQueue(t.db);
    await setLaneLimit({ tenantId, queue: world.queue, lane: 'a', maxRunning: LANE_LIMIT });
    await setLaneLimit({ tenantId, queue: world.queue, maxRunning: QUEUE_LIMIT });
    for (const each of steps) {
      await take(world, each);
      await backOffLonger(world);
      const { rows } = await t.db.pool.query(
        `SELECT id, state::text, epoch, attempts FROM runplane.queue_tasks WHERE queue = $1 ORDER BY created_at, id`,
        [world.queue],
      );
      expect(rows).toEqual(world.tasks.map(({ id, state, epoch, attempts }) => ({ id, state, epoch, attempts })));
    }
    expect(await t.violations()).toEqual([]);
  };

  await play(EVERY_END);
  await search(fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40 }), play));

  const { rows: moves } = await t.db.pool.query('SELECT * FROM public.moves');
  const tables: Record<string, Record<string, object>> = { queue_tasks: QUEUE_TASK_TRANSITIONS, queue_attempts: QUEUE_ATTEMPT_TRANSITIONS };
  expect(moves.filter(({ machine, from_state: from, to_state: to }) => !(to in (tables[machine]?.[from] ?? {})))).toEqual([]);
  expect(moves.length).toBeGreaterThan(5);
});
