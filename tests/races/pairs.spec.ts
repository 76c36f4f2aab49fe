import type { JsonObject } from '@runplane/contracts';
import { inTransaction, type Tx } from '@runplane/database';
import {
  admitSteer,
  admitTurn,
  appendRunEvents,
  cancelRun,
  claimDispatchIntents,
  claimRun,
  completeDispatchIntent,
  createRuns,
  finishCommand,
  finishRun,
  heartbeat,
  requestApproval,
  sweepLostRunnersOnce,
  withRunnerRetentionFence,
} from '@runplane/runs';
import {
  claimSubmissions,
  failExhaustedSubmissionsOnce,
  releaseSubmission,
  renewSubmissions,
  requeueSubmission,
  settleSubmissions,
  startQueuedTurnsOnce,
} from '@runplane/queue';
import { acceptSubmission, endSubmission, refreshSessionStorage, renameSession, resolveApproval } from '@runplane/sessions';
import { aClaimedTurn, aTurn, endLease, message, newTurn, TENANT } from '@runplane/runs/testing';
import { DOCUMENTED_REFUSALS } from '../support/refusals';
import { meetAnyhow, useRaces } from '../support/races';

// Every operation against every other, each once as the one that has done its work and not yet committed, and once as the one that comes
// beside it. Whoever waits goes on after the commit; both end with a value or a documented refusal; no deadlock (useRaces), and every
// invariant holds afterwards. What the winner's effect is for each pair, the other specs of this folder say.

const t = useRaces();
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;

/** A turn in its session, as both sides of a race see it. */
interface World {
  readonly sessionId: string;
  readonly runId: string;
  readonly commandId: string;
  readonly epoch: number;
  /** A dispatcher's claim of the turn's intent; only in the state `dispatching`. */
  readonly claim?: Parameters<typeof completeDispatchIntent>[1];
  /** Of the session's oldest submission; only in the state `queued`. */
  readonly submission?: { readonly operationId: string; readonly epoch: number };
}

let keys = 0;
const newKey = () => `pair-${(keys += 1)}`;

const STATES = {
  /** Claimed, with a live lease. */
  claimed: async (): Promise<World> => worldOf(await aClaimedTurn(t.db)),
  /** Claimed, and the lease has ended. */
  stale: async (): Promise<World> => {
    const turn = await aClaimedTurn(t.db);
    await endLease(t.db, turn.run.id);
    return worldOf(turn);
  },
  /** Not claimed; a dispatcher is launching its runner. */
  dispatching: async (): Promise<World> => {
    const turn = await aTurn(t.db, undefined, { dispatch: {} });
    // On a slow machine claims that worlds before this one have left end, and are due again before it: they are taken first.
    let claimed;
    let intent;
    do {
      claimed = await claimDispatchIntents(t.db, { owner: 'd1', limit: 100 });
      intent = claimed.find(({ runId }) => runId === turn.run.id);
    } while (intent === undefined && claimed.length > 0);
    if (intent === undefined) throw new Error('the intent was not due');
    const { runId, commandId, id: intentId, epoch, runnerJobId } = intent;
    return { ...worldOf({ ...turn, epoch: 1 }), claim: { tenantId, runId, commandId, intentId, epoch, runnerJobId, owner: 'd1' } };
  },
  /** Claimed, and a submission is worked on beside it, with a turn behind that. What worlds before this one have left is out of reach. */
  queued: async (): Promise<World> => {
    const world = worldOf(await aClaimedTurn(t.db));
    const { sessionId } = world;
    await t.db.pool.query(`UPDATE runplane.submission_heads SET ready_at = ready_at + interval '1 day'`);
    await acceptSubmission(t.db, { tenantId, sessionId, operationId: 'held', submission: { kind: 'work' } });
    const [held] = await claimSubmissions(t.db, { tenantId, owner: 'w', kind: 'work' });
    if (held === undefined) throw new Error('the submission was not claimed');
    await acceptSubmission(t.db, {
      tenantId,
      sessionId,
      operationId: newKey(),
      submission: { kind: 'turn', payload: newTurn() as unknown as JsonObject },
    });
    return { ...world, submission: { operationId: held.operationId, epoch: held.epoch } };
  },
};
type State = keyof typeof STATES;

function worldOf({ run, command, epoch }: Awaited<ReturnType<typeof aClaimedTurn>>): World {
  return { sessionId: run.sessionId ?? '', runId: run.id, commandId: command.id, epoch };
}

const keyOf = ({ runId }: World) => ({ tenantId, runId });

interface Side {
  readonly states: readonly State[];
  /** What has to be there for it. */
  readonly prepare?: (world: World) => Promise<void>;
  /** Absent where the operation is transactions of its own around an act outside: then it only comes beside. */
  readonly call?: (tx: Tx, world: World) => Promise<unknown>;
  /** Where the operation has a form of its own outside a transaction. */
  readonly alone?: (world: World) => Promise<unknown>;
}

