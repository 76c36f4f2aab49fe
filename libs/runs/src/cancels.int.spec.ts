import type { Cancel, RunEvent } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { getSession } from '@runplane/sessions';
import {
  acknowledgeCancel,
  admitTurn,
  createRuns,
  getCommand,
  getRun,
  listCancelRequests,
  listRunEvents,
  listSessionCancelRequests,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
} from './index';
import { aClaimedTurn, aRun, aTurn, endLease, makeTenants, newTurn, passDeadlines, story, TENANT } from './testing';

const store = useDatabase();
beforeAll(() => makeTenants(store.db, 'other'));
const tenantId = TENANT;
const runs = () => createRuns(store.db);
let sessions = 0;

/** The stage that an event tells, if it tells one. */
const stageOf = ({ payload: { phase } }: RunEvent) =>
  typeof phase === 'string' && phase.startsWith('cancel-') ? phase.slice('cancel-'.length) : undefined;

/** What the runner and time do to a cancel that was asked for. */
const words = ['delivered', 'aborting'] as const;
type Situation = 'unclaimed' | 'live' | 'live, ignored' | 'live, then lost' | 'live, silent about it' | 'dead' | 'at once' | 'taken over';
const STAGES: Record<Situation, string[]> = {
  unclaimed: ['accepted', 'persisted', 'terminalized'],
  live: ['accepted', 'persisted', 'delivered', 'aborting', 'terminalized'],
  'live, ignored': ['accepted', 'persisted', 'delivered', 'fenced', 'terminalized'],
  'live, then lost': ['accepted', 'persisted', 'delivered', 'fenced', 'terminalized'],
  'live, silent about it': ['accepted', 'persisted', 'delivered', 'aborting', 'terminalized'],
  dead: ['accepted', 'persisted', 'fenced', 'terminalized'],
  'at once': ['accepted', 'persisted', 'fenced', 'terminalized'],
  'taken over': ['accepted', 'persisted', 'fenced', 'terminalized'],
};
const TARGETS = ['run', 'command', 'session'] as const;
type Target = (typeof TARGETS)[number];
const situationsOf = (target: Target) =>
  (Object.keys(STAGES) as Situation[]).filter((each) => each !== 'taken over' || target !== 'command');

describe('each stage of a cancel is an event of its own, at its moment', () => {
  test.each(TARGETS)('of a %s, in every situation', async (target) => {
    // One after another: a sweep of one story would end the run whose runner is lost in another before its cancel.
    for (const situation of situationsOf(target)) await goThrough(target, situation);
  });

  async function goThrough(target: Target, situation: Situation): Promise<void> {
    sessions += 1;
    const sessionId = `stages ${sessions}`;
    const turn = situation === 'unclaimed' ? { ...(await aTurn(store.db, sessionId)), epoch: 0 } : await aClaimedTurn(store.db, sessionId);
    const { run, command, epoch } = turn;
    const key = { tenantId, runId: run.id };
    const commandId = target === 'command' ? command.id : undefined;
    if (situation === 'dead') await endLease(store.db, run.id);

    const cancel: Cancel = { reason: 'enough', graceMs: 5_000, immediate: situation === 'at once' };
    const asked = { tenantId, requestedBy: 'key_1', ...cancel };
    if (target === 'run') await runs().cancelRun({ ...asked, runId: run.id });
    if (target === 'command') await runs().cancelCommand({ ...asked, commandId: command.id });
    if (target === 'session') await runs().cancelSession({ ...asked, sessionId });

    const says = (stage: (typeof words)[number]) =>
      inTransaction(store.db, (tx) => acknowledgeCancel(tx, { ...key, epoch, stage, commandId }));
    const outcome = { terminalStatus: 'cancelled' } as const;
    const finish = () =>
      commandId === undefined ? runs().finishRun({ ...key, epoch, outcome }) : runs().finishCommand({ ...key, epoch, outcome, commandId });
    if (situation === 'live') for (const word of words) await says(word);
    if (situation === 'live, silent about it') await says('aborting');
    if (situation === 'live, ignored' || situation === 'live, then lost') await says('delivered');
    if (situation === 'live' || situation === 'live, silent about it') await finish();
    if (situation === 'live, ignored') {
      await passDeadlines(store.db, run.id);
      await sweepCancelDeadlinesOnce(store.db);
    }
    if (situation === 'live, then lost') {
      await endLease(store.db, run.id);
      await sweepLostRunnersOnce(store.db);
    }
    if (situation === 'taken over') {
      await endLease(store.db, run.id);
      await inTransaction(store.db, (tx) => admitTurn(tx, { tenantId, sessionId, turn: newTurn('next'), idempotencyKey: 'next' }));
    }

    const { events } = await listRunEvents(store.db, { ...key, afterSeq: 0, limit: 100 });
    const stages = events.filter((event) => stageOf(event) !== undefined);
    expect([situation, ...stages.map(stageOf)]).toEqual([situation, ...STAGES[situation]]);
    const [request] = (await listCancelRequests(store.db, key)).requests;
    expect(request).toMatchObject({ targetKind: target, stage: 'terminalized', requestedBy: 'key_1', sessionId, runId: run.id, epoch: 1 });
    expectStageFields(stages, { request: request?.id, target, targetId: { run: run.id, command: command.id, session: sessionId }[target] });
    const ended = events.find(({ payload }) => payload['phase'] === 'command-terminal');
    expect(ended?.payload).toMatchObject({
      state: 'cancelled',
      failureKind: 'cancelled',
      message: 'enough',
      cancelRequestId: request?.id,
      cancelEpoch: 1,
    });
    expect(ended?.seq).toBeLessThan(stages.at(-1)?.seq ?? 0);
    expect(await getCommand(store.db, { tenantId, commandId: command.id })).toMatchObject({ cancel: { requestId: request?.id, epoch: 1 } });
  }

  function expectStageFields(
    stages: RunEvent[],
    { request, target, targetId }: { request: string | undefined; target: string; targetId: string | undefined },
  ) {
    for (const event of stages) {
      const { payload } = event;
      expect(payload).toMatchObject({ cancelRequestId: request, cancelEpoch: 1, targetKind: target, targetId, reason: 'enough' });
      const stage = stageOf(event) ?? '';
      if (['delivered', 'aborting', 'fenced'].includes(stage)) {
        expect(payload).toMatchObject({ claimedBy: expect.any(String), ...(target === 'command' ? { commandState: 'pending' } : {}) });
      }
      if (stage === 'fenced') expect(payload).toMatchObject({ claimEpoch: 1, leaseExpiresAt: expect.stringMatching(/Z$/) });
    }
    const waited = stages.length > 4;
    if (waited) expect(stages[1]?.payload).toMatchObject({ graceMs: 5_000 });
  }
});

