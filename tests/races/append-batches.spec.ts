import { openDb, type Db, type Tx } from '@runplane/database';
import { openClient, startTcpProxy, waitUntilBlocked } from '@runplane/database/testing';
import { appendRunEvents, cancelRun, claimRun, createRuns, finishRun } from '@runplane/runs';
import { aClaimedRun, aRunner, endLease, message, story, TENANT } from '@runplane/runs/testing';
import { ending, hold, useRaces } from '../support/races';

// Appends that share a statement against whoever else has their runs: a batch waits for nobody, and nobody in it for another's run.

const t = useRaces();
type Claimed = Awaited<ReturnType<typeof aClaimedRun>>;

const append = (db: Db, { run, epoch }: Claimed, text: string, producerSequence?: number) =>
  appendRunEvents(db, {
    tenantId: TENANT,
    runId: run.id,
    epoch,
    events: [message(text)],
    ...(producerSequence === undefined ? {} : { producerSequence }),
  });
const claimedRuns = (count: number) => Promise.all(Array.from({ length: count }, () => aClaimedRun(t.db)));
const stats = () => t.db.coalescers.get('append')?.stats;

/** What the runs' runners said, in the order of the logs. */
async function said(...runs: readonly Claimed[]): Promise<string[][]> {
  const { rows } = await t.db.pool.query<{ run_id: string; text: string }>(
    `SELECT run_id, payload ->> 'text' AS text FROM runplane.run_events WHERE run_id = ANY ($1) AND type = 'assistant_message' ORDER BY seq`,
    [runs.map(({ run }) => run.id)],
  );
  return runs.map(({ run }) => rows.filter((row) => row.run_id === run.id).map((row) => row.text));
}

/** As many calls as have a statement each; what comes while they are under way goes together. */
async function busyWith(): Promise<() => Promise<unknown>> {
  const others = await claimedRuns(4);
  return () => Promise.all(others.map((other) => append(t.db, other, 'other')));
}
async function behind<T>(calls: () => T): Promise<T> {
  const others = (await busyWith())();
  const made = calls();
  await others;
  return made;
}

test('calls to a locked run wait for it in their order; others in their batch are answered meanwhile', async () => {
  const [locked, free] = (await claimedRuns(2)) as [Claimed, Claimed];
  const holder = await hold(t.db, (tx) =>
    appendRunEvents(tx, { tenantId: TENANT, runId: locked.run.id, epoch: locked.epoch, events: [message('holder')] }),
  );

  const calls = await behind(() => ({
    waiting: [append(t.db, locked, '1'), append(t.db, locked, '2'), append(t.db, locked, '3')],
    answered: [append(t.db, free, '1'), append(t.db, free, '2')],
  }));
  await Promise.all(calls.answered);
  await waitUntilBlocked(t.db, 1); // the first of the three, alone
  await append(t.db, free, '3');
  expect(await said(locked, free)).toEqual([[], ['1', '2', '3']]);

  await holder.commit();
  await Promise.all(calls.waiting);
  expect(await said(locked)).toEqual([['holder', '1', '2', '3']]);
  expect(stats()?.busy).toBeGreaterThanOrEqual(3);
});

const HOLDERS: Record<string, { work: (tx: Tx, claimed: Claimed) => Promise<unknown>; code: string }> = {
  'a cancel': {
    work: (tx, { run }) => cancelRun(tx, { tenantId: TENANT, runId: run.id, reason: 'enough', immediate: true }),
    code: 'run_closed',
  },
  'an ending': {
    work: (tx, { run, epoch }) => finishRun(tx, { tenantId: TENANT, runId: run.id, epoch, outcome: { terminalStatus: 'completed' } }),
    code: 'run_closed',
  },
  'another runner’s claim': {
    work: (tx, { run }) => claimRun(tx, { tenantId: TENANT, runId: run.id, runnerId: aRunner() }),
    code: 'lease_lost',
  },
};

test.each(Object.entries(HOLDERS))(
  '%s that holds the run comes first: the batch’s call is refused by what it left, with a record',
  async (_what, { work, code }) => {
    const [taken, free] = (await claimedRuns(2)) as [Claimed, Claimed];
    await endLease(t.db, taken.run.id);
    const holder = await hold(t.db, (tx) => work(tx, taken));

    const calls = await behind(() => ({ late: ending(append(t.db, taken, 'late')), free: append(t.db, free, 'on time') }));
    await calls.free;
    await waitUntilBlocked(t.db, 1);
    await holder.commit();

    expect(await calls.late).toMatchObject({ code });
    expect(await said(taken, free)).toEqual([[], ['on time']]);
    const records = (await story(t.db, taken.run.id)).filter((what) => what === 'late-write-rejected' || what === 'stale-writer-refused');
    expect(records).toHaveLength(1);
  },
);

