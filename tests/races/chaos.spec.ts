import type { JsonObject } from '@runplane/contracts';
import {
  admitSteer,
  admitTurn,
  appendRunEvents,
  cancelOverdueRunsOnce,
  cancelSession,
  claimExpiredStorage,
  claimRun,
  createRuns,
  dispatchOnce,
  failUnclaimedRunsOnce,
  heartbeat,
  pruneRunEventsOnce,
  pruneRunsOnce,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
} from '@runplane/runs';
import { endLease, message, newRun, newTurn, passDeadlines, TENANT } from '@runplane/runs/testing';
import { inTransaction, openDb, type Db } from '@runplane/database';
import {
  commitFeedConsumer,
  createOutbox,
  createRelayControl,
  deleteFeedConsumer,
  getFeedConsumer,
  pruneOutboxOnce,
  readFeed,
  registerSinks,
  SinkSettings,
  type Sink,
} from '@runplane/outbox';
import { createMemorySink, keepShards, relayPass } from '@runplane/outbox/testing';
import {
  claimSubmissions,
  failExhaustedSubmissionsOnce,
  renewSubmissions,
  requeueSubmission,
  settleSubmissions,
  startQueuedTurnsOnce,
} from '@runplane/queue';
import { acceptSubmission, listUnfinishedSubmissions, markSessionRead, refreshSessionStorage, renameSession } from '@runplane/sessions';
import { ending, useRaces } from '../support/races';
import { DOCUMENTED_REFUSALS } from '../support/refusals';

// Everything at once on three sessions. PostgreSQL looks for deadlocks after 50 ms, so that none hides behind a quick commit; one that it finds
// fails the file (useRaces), as does a refusal that no caller is told to expect. `npm run test:stress` goes on for a minute.

const CHAOS_MS = Number(process.env['CHAOS_SECONDS'] ?? 4) * 1_000;
const CALLERS = 12;
const SESSIONS = ['chaos-1', 'chaos-2', 'chaos-3'];

const t = useRaces();
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;
let keys = 0;
const newKey = () => `chaos-key-${(keys += 1)}`;
/** Every second one is a repeat of one of the last, whatever it was used for. */
const someKey = () => (Math.random() < 0.5 ? newKey() : `chaos-key-${Math.max(1, keys - Math.floor(Math.random() * 6))}`);
const pick = <T>(from: readonly T[]): T => from[Math.floor(Math.random() * from.length)] as T;

interface Active {
  readonly runId: string;
  readonly commandId: string;
  readonly epoch: number;
  readonly sessionId: string;
}

async function findActive(db: Db): Promise<Active | undefined> {
  const { rows } = await db.pool.query<Active>(
    `SELECT c.run_id AS "runId", c.id AS "commandId", greatest(r.claim_epoch, 1) AS epoch, r.session_id AS "sessionId" FROM runplane.commands c
       JOIN runplane.runs r ON r.tenant_id = c.tenant_id AND r.id = c.run_id WHERE r.session_id = $1 ORDER BY r.created_at DESC LIMIT 2`,
    [pick(SESSIONS)],
  );
  return rows.length === 0 ? undefined : pick(rows);
}

const sink: Sink = {
  ...SinkSettings.parse({ topic: 'events', limits: { backOffMs: 1, backOffMaxMs: 1, batchEvents: 50 } }),
  name: 'chaos',
  kind: 'memory',
  publisher: createMemorySink({ fault: () => (Math.random() < 0.2 ? { arriving: 3 } : undefined) }).publisher(),
};

/** Two relays of one sink, a consumer that everybody moves, and their operator. */
function feedCallsOf(db: Db): (() => Promise<unknown>)[] {
  const [control, outbox, consumer] = [createRelayControl(db), createOutbox(db), { tenantId, name: 'chaos' }];
  const relay = async (): Promise<unknown> => {
    const owner = pick(['relay-1', 'relay-2']);
    const { shards } = await keepShards(db.lane, { sink: sink.name, owner, leaseMs: pick([1, 1_000]) });
    return relayPass(db, sink, { owner, shards });
  };
  return [
    relay,
    relay,
    () => pick([control.disableSink, control.retryBlockedKeys, control.enableSink])({ sink: sink.name }),
    () => control.enableSink({ sink: sink.name, start: pick(['now', 'oldest']) }),
    () => control.republish({ sink: sink.name, from: 'oldest' }),
    () => outbox.registerFeedConsumer({ ...consumer, after: pick(['now', 'start']) }),
    () => outbox.rewindFeedConsumer({ ...consumer, to: pick(['now', 'start']) }),
    async () => {
      const { cursor: from } = await getFeedConsumer(db, consumer);
      const { cursor: to } = await readFeed(db.sql, { tenantId, after: from, limit: 5 });
      return commitFeedConsumer(db, { ...consumer, from, to });
    },
    () => deleteFeedConsumer(db, consumer),
    () => pruneOutboxOnce(db, { keepMs: 1_000, batch: 10 }),
  ];
}