describe('a cancel of a session', () => {
  test('in which nothing runs changes nothing, as often as it is repeated; a session that is not there is not found', async () => {
    await aRun(store.db, { sessionRef: { sessionId: 'quiet' } });
    const nothing = { sessionId: 'quiet', run: null, request: null, changed: false };
    for (let time = 1; time <= 2; time += 1) expect(await runs().cancelSession({ tenantId, sessionId: 'quiet' })).toEqual(nothing);
    await expect(runs().cancelSession({ tenantId, sessionId: 'nowhere' })).rejects.toMatchObject({ code: 'session_not_found' });
    await expect(runs().cancelSession({ tenantId: 'other', sessionId: 'quiet' })).rejects.toMatchObject({ code: 'session_not_found' });
    await expect(listSessionCancelRequests(store.db, { tenantId: 'other', sessionId: 'quiet' })).rejects.toMatchObject({
      code: 'session_not_found',
    });
  });

  test('is repeated like one of the run: the request stands, and `immediate` ends it', async () => {
    const { run } = await aClaimedTurn(store.db, 'stopped twice');
    const first = await runs().cancelSession({ tenantId, sessionId: 'stopped twice' });
    expect(first).toMatchObject({ changed: true, run: { id: run.id, status: 'cancelling' }, request: { stage: 'persisted' } });
    const again = await runs().cancelRun({ tenantId, runId: run.id, graceMs: 0 });
    expect(again).toMatchObject({ changed: false, request: { id: first.request?.id } });
    expect(again.run.cancel).toEqual(first.run?.cancel); // the first deadline stands
    expect(await runs().cancelSession({ tenantId, sessionId: 'stopped twice', immediate: true })).toMatchObject({
      changed: true,
      run: { status: 'cancelled' },
      request: { id: first.request?.id, stage: 'terminalized' },
    });
    expect(await getSession(store.db, { tenantId, sessionId: 'stopped twice' })).toMatchObject({
      activeRunId: null,
      terminalStatus: 'cancelled',
    });
  });

  test('and everything else that was asked to stop in it is listed, newest first, page by page', async () => {
    const asked: string[] = [];
    for (let n = 1; n <= 3; n += 1) {
      const { command } = await aTurn(store.db, 'listed');
      const by =
        n === 2 ? runs().cancelCommand({ tenantId, commandId: command.id }) : runs().cancelSession({ tenantId, sessionId: 'listed' });
      asked.unshift((await by).request?.id ?? '');
    }
    const list = (cursor?: string) => listSessionCancelRequests(store.db, { tenantId, sessionId: 'listed', limit: 2, cursor });
    const first = await list();
    const second = await list(first.cursor ?? '');
    expect([...first.requests, ...second.requests].map(({ id }) => id)).toEqual(asked);
    expect(second.cursor).toBeNull();
    const foreign = listSessionCancelRequests(store.db, { tenantId, sessionId: 'quiet', cursor: first.cursor ?? '' });
    await expect(foreign).rejects.toMatchObject({ code: 'invalid_cursor' });
  });
});