const SIDES: Record<string, Side> = {
  admit: {
    states: ['stale', 'claimed'],
    call: (tx, { sessionId }) => admitTurn(tx, { tenantId, sessionId, turn: newTurn(), idempotencyKey: newKey() }),
  },
  steer: {
    states: ['claimed', 'dispatching'],
    call: (tx, { sessionId }) => admitSteer(tx, { tenantId, sessionId, steer: { payload: { text: 'left' } }, idempotencyKey: newKey() }),
  },
  interrupt: {
    states: ['claimed', 'stale'],
    call: (tx, { sessionId }) =>
      admitTurn(tx, { tenantId, sessionId, turn: { ...newTurn('now'), busyPolicy: 'interrupt' as const }, idempotencyKey: newKey() }),
  },
  claim: {
    states: ['dispatching', 'stale'],
    call: (tx, world) => claimRun(tx, { ...keyOf(world), runnerId: 'r2' }),
    alone: (world) => claimRun(t.db, { ...keyOf(world), runnerId: 'r3' }),
  },
  heartbeat: {
    states: ['claimed', 'stale'],
    call: (tx, world) => heartbeat(tx, { ...keyOf(world), epoch: world.epoch }),
    alone: (world) => heartbeat(t.db, { ...keyOf(world), epoch: world.epoch }),
  },
  append: {
    states: ['claimed', 'stale'],
    call: (tx, world) => appendRunEvents(tx, { ...keyOf(world), epoch: world.epoch, events: [message('x')] }),
    alone: (world) => appendRunEvents(t.db, { ...keyOf(world), epoch: world.epoch, events: [message('y')] }),
  },
  'finish command': {
    states: ['claimed', 'stale'],
    call: (tx, world) => finishCommand(tx, { ...keyOf(world), commandId: world.commandId, epoch: world.epoch, outcome: completed }),
  },
  'finish run': {
    states: ['claimed', 'stale'],
    call: (tx, world) => finishRun(tx, { ...keyOf(world), epoch: world.epoch, outcome: completed }),
  },
  cancel: {
    states: ['claimed', 'stale', 'dispatching'],
    call: (tx, world) => cancelRun(tx, { ...keyOf(world), reason: 'enough' }),
  },
  dispatch: {
    states: ['dispatching'],
    call: async (tx, { claim }) =>
      claim && completeDispatchIntent(tx, claim, { outcome: 'created', job: { launcher: 'test', jobName: 'j', result: {} } }),
  },
  storage: {
    states: ['claimed', 'stale', 'dispatching'],
    call: (tx, { sessionId }) => refreshSessionStorage(tx, { tenantId, sessionId, storage: { kind: 'folder', name: newKey() } }),
    alone: ({ sessionId }) => inTransaction(t.db, (tx) => renameSession(tx, { tenantId, sessionId, title: newKey() })),
  },
  retention: {
    states: ['stale', 'dispatching', 'claimed'],
    alone: async (world) => {
      const fence = { ...keyOf(world), commandId: world.commandId, terminalizeStalePending: true, reason: 'too old' };
      return withRunnerRetentionFence(t.db, fence, () => Promise.resolve());
    },
  },
  ask: {
    states: ['claimed', 'stale'],
    call: (tx, world) => requestApproval(tx, { ...keyOf(world), epoch: world.epoch, approvalId: newKey(), toolName: 'rm', arguments: {} }),
  },
  decide: {
    states: ['claimed', 'stale'],
    prepare: async (world) => {
      await createRuns(t.db).requestApproval({ ...keyOf(world), epoch: world.epoch, approvalId: 'a', toolName: 'rm', arguments: {} });
    },
    call: (tx, { sessionId }) =>
      resolveApproval(tx, { tenantId, sessionId, approvalId: 'a', resolution: 'approved', actor: { type: 'user', id: newKey() } }),
  },
  takeover: {
    states: ['stale'],
    call: (tx, { sessionId }) => admitTurn(tx, { tenantId, sessionId, turn: newTurn('again'), idempotencyKey: newKey() }),
    alone: () => sweepLostRunnersOnce(t.db),
  },
};