/** `later`: the same store two days on, when everything that has ended may go. */
function callsOf(db: Db, later: Db) {
  const runs = createRuns(db);
  const policy = { runsDays: 1, eventsDays: 1, archive: false };
  const launcher = { kind: 'test', launch: () => Promise.resolve({ outcome: 'created' as const, jobName: 'x', result: {} }) };
  const alone = <T>(work: Parameters<typeof inTransaction<T>>[1]): Promise<T> => inTransaction(db, work);
  const onActive: readonly ((about: Active) => Promise<unknown>)[] = [
    ({ runId }) => claimRun(db, { tenantId, runId, runnerId: pick(['r1', 'r2', 'r3']) }),
    ({ runId, epoch }) => heartbeat(db, { tenantId, runId, epoch }),
    ({ runId, epoch }) => {
      const call = { type: 'tool_call' as const, payload: { callId: newKey(), name: 'ls', arguments: {} } };
      return appendRunEvents(db, { tenantId, runId, epoch, events: [message('x'), call] });
    },
    ({ runId, epoch, commandId }) => runs.ackCommand({ tenantId, runId, commandId, epoch }),
    ({ runId, epoch, commandId }) => runs.finishCommand({ tenantId, runId, commandId, epoch, outcome: completed }),
    ({ runId, epoch }) => runs.finishRun({ tenantId, runId, epoch, outcome: completed }),
    ({ runId }) => runs.cancelRun({ tenantId, runId, graceMs: 0, immediate: Math.random() < 0.3 }),
    ({ commandId }) => runs.cancelCommand({ tenantId, commandId, graceMs: 0 }),
    ({ sessionId }) => alone((tx) => cancelSession(tx, { tenantId, sessionId, graceMs: 0 })),
    ({ sessionId }) => alone((tx) => admitSteer(tx, { tenantId, sessionId, steer: { payload: { text: 's' } }, idempotencyKey: someKey() })),
    ({ runId, epoch }) => runs.acknowledgeCancel({ tenantId, runId, epoch, stage: 'delivered' }),
    ({ runId }) => {
      const command = { type: pick(['turn', 'steer', 'note']), payload: { text: 't' }, dispatch: pick([{}, null]) };
      return runs.createCommand({ tenantId, runId, idempotencyKey: someKey(), command });
    },
    ({ sessionId }) => runs.admitSteer({ tenantId, sessionId, idempotencyKey: someKey(), steer: { payload: { text: 's' } } }),
    ({ sessionId }) => {
      const turn = { ...newTurn(), busyPolicy: pick(['interrupt', 'steer', 'enqueue'] as const) };
      return runs.admitTurn({ tenantId, sessionId, turn, idempotencyKey: someKey() });
    },
    ({ runId }) => endLease(db, runId),
    ({ runId }) => passDeadlines(db, runId),
  ];
  const anywhere: readonly (() => Promise<unknown>)[] = [
    ...[pick(['fail', 'requeue'] as const), 'requeue' as const].map((onRunnerLost) => () => {
      const turn = {
        ...newTurn('hello', { run: newRun({ onRunnerLost, maxDurationMs: 1_000 }) }),
        busyPolicy: pick(['reject', 'interrupt', 'steer'] as const),
      };
      return alone((tx) => admitTurn(tx, { tenantId, sessionId: pick(SESSIONS), turn, idempotencyKey: someKey() }));
    }),
    () => sweepLostRunnersOnce(db),
    () => sweepCancelDeadlinesOnce(db),
    () => cancelOverdueRunsOnce(db),
    () => failUnclaimedRunsOnce(db),
    () => dispatchOnce(db, { launcher, owner: newKey() }),
    () => pick([pruneRunsOnce, pruneRunEventsOnce])(later, { tenantId, policy, limit: 3, chunkEvents: 10 }),
    () => alone((tx) => refreshSessionStorage(tx, { tenantId, sessionId: pick(SESSIONS), storage: { kind: 'folder', name: newKey() } })),
    () => alone((tx) => renameSession(tx, { tenantId, sessionId: pick(SESSIONS), title: newKey() })),
    () => alone((tx) => claimExpiredStorage(tx, { owner: newKey() })),
    ...queueCalls(db),
    () => alone((tx) => markSessionRead(tx, { tenantId, sessionId: pick(SESSIONS), readerId: pick(['ann', 'bob']) })),
  ];
  return { onActive, anywhere: [...anywhere, ...feedCallsOf(db)] };
}

