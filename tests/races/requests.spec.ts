import type { Approval } from '@runplane/contracts';
import { inTransaction, type Db, type Tx } from '@runplane/database';
import { waitUntilBlocked } from '@runplane/database/testing';
import { cancelRun, claimRun, createRuns, finishRun, requestApproval, requestInput } from '@runplane/runs';
import { aClaimedTurn, endLease, TENANT } from '@runplane/runs/testing';
import {
  appendSessionEvents,
  cancelOpenRequests,
  lockHead,
  expireRequestsOnce,
  getApproval,
  getInputRequest,
  resolveApproval,
  resolveInput,
} from '@runplane/sessions';
import { ending, hold, meet, openDbAhead, useRaces } from '../support/races';

// What is asked of people ends in exactly one way, whoever comes first: a decision, another decision, the end of the run, its time.

let later: Db;
afterAll(() => later.close()); // before the end of useRaces, which waits until no connection of a race is left
const t = useRaces();
const tenantId = TENANT;
const ann = { type: 'user', id: 'ann' } as const;
const bob = { type: 'user', id: 'bob' } as const;
const completed = { terminalStatus: 'completed' } as const;

beforeAll(async () => {
  later = await openDbAhead(t.url, 3_600_000);
});

/** A claimed turn whose runner has asked for an approval, and a question. */
async function asked() {
  const { run, epoch } = await aClaimedTurn(t.db);
  const runs = createRuns(t.db);
  const of = { tenantId, runId: run.id, epoch };
  const { approval } = await runs.requestApproval({ ...of, approvalId: 'a', toolName: 'rm', arguments: ['x'] });
  await runs.requestInput({ ...of, requestId: 'q', prompt: 'why?' });
  const { sessionId } = approval;
  return { of, approval: { tenantId, sessionId, approvalId: 'a' }, question: { tenantId, sessionId, requestId: 'q' } };
}
type Asked = Awaited<ReturnType<typeof asked>>;

const approve = (tx: Tx, { approval }: Asked, actor: typeof ann | typeof bob = ann) =>
  resolveApproval(tx, { ...approval, resolution: 'approved', actor });
const cancel = (tx: Tx, { of: { runId } }: Asked) => cancelRun(tx, { tenantId, runId, immediate: true });
const alone = <T>(work: (tx: Tx) => Promise<T>): Promise<T> => inTransaction(t.db, work);
const outcomes = async (world: Asked): Promise<(string | null)[]> => [
  (await getApproval(t.db, world.approval)).outcome,
  (await getInputRequest(t.db, world.question)).outcome,
];
const told = async ({ approval }: Asked): Promise<string[]> => {
  const { rows } = await t.db.pool.query(
    `SELECT coalesce(data ->> 'resolution', data ->> 'outcome') AS end FROM runplane.session_events WHERE session_id = $1 AND type LIKE '%/resolved' ORDER BY sequence`,
    [approval.sessionId],
  );
  return rows.map((row: { end: string }) => row.end);
};
const notPending = (state: Approval['outcome']) => ({ code: 'approval_not_pending', data: expect.objectContaining({ state }) as object });

test('a decision that is under way keeps a second approver waiting, who is told what it was; a repeat of it is answered', async () => {
  const world = await asked();

  const [, second] = await meet(t.db, (tx) => approve(tx, world), () => alone((tx) => approve(tx, world, bob))); // prettier-ignore
  expect(second).toEqual(notPending('approved'));
  expect(await alone((tx) => approve(tx, world))).toMatchObject({ replayed: true });

  const twins = await asked();
  const [, twin] = await meet(t.db, (tx) => approve(tx, twins), () => alone((tx) => approve(tx, twins))); // prettier-ignore
  expect(twin).toMatchObject({ value: { replayed: true, approval: { revision: 1 } } });
  expect(await told(twins)).toEqual(['approved']);
});

test('an approval that comes before the cancel of its run stands; one that comes behind is told so', async () => {
  const first = await asked();
  await meet(
    t.db,
    (tx) => approve(tx, first),
    () => alone((tx) => cancel(tx, first)),
  );
  expect(await outcomes(first)).toEqual(['approved', 'cancelled']);

  const late = await asked();
  const [, decision] = await meet(
    t.db,
    (tx) => cancel(tx, late),
    () => alone((tx) => approve(tx, late)),
  );
  expect(decision).toEqual(notPending('cancelled'));
  expect(await told(late)).toEqual(['cancelled', 'cancelled']);
});

