import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { appendRunEvents } from './append-run-events';
import { finishCommand } from './finish-command';
import { getCommand, getRun } from './read-runs';
import { resumeRetentionFences, withRunnerRetentionFence, type FencedRun } from './retention-fence';
import { heartbeat } from './heartbeat';
import { claimRun } from './claim-run';
import { aClaimedTurn, aTurn, endLease, makeTenants, message, story, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other'));
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const endHold = (runId: string) =>
  t.db.pool.query(`UPDATE runplane.reservations SET expires_at = runplane.app_now() WHERE kind = 'retention' AND key::json ->> 1 = $1`, [
    runId,
  ]);
const payloads = async (runId: string) =>
  (
    await t.db.pool.query<{ payload: Record<string, unknown> }>(`SELECT payload FROM runplane.run_events WHERE run_id = $1 ORDER BY seq`, [
      runId,
    ])
  ).rows.map(({ payload }) => payload);

test('a retention fence ends a stale run before it acts, tells the facts from before, and holds nothing while it acts', async () => {
  const { run, command } = await aTurn(t.db);
  let facts: FencedRun | undefined;
  const fence = { ...keyOf(run), commandId: command.id, terminalizeStalePending: true, reason: 'too old' };
  const done = await withRunnerRetentionFence(t.db, fence, async (fenced) => {
    facts = fenced;
    // The run can be read and written while the outside is asked; a second fence is told to wait.
    expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'failed', failure: { kind: 'infra-failed', message: 'too old' } });
    await expect(withRunnerRetentionFence(t.db, fence, () => Promise.resolve())).rejects.toMatchObject({ code: 'capacity_reached' });
    return 'removed';
  });
  expect(done).toBe('removed');
  expect(facts).toMatchObject({
    run: { status: 'pending' },
    command: { state: 'pending' },
    isTerminal: false,
    openCommands: 1,
    openIntents: 1,
    lastEventSeq: 3,
    terminalized: true,
    released: false,
    resumed: false,
  });
  expect((await story(t.db, run.id)).slice(3)).toEqual(['retention-terminalized', 'command-terminal', 'terminal_status']);
  for (const payload of (await payloads(run.id)).slice(3)) expect(payload).toMatchObject({ retentionFence: true });
  expect(await withRunnerRetentionFence(t.db, fence, (again) => Promise.resolve(again.terminalized))).toBe(false);
});

test('a retention fence leaves a run whose runner lives, and refuses what is not there', async () => {
  const { run, command, epoch } = await aClaimedTurn(t.db);
  const act = jest.fn(() => Promise.resolve());
  const fence = { ...keyOf(run), commandId: command.id, terminalizeStalePending: true, reason: 'too old' };
  await expect(withRunnerRetentionFence(t.db, fence, act)).rejects.toMatchObject({ code: 'run_claimed' });
  for (const [wrong, code] of [
    [{ commandId: 'none' }, 'command_not_of_run'],
    [{ runId: 'none' }, 'run_not_found'],
    [{ tenantId: 'other' }, 'run_not_found'],
    [{ reason: '' }, 'invalid_request'],
  ] as const)
    await expect(withRunnerRetentionFence(t.db, { ...fence, ...wrong }, act)).rejects.toMatchObject({ code });
  expect(act).not.toHaveBeenCalled();
  await appendRunEvents(t.db, { ...keyOf(run), epoch, events: [message('still here')] });

  await endLease(t.db, run.id);
  await withRunnerRetentionFence(t.db, fence, act);
  await expect(appendRunEvents(t.db, { ...keyOf(run), epoch, events: [message('late')] })).rejects.toMatchObject({ code: 'run_closed' });
});

test('a retention fence releases the claim of a run that has nothing open, and fences its runner', async () => {
  const { run, command, epoch } = await aClaimedTurn(t.db);
  const fence = { ...keyOf(run), commandId: command.id, releaseRunnerClaim: true, reason: 'done' };
  const released = () => withRunnerRetentionFence(t.db, fence, (fenced) => Promise.resolve(fenced.released));
  expect(await released()).toBe(false);
  await inTransaction(t.db, (tx) =>
    finishCommand(tx, { ...keyOf(run), commandId: command.id, epoch, outcome: { terminalStatus: 'completed' } }),
  );
  expect(await released()).toBe(true);
  expect(await getRun(t.db, keyOf(run))).toMatchObject({ status: 'pending', claimedBy: null, claimEpoch: epoch + 1 });
  await expect(heartbeat(t.db, { ...keyOf(run), epoch })).rejects.toMatchObject({ code: 'lease_lost' });
  expect(await claimRun(t.db, { ...keyOf(run), runnerId: 'next' })).toMatchObject({ epoch: epoch + 2 });
});

test('an act that failed, or died with its process, is resumed under the next epoch; the first cannot confirm behind it', async () => {
  const { run, command } = await aTurn(t.db);
  const fence = { ...keyOf(run), commandId: command.id, terminalizeStalePending: true, reason: 'too old' };
  await expect(withRunnerRetentionFence(t.db, fence, () => Promise.reject(new Error('no cluster')))).rejects.toThrow('no cluster');
  expect(await getCommand(t.db, { tenantId: TENANT, commandId: command.id })).toMatchObject({ state: 'failed' });
  const resumed: FencedRun[] = [];
  const resume = (limit?: number) =>
    resumeRetentionFences(
      t.db,
      (fenced) => {
        resumed.push(fenced);
        return Promise.resolve();
      },
      { limit },
    );
  expect(await resume()).toEqual({ changed: 0, failed: 0 }); // it may be under way yet
  await endHold(run.id);
  // What a removal has left for a later pass ended before, and is none of its business.
  await t.db.pool.query(
    `INSERT INTO runplane.reservations (kind, key, slot, tenant_id, owner, epoch, expires_at, data)
     SELECT 'retention', '["acme","removal"]', 1, 'acme', 'r', 1, runplane.app_now() - interval '1 hour', '{"act":"remove"}'`,
  );
  expect(await resume(1)).toEqual({ changed: 1, failed: 0 });
  expect(resumed).toMatchObject([{ run: { id: run.id, status: 'failed' }, command: { id: command.id }, isTerminal: true, resumed: true }]);
  expect(await resume()).toEqual({ changed: 0, failed: 0 });

  const frozen = withRunnerRetentionFence(t.db, fence, async () => {
    await endHold(run.id);
    expect(await resume()).toEqual({ changed: 1, failed: 0 });
  });
  await expect(frozen).rejects.toMatchObject({ code: 'reservation_lost' });
});
