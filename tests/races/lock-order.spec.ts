import {
  createOutbox,
  disableSink,
  enableSink,
  registerFeedConsumer,
  registerSinks,
  republish,
  retryBlockedKeys,
  rewindFeedConsumer,
} from '@runplane/outbox';
import { inTransaction, LOCK_RANK, openDb, type LockRankName, type Tx } from '@runplane/database';
import {
  ackCommand,
  acknowledgeCancel,
  admitSteer,
  admitTurn,
  appendRunEvents,
  cancelCommand,
  cancelRun,
  claimDispatchIntents,
  claimRun,
  completeDispatchIntent,
  createCommand,
  createRun,
  createRuns,
  finishCommand,
  finishRun,
  heartbeat,
  registerRunner,
  retryDispatchIntent,
  terminalizeDispatchIntent,
} from '@runplane/runs';
import { aClaimedTurn, aRun, aTurn, endLease, message, newRun, newTurn, TENANT } from '@runplane/runs/testing';
import { claimSubmissions, releaseSubmission, renewSubmissions, requeueSubmission } from '@runplane/queue';
import { acceptSubmission, endSubmission } from '@runplane/sessions';
import { useRaces } from '../support/races';

const t = useRaces();
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;
const runs = () => createRuns(t.db);
const keyOf = ({ run }: { run: { id: string } }) => ({ tenantId, runId: run.id });

/** The ranks for which an operation may wait, in order, each once; its own new rows are free. The ledger itself refuses what is out of order. */
async function ranksOf(operation: (tx: Tx) => Promise<unknown>): Promise<LockRankName[]> {
  const taken: LockRankName[] = [];
  await inTransaction(t.db, async (tx) => {
    const free = new Set<string>();
    const [take, insert] = [tx.locks.taking.bind(tx.locks), tx.locks.inserted.bind(tx.locks)];
    tx.locks.taking = (rank, ids) => {
      if (ids.some((id) => !free.has(`${rank} ${id}`)) && !taken.includes(rank)) taken.push(rank);
      take(rank, ids);
    };
    tx.locks.inserted = (rank, id) => {
      free.add(`${rank} ${id}`);
      insert(rank, id);
    };
    return operation(tx);
  });
  return taken;
}

async function aClaimedIntent(over = {}) {
  const turn = await aTurn(t.db, undefined, over);
  const intents = await claimDispatchIntents(t.db, { owner: 'd1', limit: 100 });
  const intent = intents.find(({ commandId }) => commandId === turn.command.id);
  if (intent === undefined) throw new Error('the intent was not due');
  const { runId, commandId, id: intentId, epoch, attempts, runnerJobId } = intent;
  return { tenantId, runId, commandId, intentId, epoch, attempts, runnerJobId, owner: 'd1' };
}

let keys = 0;
const newKey = () => `key-${(keys += 1)}`;

/** In the session of a turn that is open. */
async function aClaimedSubmission() {
  const { run } = await aTurn(t.db);
  const [sessionId, kind] = [run.sessionId as string, newKey()];
  await acceptSubmission(t.db, { tenantId, sessionId, operationId: 'o', submission: { kind } });
  const [claimed] = await claimSubmissions(t.db, { tenantId, kind, owner: 'w' });
  if (claimed === undefined) throw new Error('the submission was not claimed');
  return { tenantId, sessionId, operationId: claimed.operationId, epoch: claimed.epoch };
}
const turn = (sessionId: string) => ({ tenantId, sessionId, turn: newTurn(), idempotencyKey: newKey() });

// What docs/locking.md tells, as the operations do it: a path of each that takes all its locks.
/** An operation on a sink that is new. */
const onSink = (operation: (tx: Tx, sink: string) => Promise<unknown>) => async () => {
  const sink = newKey();
  await registerSinks(t.db, [{ name: sink, kind: 'memory', start: 'now' }]);
  return (tx: Tx) => operation(tx, sink);
};

