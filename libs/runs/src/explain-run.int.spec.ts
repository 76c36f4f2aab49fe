import { RUN_CAUSES, type RunCause } from '@runplane/contracts';
import { inTransaction, sql, type Db } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { acquireSessionLease, createSessions, refreshSessionStorage } from '@runplane/sessions';
import { acknowledgeCancel } from './acknowledge-cancel';
import { ackCommand } from './ack-command';
import { appendRunEvents } from './append-run-events';
import { cancelCommand } from './cancel-command';
import { cancelRun } from './cancel-run';
import { claimRun } from './claim-run';
import { createCommand } from './create-command';
import { claimDispatchIntents, completeDispatchIntent, deferDispatchIntent, retryDispatchIntent } from './dispatch-intents';
import { claimExpiredStorage } from './claim-expired-storage';
import { explainRun, explainSession } from './explain-run';
import { finishCommand } from './finish-command';
import { finishRun } from './finish-run';
import { createRuns } from './runs';
import { aClaimedTurn, aRun, aTurn, endLease, makeTenants, passDeadlines, TENANT } from './testing';

// Each cause is made by the operations, and by the passing of time, as an operator would meet it.

// The clock stands still: "1 s ago" is so however long a machine takes to ask.
const t = useDatabase({ settings: { 'runplane.fake_now': new Date().toISOString() } });
beforeAll(() => makeTenants(t.db));
const key = (runId: string) => ({ tenantId: TENANT, runId });
const why = (runId: string) => explainRun(t.db, key(runId));

/** Lets a run's rows be older, as time would. */
const age = (table: string, column: string, runId: string, seconds: number): Promise<unknown> =>
  t.db.pool.query(`UPDATE runplane.${table} SET ${column} = ${column} - $2 * interval '1 second' WHERE run_id = $1`, [runId, seconds]);

const dispatched = (db: Db) => aTurn(db, undefined, { dispatch: {} });

async function claimIntent(db: Db) {
  const turn = await dispatched(db);
  const claimed = await claimDispatchIntents(db, { owner: 'dispatcher-1', limit: 100 });
  const intent = claimed.find(({ runId }) => runId === turn.run.id);
  if (intent === undefined) throw new Error('the intent was not claimed');
  return { runId: turn.run.id, claim: { ...intent, intentId: intent.id, owner: 'dispatcher-1' } };
}

async function acknowledged(db: Db, sessionId?: string) {
  const turn = await aClaimedTurn(db, sessionId);
  const ack = { ...key(turn.run.id), commandId: turn.command.id, epoch: turn.epoch };
  await inTransaction(db, (tx) => ackCommand(tx, ack));
  return { ...turn, runId: turn.run.id };
}

