import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { forkSession, getApproval, resolveApproval } from '@runplane/sessions';
import { waitForRunApproval, waitForRunInput } from './ask-people';
import { cancelRun } from './cancel-run';
import { finishCommand } from './finish-command';
import { createRuns } from './runs';
import { aClaimedRun, aClaimedTurn, makeTenants, story, TENANT } from './testing';

// What a runner may ask of people, and until when. The races: tests/races/requests.spec.ts.

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other'));
const call = { approvalId: 'a', toolName: 'rm', arguments: { path: 'x' } };
const question = { requestId: 'q', prompt: 'why?' };
const coded = (code: string, data: object = {}) => expect.objectContaining({ code, data: expect.objectContaining(data) as object });
const of = ({ run, epoch }: { run: { id: string }; epoch: number }) => ({ tenantId: TENANT, runId: run.id, epoch });
const runs = () => createRuns(t.db);

test('a runner’s request carries its run and turn, in the view, the log and the feed', async () => {
  const turn = await aClaimedTurn(t.db);
  const { approval } = await runs().requestApproval({ ...of(turn), ...call });

  expect(approval).toMatchObject({ runId: turn.run.id, commandId: turn.command.id, sessionId: turn.run.sessionId });
  const { rows } = await t.db.pool.query(
    `SELECT e.run_id, e.command_id, o.run_id AS out_run, o.command_id AS out_command, o.stream FROM runplane.session_events e
       JOIN runplane.outbox_events o ON o.stream = 'session' AND o.stream_id = e.session_id AND o.sequence = e.sequence WHERE e.session_id = $1`,
    [approval.sessionId],
  );
  const [run, command] = [turn.run.id, turn.command.id];
  expect(rows).toEqual([{ run_id: run, command_id: command, out_run: run, out_command: command, stream: 'session' }]);
});

test('only the run that has the open turn of its session asks, and sees what it has asked itself', async () => {
  const alone = await aClaimedRun(t.db);
  await expect(runs().requestApproval({ ...of(alone), ...call })).rejects.toEqual(coded('session_required'));
  await expect(waitForRunApproval(t.db, { tenantId: TENANT, runId: alone.run.id, approvalId: 'a', waitMs: 0 })).rejects.toEqual(
    coded('approval_not_found'),
  );

  const turn = await aClaimedTurn(t.db);
  const beside = await aClaimedRun(t.db, { sessionRef: { sessionId: turn.run.sessionId ?? '' } });
  await runs().requestApproval({ ...of(turn), ...call });
  await expect(runs().requestInput({ ...of(beside), ...question })).rejects.toEqual(coded('run_not_active', { activeRunId: turn.run.id }));
  const seen = { tenantId: TENANT, approvalId: 'a', waitMs: 0 };
  await expect(waitForRunApproval(t.db, { ...seen, runId: beside.run.id })).rejects.toEqual(coded('approval_not_found'));
  expect(await waitForRunApproval(t.db, { ...seen, runId: turn.run.id })).toMatchObject({ outcome: 'pending' });
  await expect(waitForRunApproval(t.db, { ...seen, tenantId: 'other', runId: turn.run.id })).rejects.toEqual(coded('run_not_found'));
  await expect(waitForRunInput(t.db, { tenantId: TENANT, runId: turn.run.id, requestId: 'a', waitMs: 0 })).rejects.toEqual(
    coded('input_request_not_found'),
  );
  await expect(runs().requestApproval({ ...of(turn), tenantId: 'other', ...call })).rejects.toEqual(coded('run_not_found'));
});

test('what people approved for a run is no run’s in a fork of its session: it is not found there, and not given for the asking', async () => {
  const turn = await aClaimedTurn(t.db);
  const sessionId = turn.run.sessionId ?? '';
  await runs().requestApproval({ ...of(turn), ...call });
  const decision = { tenantId: TENANT, sessionId, approvalId: 'a', resolution: 'approved', revision: 0, actor: { type: 'user', id: 'ann' } } as const; // prettier-ignore
  await inTransaction(t.db, (tx) => resolveApproval(tx, decision));
  expect(await runs().requestApproval({ ...of(turn), ...call })).toMatchObject({ replayed: true, approval: { outcome: 'approved' } });
  await forkSession(t.db, { tenantId: TENANT, sessionId, newSessionId: `${sessionId}-fork` });

  const there = await aClaimedTurn(t.db, `${sessionId}-fork`);
  const seen = { tenantId: TENANT, runId: there.run.id, approvalId: 'a', waitMs: 0 };
  await expect(waitForRunApproval(t.db, seen)).rejects.toEqual(coded('approval_not_found'));
  await expect(runs().requestApproval({ ...of(there), ...call })).rejects.toEqual(coded('approval_conflict', { state: 'approved' }));
});

test('a run that is being cancelled asks nobody, and a stale runner leaves a record', async () => {
  const turn = await aClaimedTurn(t.db);
  await inTransaction(t.db, (tx) => cancelRun(tx, { tenantId: TENANT, runId: turn.run.id }));
  await expect(runs().requestApproval({ ...of(turn), ...call })).rejects.toEqual(coded('run_cancelling'));
  const told = { ...of(turn), events: [{ type: 'approval/requested', data: { approval_id: 'a' } }] };
  await expect(runs().appendRunSessionEvents(told)).rejects.toEqual(coded('run_cancelling'));

  await expect(runs().requestInput({ ...of(turn), epoch: 7, ...question })).rejects.toEqual(coded('lease_lost', { currentEpoch: 1 }));
  await runs().finishRun({ ...of(turn), outcome: { terminalStatus: 'cancelled' } });
  await expect(runs().requestInput({ ...of(turn), ...question })).rejects.toEqual(coded('run_closed'));
  expect((await story(t.db, turn.run.id)).at(-1)).toBe('late-write-rejected');
});

test('what is asked ends with its turn, though the run goes on', async () => {
  const turn = await aClaimedTurn(t.db);
  const { approval } = await runs().requestApproval({ ...of(turn), ...call });
  const outcome = { terminalStatus: 'completed' } as const;
  await inTransaction(t.db, (tx) => finishCommand(tx, { ...of(turn), commandId: turn.command.id, outcome }));

  const key = { tenantId: TENANT, sessionId: approval.sessionId, approvalId: 'a' };
  expect(await getApproval(t.db, key)).toMatchObject({ outcome: 'cancelled', resolutionReason: 'turn completed' });
  await expect(runs().requestApproval({ ...of(turn), ...call })).rejects.toEqual(coded('run_not_active', { activeRunId: null }));
});
