import { inTransaction, joinTransaction, type ForeignTransaction, type Tx } from '@runplane/database';
import { openClient, useDatabase, waitUntilBlocked } from '@runplane/database/testing';
import { admitTurn, appendRunEvents, cancelRun, claimRun, createRun, createRuns, finishRun, getRun, listRunEvents } from '@runplane/runs';
import { aClaimedTurn, endLease, makeTenants, message, newRun, newTurn, story, TENANT } from '@runplane/runs/testing';
import { hold } from '../support/races';

// A team's own service beside us in one database: its row and our run in one transaction of its own.

const t = useDatabase();
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;

beforeAll(async () => {
  await makeTenants(t.db);
  await t.db.pool.query('CREATE TABLE public.orders (id text PRIMARY KEY, run_id text)');
});

type Work = (theirs: ForeignTransaction, write: (id: string, runId: string) => Promise<unknown>) => Promise<void>;

/** The ways in which a team opens a transaction; an error of `work` rolls back. */
const TEAMS: [string, (work: Work) => Promise<void>][] = [
  [
    'a Prisma transaction',
    (work) =>
      t.db.prisma.$transaction((client) =>
        work(client, (id, runId) => client.$executeRaw`INSERT INTO public.orders (id, run_id) VALUES (${id}, ${runId})`),
      ),
  ],
  [
    'a connection of pg',
    async (work) => {
      const client = await openClient(t.url);
      try {
        await client.query('BEGIN');
        await work(client, (id, runId) => client.query('INSERT INTO public.orders (id, run_id) VALUES ($1, $2)', [id, runId]));
        await client.query('COMMIT');
      } finally {
        await client.end(); // without COMMIT, PostgreSQL rolls back
      }
    },
  ],
];

const ordersOf = async (id: string) => (await t.db.pool.query('SELECT id, run_id FROM public.orders WHERE id = $1', [id])).rows;
const turn = (sessionId: string, idempotencyKey = 'k') => ({ tenantId, sessionId, idempotencyKey, turn: newTurn() });

describe.each(TEAMS)('%s', (kind, inTheirTransaction) => {
  const id = (name: string) => `${name}-${kind.split(' ')[1]}`;

  test('commits an order and the turn that works on it together', async () => {
    let runId = '';
    await inTheirTransaction(async (theirs, write) => {
      const { tx } = await joinTransaction(t.db, theirs);
      const { run } = await admitTurn(tx, turn(id('together')));
      runId = run.id;
      await write(id('together'), run.id);
    });
    expect(await ordersOf(id('together'))).toEqual([{ id: id('together'), run_id: runId }]);
    expect(await getRun(t.db, { tenantId, runId })).toMatchObject({ status: 'pending' });
  });

  test('rolls both back when the order fails, and the key is free again', async () => {
    const failing = inTheirTransaction(async (theirs, write) => {
      const { tx } = await joinTransaction(t.db, theirs);
      const { run } = await admitTurn(tx, turn(id('apart')));
      await write(id('together'), run.id); // the order exists
    });
    await expect(failing).rejects.toThrow(/unique|Unique|duplicate|23505/);
    expect(await createRuns(t.db).admitTurn(turn(id('apart')))).toMatchObject({ disposition: 'created' });
  });

  test('rolls both back when the turn is refused', async () => {
    await createRuns(t.db).admitTurn(turn(id('busy')));
    const refused = inTheirTransaction(async (theirs, write) => {
      await write(id('busy'), 'none');
      const { tx } = await joinTransaction(t.db, theirs);
      await admitTurn(tx, turn(id('busy'), 'another'));
    });
    await expect(refused).rejects.toMatchObject({ code: 'session_busy' });
    expect(await ordersOf(id('busy'))).toEqual([]);
  });

  test('does a whole life of a run with its own writes in between', async () => {
    await inTheirTransaction(async (theirs, write) => {
      const { tx } = await joinTransaction(t.db, theirs);
      const { run } = await createRun(tx, { tenantId, run: newRun(), runId: id('run-life') });
      const { epoch } = await claimRun(tx, { tenantId, runId: run.id, runnerId: 'in-process' });
      await appendRunEvents(tx, { tenantId, runId: run.id, epoch, producerSequence: 1, events: [message('working')] });
      await write(id('life'), run.id);
      await finishRun(tx, { tenantId, runId: run.id, epoch, outcome: completed });
    });
    expect(await ordersOf(id('life'))).toHaveLength(1);
    expect(await story(t.db, id('run-life'))).toEqual(['run-created', 'run-claimed', 'assistant_message', 'terminal_status']);
  });

  test('sees inside what it has written, and nobody else does before the commit', async () => {
    await inTheirTransaction(async (theirs) => {
      const { tx } = await joinTransaction(t.db, theirs);
      const { run } = await createRun(tx, { tenantId, run: newRun() });
      expect(await listRunEvents(tx, { tenantId, runId: run.id, afterSeq: 0 })).toMatchObject({ lastSeq: 1 });
      await expect(getRun(t.db, { tenantId, runId: run.id })).rejects.toMatchObject({ code: 'run_not_found' });
    });
  });

  test('that must start over gets a retryable error, and its second try is admitted', async () => {
    const old = await aClaimedTurn(t.db, id('again'));
    await endLease(t.db, old.run.id);
    const rival = await hold(t.db, (tx) => finishRun(tx, { tenantId, runId: old.run.id, epoch: old.epoch, outcome: completed }));
    const attempt = () =>
      inTheirTransaction(async (theirs, write) => {
        const { tx } = await joinTransaction(t.db, theirs);
        const { run } = await admitTurn(tx, turn(id('again'), 'second'));
        await write(id('again'), run.id);
      });

    const first = attempt();
    first.catch(() => undefined);
    await waitUntilBlocked(t.db, 1);
    await rival.commit(); // the active pair that was seen before the lock is gone

    await expect(first).rejects.toMatchObject({ code: 'transaction_conflict', retryable: true });
    expect(await ordersOf(id('again'))).toEqual([]);
    await attempt();
    expect(await ordersOf(id('again'))).toHaveLength(1);
  });
});