const CASES: Record<RunCause, { says: RegExp; make: (db: Db) => Promise<string> }> = {
  ended: {
    says: /has ended as failed \(backend-failed: no luck\)/,
    make: async (db) => {
      const { runId, epoch } = await acknowledged(db);
      const outcome = { terminalStatus: 'failed', failureKind: 'backend-failed', failureMessage: 'no luck' } as const;
      await inTransaction(db, (tx) => finishRun(tx, { ...key(runId), epoch, outcome }));
      return runId;
    },
  },
  working: { says: /holds the run; its last event, backend_status, is 0 s old/, make: async (db) => (await acknowledged(db)).runId },
  'working-silently': {
    says: /its last event, backend_status, is 5 min old: the program may hang/,
    make: async (db) => {
      const { runId } = await acknowledged(db);
      await age('run_events', 'created_at', runId, 300);
      return runId;
    },
  },
  'waits-for-approval': {
    says: /waits for somebody to approve a call of rm \(approval a1\) since 0 s, in session s-\S+; it expires in 5 min/,
    make: async (db) => {
      const { runId, epoch } = await acknowledged(db);
      await createRuns(db).requestApproval({ ...key(runId), epoch, approvalId: 'a1', toolName: 'rm', arguments: {} });
      await createRuns(db).requestInput({ ...key(runId), epoch, prompt: 'later' });
      return runId;
    },
  },
  'waits-for-input': {
    says: /waits for an answer to “Which size\?” \(request q1\) since .*; its time is over, and the next sweep tells the runner so/,
    make: async (db) => {
      const { runId, epoch } = await acknowledged(db);
      await createRuns(db).requestInput({ ...key(runId), epoch, requestId: 'q1', prompt: 'Which size?' });
      await age('input_requests', 'expires_at', runId, 300);
      return runId;
    },
  },
  'tool-running': {
    says: /waits for the tool bash \(call c1\)/,
    make: async (db) => {
      const { runId, epoch } = await acknowledged(db);
      const events = [{ type: 'tool_call' as const, payload: { callId: 'c1', name: 'bash', arguments: {} } }];
      await appendRunEvents(db, { ...key(runId), epoch, producerSequence: 1, events });
      return runId;
    },
  },
  'command-not-acknowledged': {
    says: /has not taken the turn cmd_\S+ for 2 min/,
    make: async (db) => {
      const { run } = await aClaimedTurn(db);
      await age('commands', 'updated_at', run.id, 120);
      return run.id;
    },
  },
  'command-cancel-requested': {
    says: /has been asked to stop the command cmd_\S+; at the latest it ends in \d+ s/,
    make: async (db) => {
      const { runId, command } = await acknowledged(db);
      await inTransaction(db, (tx) => cancelCommand(tx, { tenantId: TENANT, commandId: command.id }));
      return runId;
    },
  },
  'runner-idle': {
    says: /no command is open/,
    make: async (db) => {
      const { runId, command, epoch } = await acknowledged(db);
      const outcome = { terminalStatus: 'completed' } as const;
      await inTransaction(db, (tx) => finishCommand(tx, { ...key(runId), commandId: command.id, epoch, outcome }));
      return runId;
    },
  },
  'runner-lost-will-requeue': {
    says: /stopped renewing its lease 1 s ago; the next sweep gives the run to another runner \(attempt 1 of 3 is over\)/,
    make: async (db) => {
      const { run } = await aClaimedTurn(db, undefined, { run: { projectId: 'p1', backendProfile: 'demo', onRunnerLost: 'requeue' } });
      await endLease(db, run.id);
      return run.id;
    },
  },
  'runner-lost-will-fail': {
    says: /stopped renewing its lease 1 s ago; the next sweep ends the run as failed, runner-lost/,
    make: async (db) => {
      const { run } = await aClaimedTurn(db);
      await endLease(db, run.id);
      return run.id;
    },
  },
  'duration-over': {
    says: /has used up its time; the next sweep cancels it with reason timeout/,
    make: async (db) => {
      const { runId } = await acknowledged(db);
      await db.sql.query(sql`UPDATE runplane.runs SET max_duration_ms = 1000, started_at = created_at - interval '1 hour',
        duration_deadline_at = created_at - interval '1 minute' WHERE id = ${runId}::text`);
      return runId;
    },
  },
  'cancel-requested': {
    says: /A cancel \(“enough”\) by key_1 waits for the runner \S+ \(epoch 1\) to learn of it .* ends in 30 s/,
    make: async (db) => (await cancelling(db)).runId,
  },
  'cancel-under-way': {
    says: /has reached the runner \S+ \(epoch 1\), which is stopping/,
    make: async (db) => {
      const { runId, epoch } = await cancelling(db);
      await inTransaction(db, (tx) => acknowledgeCancel(tx, { ...key(runId), epoch, stage: 'delivered' }));
      return runId;
    },
  },
  'cancel-overdue': {
    says: /is past its deadline; the next sweep cuts the runner/,
    make: async (db) => {
      const { runId } = await cancelling(db);
      await passDeadlines(db, runId);
      return runId;
    },
  },
  'cancel-runner-lost': {
    says: /was requested and the runner \S+ \(epoch 1\) is gone/,
    make: async (db) => {
      const { runId } = await cancelling(db);
      await endLease(db, runId);
      return runId;
    },
  },
  'nothing-to-do': { says: /no command is open: it needs a command, or a cancel/, make: async (db) => (await aRun(db)).id },
  'waits-for-runner': {
    says: /Nobody was asked to launch a runner/,
    make: async (db) => (await aTurn(db, undefined, { dispatch: null })).run.id,
  },
  'waits-for-dispatcher': { says: /was handed to the dispatcher 0 s ago/, make: async (db) => (await dispatched(db)).run.id },
  'no-dispatcher': {
    says: /waits for 1 min to be dispatched and no dispatcher takes it/,
    make: async (db) => {
      const { run } = await dispatched(db);
      await age('dispatch_intents', 'ready_at', run.id, 60);
      return run.id;
    },
  },
  'launch-backs-off': {
    says: /failed \(attempt 1 of 8\): no such image; the dispatcher asks again in \d+ s/,
    make: async (db) => {
      const { runId, claim } = await claimIntent(db);
      await inTransaction(db, (tx) => retryDispatchIntent(tx, claim, { error: 'no such image', delayMs: 20_000 }));
      return runId;
    },
  },
  'waits-for-place': {
    says: /Every place of the backend is taken by other runs; the dispatcher asks again in/,
    make: async (db) => {
      const { runId, claim } = await claimIntent(db);
      await inTransaction(db, (tx) => deferDispatchIntent(tx, claim, { limit: 1, live: 1, reserved: 0 }));
      return runId;
    },
  },
  launching: { says: /dispatcher-1 is launching a runner \(attempt 1 of 8\)/, make: async (db) => (await claimIntent(db)).runId },
  'dispatcher-lost': {
    says: /dispatcher-1 died while it launched a runner \(attempt 1 of 8\); another one takes over/,
    make: async (db) => {
      const { runId } = await claimIntent(db);
      await age('dispatch_intents', 'expires_at', runId, 3600);
      return runId;
    },
  },
  'launches-used-up': {
    says: /All 8 attempts to launch a runner are used up; the next sweep ends the run as failed/,
    make: async (db) => {
      const { runId } = await claimIntent(db);
      await age('dispatch_intents', 'expires_at', runId, 3600);
      await db.pool.query('UPDATE runplane.dispatch_intents SET attempts = 8, ready_at = expires_at WHERE run_id = $1', [runId]);
      return runId;
    },
  },
  'dispatch-ended': {
    says: /The dispatch ended as cancelled: run requeued and no runner has claimed/,
    make: async (db) => {
      const { run } = await dispatched(db);
      await db.pool.query(
        `UPDATE runplane.dispatch_intents SET state = 'cancelled', finished_at = created_at, last_error = 'run requeued' WHERE run_id = $1`,
        [run.id],
      );
      return run.id;
    },
  },
  'waits-for-claim': {
    says: /A runner was launched \(process 4711\) and has not claimed the run yet; its deadline is in 5 min/,
    make: async (db) => (await launched(db)).runId,
  },
  'claim-overdue': {
    says: /No runner has claimed the run by its deadline \(process 4711\)/,
    make: async (db) => {
      const { runId } = await launched(db);
      await passDeadlines(db, runId);
      return runId;
    },
  },
};

