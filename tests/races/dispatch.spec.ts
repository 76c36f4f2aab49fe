import { inTransaction, type Tx } from '@runplane/database';
import { waitUntilBlocked } from '@runplane/database/testing';
import {
  cancelCommand,
  cancelRun,
  claimDispatchIntents,
  claimRun,
  completeDispatchIntent,
  createRuns,
  dispatchOnce,
  failExhaustedIntentsOnce,
  failUnclaimedJob,
  finishRun,
  getDispatchIntent,
  getRun,
  retryDispatchIntent,
  sweepLostRunnersOnce,
  terminalizeDispatchIntent,
} from '@runplane/runs';
import { aTurn, endLease, newRun, story, TENANT } from '@runplane/runs/testing';
import { ending, lockRow, meet, useRaces } from '../support/races';

const t = useRaces();
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const runs = () => createRuns(t.db);

/** A turn whose intent is claimed by a dispatcher; other due intents are put off first. */
async function aDispatchingTurn(sessionId?: string) {
  await t.db.pool.query(
    `UPDATE runplane.dispatch_intents SET ready_at = ready_at + interval '1 day' WHERE state IN ('pending', 'retry', 'dispatching')`,
  );
  const turn = await aTurn(t.db, sessionId);
  const [intent] = await claimDispatchIntents(t.db, { owner: 'd1', limit: 1 });
  if (intent === undefined) throw new Error('no intent was due');
  const { tenantId, runId, commandId, id: intentId, epoch, attempts, runnerJobId } = intent;
  return { ...turn, claim: { tenantId, runId, commandId, intentId, epoch, attempts, runnerJobId, owner: 'd1' } };
}

const endClaim = (intentId: string) =>
  t.db.pool.query(
    `UPDATE runplane.dispatch_intents SET expires_at = runplane.app_now() - interval '1 s', ready_at = runplane.app_now() - interval '1 s' WHERE id = $1`,
    [intentId],
  );

const job = { launcher: 'test', jobName: 'pid 1', result: {} };
type Claim = Awaited<ReturnType<typeof aDispatchingTurn>>['claim'];
const complete = (claim: Claim) => (tx: Tx) => completeDispatchIntent(tx, claim, { outcome: 'created', job });
const intentOf = (command: { id: string }) => getDispatchIntent(t.db, { tenantId: TENANT, commandId: command.id });

describe('two dispatchers', () => {
  test('do not wait for an intent that the other is claiming: they pass it over', async () => {
    const { intent } = await aTurn(t.db);
    const lock = await lockRow(t.url, 'dispatch_intents', `id = '${intent?.id}'`);
    const claimed = await claimDispatchIntents(t.db, { owner: 'd2', limit: 100 });
    await lock.release();
    expect(claimed.map(({ id }) => id)).not.toContain(intent?.id);
    expect((await claimDispatchIntents(t.db, { owner: 'd2', limit: 100 })).map(({ id }) => id)).toContain(intent?.id);
  });

  test('in a crowd claim each intent once', async () => {
    const turns = await Promise.all(Array.from({ length: 10 }, () => aTurn(t.db)));
    const claims = await Promise.all(Array.from({ length: 10 }, (_, i) => claimDispatchIntents(t.db, { owner: `crowd-${i}`, limit: 3 })));
    const claimed = claims.flat().map(({ id }) => id);
    expect(new Set(claimed).size).toBe(claimed.length);
    expect([...claimed].sort()).toEqual(turns.map(({ intent }) => intent?.id).sort());
  });

  test('the one whose claim has ended cannot settle behind the other', async () => {
    const { claim, command } = await aDispatchingTurn();
    await endClaim(claim.intentId);
    const [taken] = await claimDispatchIntents(t.db, { owner: 'd2', limit: 1 });
    expect(taken).toMatchObject({ id: claim.intentId, epoch: claim.epoch + 1, attempts: 2 });
    for (const settle of [complete(claim), (tx: Tx) => retryDispatchIntent(tx, claim, { error: 'x', delayMs: 1 })])
      expect(await ending(inTransaction(t.db, settle))).toMatchObject({ code: 'stale_dispatch_claim' });
    expect(await intentOf(command)).toMatchObject({ state: 'dispatching', owner: 'd2' });
  });

  test('under one name are told apart by their epochs: the frozen one cannot settle for its successor', async () => {
    const { claim, command } = await aDispatchingTurn();
    await endClaim(claim.intentId);
    const [taken] = await claimDispatchIntents(t.db, { owner: claim.owner, limit: 1 });
    expect(taken).toMatchObject({ id: claim.intentId, owner: claim.owner, epoch: claim.epoch + 1 });
    expect(await ending(inTransaction(t.db, complete(claim)))).toMatchObject({ code: 'stale_dispatch_claim' });
    expect(await intentOf(command)).toMatchObject({ state: 'dispatching' });
  });
});