describe('a cancel of a command', () => {
  test('counts on the one counter of its run', async () => {
    const { run } = await aClaimedTurn(store.db);
    const key = { tenantId, runId: run.id };
    const note = async () => (await runs().createCommand({ ...key, command: { type: 'note', payload: {} } })).command.id;
    const notes = [await note(), await note(), await note()];
    const epochOf = async (commandId = '') => (await runs().cancelCommand({ tenantId, commandId })).request?.epoch;
    expect([await epochOf(notes[0]), await epochOf(notes[1])]).toEqual([1, 2]);
    expect(await runs().cancelRun(key)).toMatchObject({ request: { epoch: 3 }, run: { cancel: { epoch: 3 } } });
    // In a run that is being cancelled a command has been asked already; at once means this command alone.
    const third = { tenantId, commandId: notes[2] ?? '' };
    expect(await runs().cancelCommand(third)).toMatchObject({ changed: false, request: { targetKind: 'run', epoch: 3 } });
    expect(await runs().cancelCommand({ ...third, immediate: true })).toMatchObject({
      changed: true,
      command: { state: 'cancelled' },
      request: { targetKind: 'command', epoch: 3 },
    });
    expect(await getRun(store.db, key)).toMatchObject({ status: 'cancelling', cancel: { epoch: 3 } });
    await runs().cancelRun({ ...key, immediate: true });
    expect(await getCommand(store.db, { tenantId, commandId: notes[0] ?? '' })).toMatchObject({ state: 'cancelled', cancel: { epoch: 1 } });
    const { requests } = await listCancelRequests(store.db, key);
    expect(requests.map(({ stage }) => stage)).toEqual(Array(4).fill('terminalized'));
  });

  test('of a steer closes that steer only', async () => {
    const { run, command } = await aClaimedTurn(store.db, 'steered');
    const steer = { type: 'steer', payload: { text: 'left' } };
    const { command: left } = await runs().createCommand({ tenantId, runId: run.id, command: steer, idempotencyKey: 'left' });
    expect(await runs().cancelCommand({ tenantId, commandId: left.id, immediate: true })).toMatchObject({
      command: { state: 'cancelled' },
    });
    expect(await getCommand(store.db, { tenantId, commandId: command.id })).toMatchObject({ state: 'pending', cancel: null });
    expect(await getSession(store.db, { tenantId, sessionId: 'steered' })).toMatchObject({ activeCommandId: command.id });
  });

  test('that was the last one of a dispatched run that nobody has claimed ends the run with it', async () => {
    const { run, command } = await aTurn(store.db, 'only one');
    expect(await runs().cancelCommand({ tenantId, commandId: command.id, reason: 'no need' })).toMatchObject({
      command: { state: 'cancelled' },
    });
    expect(await getRun(store.db, { tenantId, runId: run.id })).toMatchObject({
      status: 'cancelled',
      failure: { kind: 'cancelled', message: 'no need' },
    });
    expect((await story(store.db, run.id)).slice(-5)).toEqual([
      'cancel-accepted',
      'cancel-persisted',
      'command-terminal',
      'terminal_status',
      'cancel-terminalized',
    ]);
  });

  test.each([
    ['has another open command', { dispatch: {} }, true],
    ['waits for a runner of its own', { dispatch: null }, false],
  ])('leaves a run open that %s', async (_, turn, another) => {
    const { run, command } = await aTurn(store.db, undefined, turn);
    if (another) await runs().createCommand({ tenantId, runId: run.id, command: { type: 'note', payload: {} } });
    await runs().cancelCommand({ tenantId, commandId: command.id });
    expect(await getRun(store.db, { tenantId, runId: run.id })).toMatchObject({ status: 'pending' });
  });
});

test('a turn that waits for a runner of its own keeps the next one out for as long as a claim may take, then it is replaced', async () => {
  const { run } = await aTurn(store.db, 'waits', { dispatch: null });
  const next = () => runs().admitTurn({ tenantId, sessionId: 'waits', turn: newTurn('next'), idempotencyKey: 'next' });
  await expect(next()).rejects.toMatchObject({ code: 'session_busy', data: { runId: run.id, staleInMs: expect.any(Number) } });
  await store.db.pool.query(`UPDATE runplane.runs SET updated_at = updated_at - interval '6 minutes' WHERE id = $1`, [run.id]);
  await expect(next()).rejects.toMatchObject({ code: 'session_busy' }); // the turn itself is young
  await store.db.pool.query(`UPDATE runplane.commands SET updated_at = updated_at - interval '6 minutes' WHERE run_id = $1`, [run.id]);
  expect(await next()).toMatchObject({ disposition: 'created' });
  expect(await getRun(store.db, { tenantId, runId: run.id })).toMatchObject({ status: 'failed', failure: { kind: 'infra-failed' } });
});