describe('twenty callers with one key', () => {
  test('make one turn: half of them hear of it, half that the key is taken', async () => {
    const call = (text: string) =>
      createRuns(t.db)
        .admitTurn({ ...turn('crowd', 'one-key'), turn: newTurn(text) })
        .then(
          ({ run }) => run.id,
          (error: unknown) => (error as { code: string }).code,
        );
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => call(i % 2 === 0 ? 'these words' : 'other words')));

    const kinds = new Map([...new Set(answers)].map((answer) => [answer, answers.filter((each) => each === answer).length]));
    expect(kinds.size).toBe(2);
    expect(kinds.get('idempotency_conflict')).toBe(10);
    expect((await t.db.pool.query(`SELECT FROM runplane.commands WHERE session_id = 'crowd'`)).rows).toHaveLength(1);
  });

  test('make one run under a reserved id', async () => {
    const call = (providerId: string) =>
      createRuns(t.db)
        .createRun({ tenantId, runId: 'run_crowd', run: newRun({ providerId }) })
        .then(
          ({ replayed }) => (replayed ? 'replayed' : 'created'),
          (error: unknown) => (error as { code: string }).code,
        );
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => call(i % 2 === 0 ? 'one' : 'other')));
    const count = (answer: string) => answers.filter((each) => each === answer).length;
    expect([count('created'), count('replayed'), count('idempotency_conflict')]).toEqual([1, 9, 10]);
  });
});

describe('a process that dies behind any single statement', () => {
  class Died extends Error {}

  /** The same transaction, of which the process dies behind its n-th statement. */
  const dyingAt = (tx: Tx, statement: number): Tx => {
    let count = 0;
    return new Proxy(tx, {
      get: (target, name) => {
        if (name !== 'query') return Reflect.get(target, name, target) as unknown;
        return async (...args: Parameters<Tx['query']>) => {
          const rows = await target.query(...args);
          count += 1;
          if (count === statement) throw new Died(`behind statement ${statement}`);
          return rows;
        };
      },
    });
  };

  const claimedTurn = async () => {
    const { run, epoch, command } = await aClaimedTurn(t.db);
    await appendRunEvents(t.db, {
      tenantId,
      runId: run.id,
      epoch,
      events: [{ type: 'tool_call', payload: { callId: 'a', name: 'ls', arguments: {} } }],
    });
    return { tenantId, runId: run.id, epoch, commandId: command.id };
  };

  const OPERATIONS: [string, () => Promise<{ run: (tx: Tx) => Promise<unknown>; told: () => Promise<string[]> }>, string][] = [
    [
      'admitTurn',
      async () => {
        const sessionId = `dies-${Math.random()}`;
        let runId = '';
        return {
          run: async (tx) => (runId = (await admitTurn(tx, turn(sessionId))).run.id),
          told: () => story(t.db, runId),
        };
      },
      'command-created',
    ],
    [
      'admitTurn that takes over',
      async () => {
        const old = await aClaimedTurn(t.db);
        await endLease(t.db, old.run.id);
        return { run: (tx) => admitTurn(tx, turn(old.run.sessionId as string)), told: () => story(t.db, old.run.id) };
      },
      'terminal_status',
    ],
    [
      'finishRun',
      async () => {
        const { tenantId: _, ...claim } = await claimedTurn();
        return {
          run: (tx) => finishRun(tx, { tenantId, ...claim, outcome: { ...completed, threadId: 'th' } }),
          told: () => story(t.db, claim.runId),
        };
      },
      'terminal_status',
    ],
    [
      'cancelRun',
      async () => {
        const { runId } = await claimedTurn();
        return { run: (tx) => cancelRun(tx, { tenantId, runId, immediate: true }), told: () => story(t.db, runId) };
      },
      'cancel-terminalized',
    ],
  ];

  test.each(OPERATIONS)('of %s leaves nothing, and the repeat does it once', async (_name, prepare, last) => {
    const { run, told } = await prepare();
    let statement = 1;
    for (; ; statement += 1) {
      const before = await told().catch(() => []);
      const died = await inTransaction(t.db, (tx) => run(dyingAt(tx, statement))).then(
        () => false,
        (error: unknown) => {
          if (error instanceof Died) return true;
          throw error;
        },
      );
      if (!died) break;
      expect(await told()).toEqual(before);
      expect(await t.violations()).toEqual([]);
    }
    expect(statement).toBeGreaterThan(5);
    const after = await told();
    expect(after.filter((what) => what === last)).toHaveLength(1);
    await inTransaction(t.db, run); // the answer to the last try is lost: the client repeats
    expect(await told()).toEqual(after);
  });
});