const OPERATIONS: Record<string, { locks: LockRankName[]; prepare: () => Promise<(tx: Tx) => Promise<unknown>> }> = {
  registerFeedConsumer: {
    locks: ['outboxFloor', 'feedConsumer'],
    prepare: async () => (tx) => registerFeedConsumer(tx, { tenantId, name: newKey() }),
  },
  rewindFeedConsumer: {
    locks: ['outboxFloor', 'feedConsumer'],
    prepare: async () => {
      const name = newKey();
      await createOutbox(t.db).registerFeedConsumer({ tenantId, name });
      return (tx) => rewindFeedConsumer(tx, { tenantId, name, to: 'now' });
    },
  },
  republish: { locks: ['outboxFloor', 'outboxShard'], prepare: onSink((tx, sink) => republish(tx, { sink, from: 'oldest' })) },
  'enableSink from a start': {
    locks: ['outboxFloor', 'outboxShard'],
    prepare: onSink((tx, sink) => enableSink(tx, { sink, start: 'now' })),
  },
  disableSink: { locks: ['outboxShard'], prepare: onSink((tx, sink) => disableSink(tx, { sink })) },
  retryBlockedKeys: { locks: ['outboxShard'], prepare: onSink((tx, sink) => retryBlockedKeys(tx, { sink })) },
  createRun: {
    locks: ['newKey', 'session'],
    prepare: async () => {
      const known = await aTurn(t.db);
      return (tx) =>
        createRun(tx, { tenantId, runId: newKey(), run: { ...newRun(), sessionRef: { sessionId: known.run.sessionId as string } } });
    },
  },
  'createRun in a new session': {
    locks: ['newKey'],
    prepare: async () => (tx) => createRun(tx, { tenantId, runId: newKey(), run: { ...newRun(), sessionRef: { sessionId: newKey() } } }),
  },
  admitSteer: {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const old = await aClaimedTurn(t.db);
      const call = { tenantId, sessionId: old.run.sessionId as string, idempotencyKey: newKey(), steer: { payload: { text: 'x' } } };
      return (tx) => admitSteer(tx, call);
    },
  },
  'admitTurn that interrupts': {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const old = await aTurn(t.db);
      const call = turn(old.run.sessionId as string);
      return (tx) => admitTurn(tx, { ...call, turn: { ...call.turn, busyPolicy: 'interrupt' } });
    },
  },
  createCommand: {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const old = await aClaimedTurn(t.db);
      return (tx) =>
        createCommand(tx, { ...keyOf(old), idempotencyKey: newKey(), command: { type: 'steer', payload: { text: 'x' }, dispatch: {} } });
    },
  },
  'admitTurn in a new session': { locks: ['newKey'], prepare: async () => (tx) => admitTurn(tx, turn(newKey())) },
  'admitTurn that takes over': {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const old = await aClaimedTurn(t.db);
      await endLease(t.db, old.run.id);
      return (tx) => admitTurn(tx, turn(old.run.sessionId as string));
    },
  },
  claimRun: {
    locks: ['run', 'runLease'],
    prepare: async () => {
      const run = await aRun(t.db);
      return (tx) => claimRun(tx, { ...keyOf({ run }), runnerId: 'r1' });
    },
  },
  heartbeat: {
    locks: ['runLease'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      return (tx) => heartbeat(tx, { ...keyOf(claimed), epoch: claimed.epoch });
    },
  },
  appendRunEvents: {
    locks: ['run'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      return (tx) => appendRunEvents(tx, { ...keyOf(claimed), epoch: claimed.epoch, events: [message('x')] });
    },
  },
  ackCommand: {
    locks: ['run', 'command'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      return (tx) => ackCommand(tx, { ...keyOf(claimed), commandId: claimed.command.id, epoch: claimed.epoch });
    },
  },
  finishCommand: {
    locks: ['run', 'command', 'intent', 'session'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      return (tx) => finishCommand(tx, { ...keyOf(claimed), commandId: claimed.command.id, epoch: claimed.epoch, outcome: completed });
    },
  },
  finishRun: {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      return (tx) =>
        finishRun(tx, {
          ...keyOf(claimed),
          commandId: claimed.command.id,
          epoch: claimed.epoch,
          outcome: { ...completed, threadId: 'th' },
        });
    },
  },
  cancelRun: {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      return (tx) => cancelRun(tx, { ...keyOf(claimed), immediate: true });
    },
  },
  cancelCommand: {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      return (tx) => cancelCommand(tx, { tenantId, commandId: claimed.command.id, immediate: true });
    },
  },
  acknowledgeCancel: {
    locks: ['run', 'command'],
    prepare: async () => {
      const claimed = await aClaimedTurn(t.db);
      await runs().cancelCommand({ tenantId, commandId: claimed.command.id });
      return (tx) => acknowledgeCancel(tx, { ...keyOf(claimed), commandId: claimed.command.id, epoch: claimed.epoch, stage: 'delivered' });
    },
  },
  registerRunner: { locks: ['newKey'], prepare: async () => (tx) => registerRunner(tx, { tenantId, runnerId: newKey(), runner: {} }) },
  completeDispatchIntent: {
    locks: ['run', 'intent', 'runnerJob'],
    prepare: async () => {
      const claim = await aClaimedIntent();
      return (tx) => completeDispatchIntent(tx, claim, { outcome: 'created', job: { launcher: 'test', jobName: 'x', result: {} } });
    },
  },
  retryDispatchIntent: {
    locks: ['run', 'intent'],
    prepare: async () => {
      const claim = await aClaimedIntent();
      return (tx) => retryDispatchIntent(tx, claim, { error: 'x', delayMs: 60_000 });
    },
  },
  'admitTurn that waits in the queue': {
    locks: ['run', 'runLease', 'command', 'intent', 'session', 'sessionHead', 'submissionHead'],
    prepare: async () => {
      const open = await aClaimedTurn(t.db);
      const call = turn(open.run.sessionId as string);
      return (tx) => admitTurn(tx, { ...call, turn: { ...call.turn, busyPolicy: 'enqueue' } });
    },
  },
  'finishRun that calls the next turn': {
    locks: ['run', 'runLease', 'command', 'intent', 'session', 'sessionHead', 'submissionHead'],
    prepare: async () => {
      const open = await aClaimedTurn(t.db);
      const call = turn(open.run.sessionId as string);
      await runs().admitTurn({ ...call, turn: { ...call.turn, busyPolicy: 'enqueue' } });
      return (tx) => finishRun(tx, { ...keyOf(open), epoch: open.epoch, outcome: completed });
    },
  },
  acceptSubmission: {
    locks: ['sessionHead'],
    prepare: async () => {
      const { sessionId } = await aClaimedSubmission();
      return (tx) => acceptSubmission(tx, { tenantId, sessionId, operationId: newKey(), submission: { kind: 'work' } });
    },
  },
  endSubmission: {
    locks: ['sessionHead', 'submissionHead'],
    prepare: async () => {
      const claimed = await aClaimedSubmission();
      return (tx) => endSubmission(tx, { ...claimed, end: { state: 'completed', claimEpoch: claimed.epoch } });
    },
  },
  requeueSubmission: {
    locks: ['sessionHead'],
    prepare: async () => {
      const claimed = await aClaimedSubmission();
      await endSubmission(t.db, { ...claimed, end: { state: 'failed' } });
      return (tx) => requeueSubmission(tx, claimed);
    },
  },
  renewSubmissions: {
    locks: ['submissionHead'],
    prepare: async () => {
      const { sessionId, operationId, epoch } = await aClaimedSubmission();
      return (tx) => renewSubmissions(tx, { tenantId, claims: [{ sessionId, operationId, epoch }] });
    },
  },
  releaseSubmission: {
    locks: ['submissionHead'],
    prepare: async () => {
      const claimed = await aClaimedSubmission();
      return (tx) => releaseSubmission(tx, claimed);
    },
  },
  terminalizeDispatchIntent: {
    locks: ['run', 'runLease', 'command', 'intent', 'session'],
    prepare: async () => {
      const claim = await aClaimedIntent();
      return (tx) => terminalizeDispatchIntent(tx, claim, { failureKind: 'infra-failed', message: 'x', attempts: 1 });
    },
  },
};