test('an approval beats the sweeper, or loses to it, and never both', async () => {
  const first = await asked();
  const [, swept] = await meet(t.db, (tx) => approve(tx, first), () => expireRequestsOnce(later)); // prettier-ignore
  expect(swept).toEqual({ value: expect.objectContaining({ failed: 0 }) as object });
  expect(await outcomes(first)).toEqual(['approved', 'expired']);

  const late = await asked();
  await t.db.pool.query(`UPDATE runplane.approvals SET expires_at = runplane.app_now() WHERE session_id = $1`, [late.approval.sessionId]);
  const [, decision] = await meet(
    t.db,
    (tx) => cancelOpenRequests(tx, { tenantId, sessionId: late.approval.sessionId, due: true, reason: 'time' }),
    () => alone((tx) => approve(tx, late)),
  );
  expect(decision).toEqual(notPending('expired'));
});

test('a decision that waited until its time was over is refused, by the clock behind the lock', async () => {
  const world = await asked();

  const [, decision] = await meet(
    t.db,
    (tx) => resolveInput(tx, { ...world.question, outcome: 'declined', actor: ann }),
    async () => inTransaction(later, (tx) => approve(tx, world)),
  );

  expect(decision).toEqual({ code: 'approval_expired', data: expect.anything() as object });
  expect(await outcomes(world)).toEqual(['pending', 'declined']);
});

test('a resolution that is appended waits for the log before its time is judged', async () => {
  const world = await asked();
  const { sessionId } = world.approval;
  const held = await hold(t.db, (tx) => lockHead(tx, world.approval));
  const events = [{ type: 'approval/resolved', data: { approval_id: 'a', resolution: 'approved' } }];
  const decision = ending(appendSessionEvents(t.db, { tenantId, sessionId, events }));
  await waitUntilBlocked(t.db, 1);
  await t.db.pool.query('UPDATE runplane.approvals SET expires_at = runplane.app_now() WHERE session_id = $1', [sessionId]);
  await held.commit();

  expect(await decision).toMatchObject({ code: 'approval_expired' });
});

test('a request that comes before the end of its run ends with it; one that comes behind is refused', async () => {
  const asks: ((tx: Tx, world: Asked) => Promise<object>)[] = [
    (tx, { of }) => requestApproval(tx, { ...of, approvalId: 'b', toolName: 'rm', arguments: {} }),
    (tx, { of }) => requestInput(tx, { ...of, requestId: 'b', prompt: 'and?' }),
  ];
  for (const ask of asks) {
    const first = await asked();
    const [, ended] = await meet(t.db, (tx) => ask(tx, first), () => alone((tx) => finishRun(tx, { ...first.of, outcome: completed }))); // prettier-ignore
    expect(ended).toMatchObject({ value: { status: 'completed' } });
    expect(await told(first)).toEqual(['cancelled', 'cancelled', 'cancelled']);

    const late = await asked();
    const [, refused] = await meet(t.db, (tx) => finishRun(tx, { ...late.of, outcome: completed }), () => alone((tx) => ask(tx, late))); // prettier-ignore
    expect(refused).toMatchObject({ code: 'run_closed' });
    expect(await told(late)).toEqual(['cancelled', 'cancelled']);
  }
});

test('a runner that was replaced asks nobody, also when it came to wait before', async () => {
  const world = await asked();
  await endLease(t.db, world.of.runId);

  const [, refused] = await meet(
    t.db,
    (tx) => claimRun(tx, { tenantId, runId: world.of.runId, runnerId: 'next' }),
    () => alone((tx) => requestApproval(tx, { ...world.of, approvalId: 'b', toolName: 'rm', arguments: {} })),
  );

  expect(refused).toMatchObject({ code: 'lease_lost' });
  expect(await outcomes(world)).toEqual(['pending', null]);
});

test('twins of one request are one request', async () => {
  const { of } = await asked();
  const again = { ...of, requestId: 'twin', prompt: 'when?' };

  const [, second] = await meet(t.db, (tx) => requestInput(tx, again), () => alone((tx) => requestInput(tx, again))); // prettier-ignore

  expect(second).toMatchObject({ value: { replayed: true, request: { status: 'pending' } } });
});