async function cancelling(db: Db) {
  const turn = await acknowledged(db);
  await inTransaction(db, (tx) => cancelRun(tx, { ...key(turn.runId), reason: 'enough', requestedBy: 'key_1' }));
  return turn;
}

async function launched(db: Db) {
  const { runId, claim } = await claimIntent(db);
  const job = { launcher: 'process', jobName: '4711', result: {} };
  await inTransaction(db, (tx) => completeDispatchIntent(tx, claim, { outcome: 'created', job }));
  return { runId };
}

const NOT_MOVING: readonly RunCause[] = [
  'waits-for-approval',
  'waits-for-input',
  'working-silently',
  'command-not-acknowledged',
  'runner-idle',
  'runner-lost-will-requeue',
  'runner-lost-will-fail',
  'duration-over',
  'cancel-overdue',
  'cancel-runner-lost',
  'nothing-to-do',
  'waits-for-runner',
  'no-dispatcher',
  'launch-backs-off',
  'dispatcher-lost',
  'launches-used-up',
  'dispatch-ended',
  'claim-overdue',
];

test.each(RUN_CAUSES)('a run says why: %s', async (cause) => {
  const { make, says } = CASES[cause];
  const runId = await make(t.db);
  const said = await why(runId);
  expect(said).toMatchObject({ runId, cause, isMoving: !NOT_MOVING.includes(cause) });
  expect(said.sentence).toMatch(says);
  expect(said.facts['status']).toBeDefined();
});

test('a run that was requeued says which attempt it waits for', async () => {
  const { run } = await aTurn(t.db, undefined, { dispatch: null });
  await t.db.pool.query('UPDATE runplane.runs SET attempts = 1 WHERE id = $1', [run.id]);
  expect((await why(run.id)).sentence).toContain('after 1 of 3 attempts');
});

test('a claimed run without an open command may get one and says so', async () => {
  const { run } = await aClaimedTurn(t.db);
  const command = { type: 'note', payload: {} };
  await inTransaction(t.db, (tx) => createCommand(tx, { ...key(run.id), command }));
  expect((await why(run.id)).facts['openCommands']).toBe(2);
});