describe('a settle of a dispatch', () => {
  test('behind a cancel of the run finds its claim gone', async () => {
    const { run, claim, command } = await aDispatchingTurn();
    const [, settled] = await meet(
      t.db,
      (tx) => cancelRun(tx, keyOf(run)),
      () => inTransaction(t.db, complete(claim)),
    );
    expect(settled).toMatchObject({ code: 'stale_dispatch_claim' });
    expect(await intentOf(command)).toMatchObject({ state: 'cancelled', owner: null });
    expect((await story(t.db, run.id)).at(-1)).toBe('cancel-terminalized');
  });

  test('behind a cancel of the command finds its claim gone', async () => {
    const { claim, command } = await aDispatchingTurn();
    const [, settled] = await meet(
      t.db,
      (tx) => cancelCommand(tx, { tenantId: TENANT, commandId: command.id }),
      () => inTransaction(t.db, complete(claim)),
    );
    expect(settled).toMatchObject({ code: 'stale_dispatch_claim' });
  });

  test('before a cancel of the run stands', async () => {
    const { run, claim, command } = await aDispatchingTurn();
    const [, cancel] = await meet(t.db, complete(claim), () => runs().cancelRun(keyOf(run)));
    expect(cancel).toMatchObject({ value: { run: { status: 'cancelled' } } });
    expect(await intentOf(command)).toMatchObject({ state: 'dispatched', dispatchOutcome: 'created' });
  });

  test('behind the end of a run that its runner was quick to bring is refused', async () => {
    const { run, claim } = await aDispatchingTurn();
    const { epoch } = await claimRun(t.db, { ...keyOf(run), runnerId: 'quick' });
    const [, settled] = await meet(
      t.db,
      (tx) => finishRun(tx, { ...keyOf(run), epoch, outcome: { terminalStatus: 'completed' } }),
      () => inTransaction(t.db, complete(claim)),
    );
    expect(settled).toMatchObject({ code: 'stale_dispatch_claim' });
    expect((await story(t.db, run.id)).at(-1)).toBe('terminal_status');
  });

  test('as failed for good, behind the claim of a runner from elsewhere, leaves the run to that runner', async () => {
    const { run, claim, command } = await aDispatchingTurn();
    const [, failed] = await meet(
      t.db,
      (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'r1' }),
      () =>
        inTransaction(t.db, (tx) =>
          terminalizeDispatchIntent(tx, claim, { failureKind: 'infra-failed', message: 'unknown profile', attempts: 1 }),
        ),
    );
    expect(failed).toEqual({ value: undefined });
    expect(await intentOf(command)).toMatchObject({ state: 'failed' });
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'claimed', claimedBy: 'r1' });
    expect((await story(t.db, run.id)).at(-1)).toBe('runner-dispatch-failed');
  });

  test('behind a requeue of its run is refused: the next intent is another dispatcher’s', async () => {
    await t.db.pool.query(
      `UPDATE runplane.dispatch_intents SET ready_at = ready_at + interval '1 day' WHERE state IN ('pending', 'retry', 'dispatching')`,
    );
    const { run, command } = await aTurn(t.db, undefined, { run: newRun({ onRunnerLost: 'requeue' }) });
    const [intent] = await claimDispatchIntents(t.db, { owner: 'd1', limit: 1 });
    await claimRun(t.db, { ...keyOf(run), runnerId: 'r1' });
    await endLease(t.db, run.id);

    const stop = await lockRow(t.url, 'commands', `id = '${command.id}'`);
    const sweep = sweepLostRunnersOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const settle = ending(
      inTransaction(
        t.db,
        complete({
          ...keyOf(run),
          commandId: command.id,
          intentId: intent?.id ?? '',
          epoch: 1,
          attempts: 1,
          runnerJobId: 'j',
          owner: 'd1',
        }),
      ),
    );
    await waitUntilBlocked(t.db, 2);
    await stop.release();

    expect(await sweep).toMatchObject({ changed: 1 });
    expect(await settle).toMatchObject({ code: 'stale_dispatch_claim' });
    expect(await intentOf(command)).toMatchObject({ state: 'pending', generation: 2 });
  });
});