/** Calls on the queue of the session, each in the state `queued`. */
const held = ({ sessionId, submission }: World) => ({ tenantId, sessionId, operationId: '', epoch: 0, ...submission });
const ofQueue = ['queued'] as const;
const QUEUE_SIDES: Record<string, Side> = {
  accept: {
    states: ofQueue,
    call: (tx, { sessionId }) => acceptSubmission(tx, { tenantId, sessionId, operationId: newKey(), submission: { kind: 'work' } }),
  },
  'end of a submission': {
    states: ofQueue,
    call: (tx, world) => endSubmission(tx, { ...held(world), end: { state: 'completed', claimEpoch: held(world).epoch } }),
    alone: (world) => {
      const { sessionId, operationId, epoch } = held(world);
      const settlement = { operationId, epoch, outcome: 'failed' as const };
      return settleSubmissions(t.db, { tenantId, settlements: [sessionId, 'none'].map((each) => ({ ...settlement, sessionId: each })) });
    },
  },
  'renewal, or another claim': {
    states: ofQueue,
    call: (tx, world) => renewSubmissions(tx, { tenantId, claims: [without(held(world))] }),
    alone: () => claimSubmissions(t.db, { tenantId, owner: 'other', limit: 5 }),
  },
  release: {
    states: ofQueue,
    call: (tx, world) => releaseSubmission(tx, { ...held(world), error: 'broken' }),
  },
  'requeue, or the end of all tries': {
    states: ofQueue,
    prepare: async ({ sessionId }) => {
      const again = { tenantId, sessionId, operationId: 'again' };
      await acceptSubmission(t.db, { ...again, submission: { kind: 'work' } });
      await endSubmission(t.db, { ...again, end: { state: 'failed' } });
      const past = `expires_at = CASE WHEN expires_at IS NOT NULL THEN runplane.app_now() END, ready_at = runplane.app_now()`;
      await t.db.pool.query(`UPDATE runplane.submission_heads SET attempts = 10, ${past} WHERE session_id = $1`, [sessionId]);
    },
    call: (tx, { sessionId }) => requeueSubmission(tx, { tenantId, sessionId, operationId: 'again' }),
    alone: () => failExhaustedSubmissionsOnce(t.db),
  },
  'enqueued turn, or its start': {
    states: ofQueue,
    call: (tx, { sessionId }) =>
      admitTurn(tx, { tenantId, sessionId, turn: { ...newTurn(), busyPolicy: 'enqueue' }, idempotencyKey: newKey() }),
    alone: () => startQueuedTurnsOnce(t.db, { owner: newKey() }),
  },
};
const without = ({ sessionId, operationId, epoch }: ReturnType<typeof held>) => ({ sessionId, operationId, epoch });

const ALL_SIDES: Record<string, Side> = { ...SIDES, ...QUEUE_SIDES };
const names = Object.keys(SIDES);
const PAIRS = names.flatMap((first, at) => names.slice(at).map((second) => [first, second] as const)).filter(([a, b]) => SIDES[a]?.call ?? SIDES[b]?.call); // prettier-ignore
/** Beside each other, and beside what ends a turn or takes the session's head. */
const BESIDE_QUEUE = ['finish run', 'decide'];
const queueNames = Object.keys(QUEUE_SIDES);
const QUEUE_PAIRS = queueNames.map(
  (first, at) => [first, [...queueNames.slice(at), ...(first.includes('end') ? BESIDE_QUEUE : [])]] as const,
);

test.each(PAIRS)('%s and %s meet without a deadlock, in either order, and leave every invariant whole', async (first, second) => {
  expect(await meetInBothOrders(first, second)).toBeGreaterThan(0);
});

test.each(QUEUE_PAIRS)(
  '%s meets the other calls on a queue without a deadlock, in either order, and leaves every invariant whole',
  async (first, seconds) => {
    for (const second of seconds) expect(await meetInBothOrders(first, second)).toBeGreaterThan(0);
  },
);

/** How often they met. */
async function meetInBothOrders(first: string, second: string): Promise<number> {
  let met = 0;
  const orders = first === second ? [[first, second] as const] : [[first, second] as const, [second, first] as const];
  for (const [a, b] of orders) {
    const [sideA, sideB] = [ALL_SIDES[a], ALL_SIDES[b]];
    if (sideA === undefined || sideB === undefined) throw new Error('unknown side');
    const { call } = sideA;
    if (call === undefined) continue;
    const shared = sideA.states.filter((state) => sideB.states.includes(state));
    const either = new Set([...sideA.states, ...sideB.states]);
    for (const state of shared.length > 0 ? shared : either.has('queued') ? ofQueue : either) {
      const world = await STATES[state]();
      for (const { prepare } of new Set([sideA, sideB])) if (state !== 'dispatching') await prepare?.(world);
      const beside = sideB.alone ?? ((w: World) => inTransaction(t.db, async (tx) => sideB.call?.(tx, w)));
      const meeting = await meetAnyhow(
        t.db,
        (tx) => call(tx, world),
        () => beside(world),
      );
      if (meeting === undefined) continue; // the first was refused in that state
      met += 1;
      const { other } = meeting;
      if ('code' in other && !DOCUMENTED_REFUSALS.has(other.code)) throw new Error(`${a} beside ${b}, ${state}: refused as ${other.code}`);
    }
  }
  return met;
}