test('a session says why it is free or busy', async () => {
  const explain = (sessionId: string) => explainSession(t.db, { tenantId: TENANT, sessionId });
  const { runId, epoch } = await acknowledged(t.db, 's-1');
  expect(await explain('s-1')).toMatchObject({ cause: 'busy', isMoving: true, run: { runId, cause: 'working' } });

  await endLease(t.db, runId);
  const stale = await explain('s-1');
  expect(stale).toMatchObject({ cause: 'takeover-possible', isMoving: false, run: { cause: 'runner-lost-will-fail' } });
  expect(stale.sentence).toMatch(/is stale \(lease-ended\): a new turn takes the session over/);

  await claimRun(t.db, { ...key(runId), runnerId: 'runner-2' });
  await inTransaction(t.db, (tx) => finishRun(tx, { ...key(runId), epoch: epoch + 1, outcome: { terminalStatus: 'completed' } }));
  expect(await explain('s-1')).toMatchObject({
    cause: 'free',
    isMoving: true,
    run: null,
    sentence: `The session is free for a turn; its last run ${runId} ended as completed.`,
  });

  await createSessions(t.db).upsertSession({ tenantId: TENANT, sessionId: 's-2', session: { projectId: 'p1', backendProfile: 'demo' } });
  expect(await explain('s-2')).toMatchObject({ cause: 'never-used', isMoving: true, run: null });
});

test('a turn that waits for a runner of its own says when the next one may replace it', async () => {
  await aTurn(t.db, 's-4', { dispatch: null });
  const said = await explainSession(t.db, { tenantId: TENANT, sessionId: 's-4' });
  expect(said).toMatchObject({ cause: 'busy', run: { cause: 'waits-for-runner', nextChangeInMs: null } });
  expect(said.sentence).toContain('can be taken over in 5 min');
});

test('a session that a worker of its own asks from says what for', async () => {
  const at = { tenantId: TENANT, sessionId: 's-6' };
  await createSessions(t.db).createSession({ tenantId: TENANT, header: { id: 's-6' } });
  const { epoch } = await acquireSessionLease(t.db, { ...at, owner: 'w' });
  await createSessions(t.db).requestInput({ ...at, epoch, requestId: 'q', prompt: 'why?' });
  expect(await explainSession(t.db, at)).toMatchObject({ cause: 'waits-for-input', isMoving: false, facts: { askedId: 'q' } });
  await createSessions(t.db).requestApproval({ ...at, epoch, approvalId: 'a', toolName: 'rm', arguments: {} });
  const said = await explainSession(t.db, at);
  expect(said).toMatchObject({
    cause: 'waits-for-approval',
    sentence: expect.stringContaining('to approve a call of rm (a); it expires in 5 min') as string,
  });
});

test('a session whose storage is being deleted says so', async () => {
  const { runId, epoch } = await acknowledged(t.db, 's-5');
  await inTransaction(t.db, (tx) => finishRun(tx, { ...key(runId), epoch, outcome: { terminalStatus: 'completed' } }));
  await inTransaction(t.db, (tx) =>
    refreshSessionStorage(tx, { tenantId: TENANT, sessionId: 's-5', storage: { kind: 'folder', name: 'f' } }),
  );
  await t.db.pool.query(`UPDATE runplane.sessions SET expires_at = now() - interval '1 day' WHERE session_id = 's-5'`);
  await inTransaction(t.db, (tx) => claimExpiredStorage(tx, { owner: 'collector' }));
  const said = await explainSession(t.db, { tenantId: TENANT, sessionId: 's-5' });
  expect(said).toMatchObject({
    cause: 'storage-leaving',
    isMoving: true,
    sentence: expect.stringMatching(/storage is being deleted .* no turn starts for 1 min/),
  });
});

test('what is not there, or another tenant’s, is not found', async () => {
  const { run } = await aTurn(t.db, 's-3');
  await expect(why('run_none')).rejects.toMatchObject({ code: 'run_not_found' });
  await expect(explainRun(t.db, { tenantId: 'other', runId: run.id })).rejects.toMatchObject({ code: 'run_not_found' });
  await expect(explainSession(t.db, { tenantId: 'other', sessionId: 's-3' })).rejects.toMatchObject({ code: 'session_not_found' });
});