/** Calls on the queues of the sessions, by whoever holds a claim, and by others. */
function queueCalls(db: Db): (() => Promise<unknown>)[] {
  const kind = () => pick(['work', 'work', 'turn']);
  const claimedBy = async () => {
    const { submissions } = await listUnfinishedSubmissions(db, { tenantId });
    return submissions.flatMap(({ sessionId, operationId, claim }) =>
      claim === null ? [] : [{ sessionId, operationId, epoch: claim.epoch }],
    );
  };
  return [
    () => {
      const submission = { kind: kind(), payload: newTurn() as unknown as JsonObject };
      return acceptSubmission(db, { tenantId, sessionId: pick(SESSIONS), operationId: someKey(), submission });
    },
    async () => {
      const outcome = () => pick(['completed', 'failed', 'released'] as const);
      const claimed = await claimSubmissions(db, { tenantId, owner: newKey(), kind: pick(['work', undefined]), limit: 3 });
      const settlements = claimed.map(({ sessionId, operationId, epoch }) => ({ sessionId, operationId, epoch, outcome: outcome() }));
      if (settlements.length > 0) await settleSubmissions(db, { tenantId, settlements });
    },
    async () => {
      const claims = await claimedBy();
      if (claims.length > 0) await renewSubmissions(db, { tenantId, claims });
    },
    () => inTransaction(db, (tx) => requeueSubmission(tx, { tenantId, sessionId: pick(SESSIONS), operationId: someKey() })),
    () => failExhaustedSubmissionsOnce(db),
    () => startQueuedTurnsOnce(db, { owner: newKey() }),
  ];
}

test(
  'everything at once on few rows: no deadlock, only documented refusals, and every invariant holds',
  async () => {
    const url = new URL(t.url);
    url.searchParams.set('options', '-c deadlock_timeout=50ms');
    const failures: string[] = [];
    const onError = (error: Error, where: string) => void failures.push(`${where}: ${error.message}`);
    const db = await openDb({ url: url.toString(), applicationName: 'race-chaos', onError });
    url.searchParams.set('options', `-c deadlock_timeout=50ms -c runplane.fake_now=${new Date(Date.now() + 2 * 86_400_000).toISOString()}`);
    const later = await openDb({ url: url.toString(), applicationName: 'race-chaos-later', onError });
    await registerSinks(db, [sink]);
    const seen = new Map<string, number>();
    const until = Date.now() + CHAOS_MS;
    const { onActive, anywhere } = callsOf(db, later);
    const caller = async (): Promise<void> => {
      while (Date.now() < until) {
        const about = await findActive(db);
        const ended = await ending(about !== undefined && Math.random() < 0.75 ? pick(onActive)(about) : pick(anywhere)());
        const what = 'code' in ended ? ended.code : 'done';
        seen.set(what, (seen.get(what) ?? 0) + 1);
      }
    };
    try {
      await Promise.all(Array.from({ length: CALLERS }, caller));
    } finally {
      await later.close();
      await db.close();
    }

    if (CHAOS_MS > 10_000) console.log(Object.fromEntries([...seen].sort((a, b) => b[1] - a[1])));
    expect([...seen.keys()].filter((what) => what !== 'done' && !DOCUMENTED_REFUSALS.has(what))).toEqual([]);
    expect(failures).toEqual([]);
    expect(seen.get('done')).toBeGreaterThan(20);
  },
  CHAOS_MS + 60_000,
);
