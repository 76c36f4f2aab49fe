import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { claimDispatchIntents, completeDispatchIntent, retryDispatchIntent, terminalizeDispatchIntent } from './dispatch-intents';
import { getCommand, getDispatchIntent, getRun } from './read-runs';
import { aTurn, makeTenants, story, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db));
const tenantId = TENANT;

async function aClaim(owner = 'd1') {
  const turn = await aTurn(t.db, undefined, { dispatch: {} });
  const claimed = await claimDispatchIntents(t.db, { owner, limit: 100 });
  const intent = claimed.find(({ commandId }) => commandId === turn.command.id);
  if (intent === undefined) throw new Error('the intent was not due');
  return { ...turn, claim: { ...intent, intentId: intent.id, owner } };
}
const intentOf = ({ command }: { command: { id: string } }) => getDispatchIntent(t.db, { tenantId, commandId: command.id });

test('a due intent is claimed once, under a lease, and its attempt is counted', async () => {
  const first = await aClaim();
  expect(first.claim).toMatchObject({ state: 'dispatching', owner: 'd1', attempts: 1 });
  expect((await claimDispatchIntents(t.db, { owner: 'd2', limit: 100 })).map(({ id }) => id)).not.toContain(first.claim.id);
});

test('a launched intent is settled with its job, and a repeat of the settle is refused', async () => {
  const turn = await aClaim();
  const completion = { outcome: 'created' as const, job: { launcher: 'process', jobName: '4711', result: { pid: 4711 } } };
  const settle = () => inTransaction(t.db, (tx) => completeDispatchIntent(tx, turn.claim, completion));
  await settle();
  expect(await intentOf(turn)).toMatchObject({
    state: 'dispatched',
    dispatchOutcome: 'created',
    actualRunnerJobId: turn.claim.runnerJobId,
  });
  expect(await story(t.db, turn.run.id)).toContain('runner-dispatch-completed');
  await expect(settle()).rejects.toMatchObject({ code: 'stale_dispatch_claim' });
});

test('an intent that could not be launched comes again after a back-off, with its redacted error', async () => {
  const turn = await aClaim();
  await inTransaction(t.db, (tx) => retryDispatchIntent(tx, turn.claim, { error: 'no room, token=abcdef0123456789', delayMs: 60_000 }));
  const intent = await intentOf(turn);
  expect(intent).toMatchObject({ state: 'retry', attempts: 1, lastError: expect.stringContaining('no room') });
  expect(intent?.lastError).not.toContain('abcdef0123456789');
  expect(await claimDispatchIntents(t.db, { owner: 'd2', limit: 100 })).toEqual([]);
});

test('an intent that failed for good ends its run whole: commands, claim, session', async () => {
  const turn = await aClaim();
  await inTransaction(t.db, (tx) =>
    terminalizeDispatchIntent(tx, turn.claim, { failureKind: 'infra-failed', message: 'no image', attempts: 1 }),
  );
  expect(await intentOf(turn)).toMatchObject({ state: 'failed', lastError: 'no image' });
  expect(await getRun(t.db, { tenantId, runId: turn.run.id })).toMatchObject({
    status: 'failed',
    failure: { kind: 'infra-failed' },
    claimedBy: null,
  });
  expect(await getCommand(t.db, { tenantId, commandId: turn.command.id })).toMatchObject({ state: 'failed' });
  expect((await story(t.db, turn.run.id)).slice(-3)).toEqual(['runner-dispatch-failed', 'command-terminal', 'terminal_status']);
});