test.each(Object.entries(OPERATIONS))('%s takes its locks in order', async (_name, { locks, prepare }) => {
  const ranks = await ranksOf(await prepare());
  expect(ranks).toEqual(locks);
  expect(ranks.map((rank) => LOCK_RANK[rank])).toEqual([...ranks.map((rank) => LOCK_RANK[rank])].sort((a, b) => a - b));
});

test('no operation needs a second connection: with one left, each comes to its end', async () => {
  const tight = await openDb({ url: t.url, poolMax: 2, connectTimeoutMs: 15_000, applicationName: 'race-tight' });
  const taken = await tight.pool.connect();
  try {
    for (const { prepare } of Object.values(OPERATIONS)) await inTransaction(tight, await prepare());
  } finally {
    taken.release();
    await tight.close();
  }
});

test('two operations of one transaction in the wrong order are refused before they wait', async () => {
  const [a, b] = [await aClaimedTurn(t.db), await aClaimedTurn(t.db)].sort((x, y) => (x.run.id < y.run.id ? -1 : 1)) as [
    Awaited<ReturnType<typeof aClaimedTurn>>,
    Awaited<ReturnType<typeof aClaimedTurn>>,
  ];
  const backwards = inTransaction(t.db, async (tx) => {
    await appendRunEvents(tx, { ...keyOf(b), epoch: b.epoch, events: [message('b')] });
    await appendRunEvents(tx, { ...keyOf(a), epoch: a.epoch, events: [message('a')] });
  });
  await expect(backwards).rejects.toMatchObject({ code: 'lock_order' });
});