test('the end of a launched job that meets a claim of its run leaves the run to its runner', async () => {
  const { run, claim } = await aDispatchingTurn();
  await inTransaction(t.db, complete(claim));
  const [, lost] = await meet(
    t.db,
    (tx) => claimRun(tx, { ...keyOf(run), runnerId: 'just in time' }),
    () => inTransaction(t.db, (tx) => failUnclaimedJob(tx, { ...keyOf(run), jobId: claim.runnerJobId, reason: 'gone' })),
  );
  expect(lost).toEqual({ value: { outcome: 'kept' } });
  expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'claimed' });
});

describe('an intent whose attempts are used up', () => {
  const exhaust = (intentId: string) =>
    t.db.pool.query(
      `UPDATE runplane.dispatch_intents SET attempts = 8, expires_at = runplane.app_now() - interval '1 s', ready_at = runplane.app_now() - interval '1 s' WHERE id = $1`,
      [intentId],
    );

  test('is ended once by two sweeps at once', async () => {
    const { run, claim } = await aDispatchingTurn('s-exhausted');
    await exhaust(claim.intentId);

    const stop = await lockRow(t.url, 'sessions', `session_id = 's-exhausted'`);
    const first = failExhaustedIntentsOnce(t.db);
    await waitUntilBlocked(t.db, 1);
    const second = failExhaustedIntentsOnce(t.db);
    await waitUntilBlocked(t.db, 2);
    await stop.release();

    expect((await first).changed + (await second).changed).toBe(1);
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'failed', failure: { kind: 'infra-failed' } });
    expect((await story(t.db, run.id)).filter((what) => what === 'runner-dispatch-failed')).toHaveLength(1);
  });

  test('is left alone when its run ends at that moment', async () => {
    const { run, claim, command } = await aDispatchingTurn();
    await exhaust(claim.intentId);
    const [, swept] = await meet(
      t.db,
      (tx) => cancelRun(tx, keyOf(run)),
      () => failExhaustedIntentsOnce(t.db),
    );
    expect(swept).toMatchObject({ value: { changed: 0 } });
    expect(await intentOf(command)).toMatchObject({ state: 'cancelled' });
  });
});

test('a launch that meets the cancel of its run is reported as stale, and the dispatcher goes on', async () => {
  await t.db.pool.query(
    `UPDATE runplane.dispatch_intents SET ready_at = ready_at + interval '1 day' WHERE state IN ('pending', 'retry', 'dispatching')`,
  );
  const { run } = await aTurn(t.db);
  const launcher = {
    kind: 'test',
    launch: async () => {
      await runs().cancelRun(keyOf(run));
      return { outcome: 'created' as const, jobName: 'pid 2', result: {} };
    },
  };
  expect(await dispatchOnce(t.db, { launcher, owner: 'd1' })).toEqual({ launched: 0, retried: 0, failed: 0, waiting: 0, stale: 1 });
});