test('batches of two processes over the same runs in other orders neither block each other for ever nor lose a call', async () => {
  const other = await openDb({ url: t.url, applicationName: 'race-other' });
  const runs = await claimedRuns(6);
  const orders = [runs, runs.toReversed()];
  const ROUNDS = 12;

  await Promise.all(
    [t.db, other].flatMap((db, i) =>
      Array.from({ length: ROUNDS }, (_, round) => (orders[(i + round) % 2] ?? []).map((run) => append(db, run, `${i}.${round}`))).flat(),
    ),
  );

  for (const texts of await said(...runs)) {
    const expected = Array.from({ length: ROUNDS }, (_, round) => round);
    for (const i of [0, 1]) expect(texts.filter((text) => text.startsWith(`${i}.`))).toEqual(expected.map((round) => `${i}.${round}`));
  }
  await other.close();
});

test('a batch whose backend is killed: calls with a producer sequence are repeated, of the others nobody knows', async () => {
  const [numbered, plain] = (await claimedRuns(2)) as [Claimed, Claimed];
  const others = await busyWith();
  const blocker = await openClient(t.url);
  await blocker.query('BEGIN; LOCK TABLE runplane.outbox_events IN EXCLUSIVE MODE'); // each insert waits for it, in the middle of its statement

  const first = others();
  const calls = { numbered: append(t.db, numbered, 'once', 1), plain: ending(append(t.db, plain, 'lost')) };
  const pids = await waitUntilBlocked(t.db, 5);
  await t.db.pool.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ANY ($1) AND query LIKE '%WITH l AS%'`, [pids]);
  expect(await calls.plain).toMatchObject({ code: 'outcome_unknown' });
  await blocker.query('COMMIT');
  await blocker.end();
  await Promise.all([first, calls.numbered]);

  expect(await said(numbered, plain)).toEqual([['once'], []]);
});

test.each(['lose-answer', 'lose-request'] as const)(
  'a batch of numbered calls whose connection breaks (%s) has the effect of one',
  async (fate) => {
    const proxy = await startTcpProxy(t.url);
    const broken = await openDb({
      url: proxy.through(t.url),
      preparedStatements: false,
      applicationName: 'race-broken',
      onError: () => undefined,
    });
    const runs = await claimedRuns(8); // four by themselves, four together
    let hits = 0;
    proxy.judge((bytes) => {
      if (hits > 0 || !bytes.includes('SKIP LOCKED')) return 'forward';
      hits += 1;
      return fate;
    });

    const answers = await Promise.all(runs.map((run) => append(broken, run, 'once', 1)));

    expect(hits).toBe(1);
    expect(answers.map(({ lastSeq }) => lastSeq)).toEqual(runs.map(() => 3));
    expect(await said(...runs)).toEqual(runs.map(() => ['once']));
    await broken.close();
    await proxy.close();
  },
);

test('a batch that is committed is answered, also when the look at what it skipped fails', async () => {
  const proxy = await startTcpProxy(t.url);
  const broken = await openDb({
    url: proxy.through(t.url),
    preparedStatements: false,
    applicationName: 'race-broken',
    onError: () => undefined,
  });
  const runs = await claimedRuns(6); // four by themselves, two together with one that is not there
  let hits = 0;
  proxy.judge((bytes) => {
    if (hits > 0 || !bytes.includes(`|| '/' || w.id`)) return 'forward';
    hits += 1;
    return 'lose-request';
  });

  const calls = runs.map((run) => append(broken, run, 'once'));
  const absent = ending(appendRunEvents(broken, { tenantId: TENANT, runId: 'run_none', epoch: 1, events: [message('x')] }));

  expect((await Promise.all(calls)).map(({ lastSeq }) => lastSeq)).toEqual(runs.map(() => 3));
  expect(await absent).toMatchObject({ code: 'run_not_found' });
  expect([hits, await said(...runs)]).toEqual([1, runs.map(() => ['once'])]);
  await broken.close();
  await proxy.close();
});

test('acknowledgements of a locked run wait, others do not', async () => {
  const { ackCommand, createCommand } = createRuns(t.db);
  const runs = await claimedRuns(7);
  const commands = await Promise.all(
    runs.map(({ run }) => createCommand({ tenantId: TENANT, runId: run.id, command: { type: 'interrupt', payload: {} } })),
  );
  const acks = runs.map(
    ({ run, epoch }, i) =>
      () =>
        ackCommand({ tenantId: TENANT, runId: run.id, epoch, commandId: commands[i]?.command.id ?? '' }),
  );
  const held = runs[4] as Claimed;
  const holder = await hold(t.db, (tx) =>
    appendRunEvents(tx, { tenantId: TENANT, runId: held.run.id, epoch: held.epoch, events: [message('holder')] }),
  );

  const calls = acks.map((ack) => ack()); // four by themselves, then the locked one in a batch with two others
  const free = calls.filter((_, i) => i !== 4);
  expect(await Promise.all(free)).toMatchObject(free.map(() => ({ state: 'acknowledged' })));
  await waitUntilBlocked(t.db, 1);
  await holder.commit();
  expect(await calls[4]).toMatchObject({ state: 'acknowledged' });
  expect((await story(t.db, held.run.id)).slice(-2)).toEqual(['assistant_message', 'command-acknowledged']);
});
