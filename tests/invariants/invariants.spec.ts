import { readFileSync } from 'node:fs';
import type pg from 'pg';
import { findViolations, INVARIANTS_FILE, openClient, useDatabase } from '@runplane/database/testing';
import { claimQueueTasks, createQueue, createQueueTask, markQueueTasksRead, settleQueueTask } from '@runplane/queue';
import { appendRunEvents, createRuns, pruneRunEventsOnce, pruneRunsOnce } from '@runplane/runs';
import { acceptSubmission, appendSessionEvents, createSessions } from '@runplane/sessions';
import { aClaimedTurn, aTurn, makeTenants, message, TENANT } from '@runplane/runs/testing';
import { openDbAhead } from '../support/races';

// Each check of tests/support/invariants.sql sees a violation that is planted past all guards, in a transaction that is rolled back.

const t = useDatabase({ checkInvariants: false });
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;

/** Ids of a small world that keeps every invariant. */
const world = {
  done: '',
  doneCommand: '',
  open: '',
  openCommand: '',
  pending: '',
  pendingCommand: '',
  cancelling: '',
  half: '',
  halfCommand: '',
  first: '',
  second: '',
  pruned: '',
  prunedCommand: '',
  gone: '',
  heldTask: '',
  doneTask: '',
  failedTask: '',
};
let on: pg.Client;

/** A run of two whose events retention has removed, and the one before it in its session, of which all is gone. */
async function makeRemoved(): Promise<void> {
  const ends = [];
  for (let turn = 1; turn <= 2; turn += 1) {
    const { run, command, epoch } = await aClaimedTurn(t.db, 's-old');
    await appendRunEvents(t.db, { tenantId, runId: run.id, epoch, events: [message('x')] });
    await createRuns(t.db).finishRun({ tenantId, runId: run.id, epoch, outcome: completed });
    ends.push({ runId: run.id, commandId: command.id });
  }
  const later = await openDbAhead(t.url, 2 * 86_400_000);
  const policy = { runsDays: 1, eventsDays: 1, archive: false };
  const reports = [await pruneRunsOnce(later, { tenantId, policy }), await pruneRunEventsOnce(later, { tenantId, policy })];
  await later.close();
  expect(reports.map(({ changed }) => changed)).toEqual([1, 1]);
  Object.assign(world, { gone: ends[0]?.runId, pruned: ends[1]?.runId, prunedCommand: ends[1]?.commandId });
}

/** A task that is held in a lane with a limit, one that is completed, and one that failed and whose retry is reserved. */
async function makeTasks(): Promise<void> {
  const queue = createQueue(t.db);
  const ids: string[] = [];
  await queue.setLaneLimit({ tenantId, queue: 'held', lane: 'default', maxRunning: 5 });
  for (const name of ['held', 'done', 'failed']) {
    const { task } = await createQueueTask(t.db, { tenantId, task: { projectId: 'p1', queue: name, title: name, payload: {} } });
    await claimQueueTasks(t.db, { tenantId, queue: name, owner: 'w' });
    ids.push(task.id);
  }
  const [heldTask = '', doneTask = '', failedTask = ''] = ids;
  await settleQueueTask(t.db, { tenantId, taskId: doneTask, epoch: 1, outcome: 'completed' });
  await settleQueueTask(t.db, { tenantId, taskId: failedTask, epoch: 1, outcome: 'failed', failureKind: 'timeout' });
  await queue.reserveQueueRetry({ tenantId, taskId: failedTask, idempotencyKey: 'k', reason: 'again' });
  await markQueueTasksRead(t.db, { tenantId, readerId: 'ann', taskIds: [heldTask] });
  Object.assign(world, { heldTask, doneTask, failedTask });
}

beforeAll(async () => {
  await makeTenants(t.db);
  await makeRemoved();
  const runs = createRuns(t.db);
  const tool = { type: 'tool_call', payload: { callId: 'a', name: 'ls', arguments: {} } };

  const done = await aClaimedTurn(t.db, 's-done');
  const batch = [message('x'), tool, { type: 'tool_result', payload: { callId: 'a', status: 'ok', output: null } }];
  await appendRunEvents(t.db, { tenantId, runId: done.run.id, epoch: done.epoch, events: batch });
  await runs.admitSteer({ tenantId, sessionId: 's-done', steer: { payload: {} }, idempotencyKey: 'left' });
  await runs.cancelCommand({ tenantId, commandId: done.command.id });
  await runs.finishRun({ tenantId, runId: done.run.id, epoch: done.epoch, outcome: completed });

  const open = await aClaimedTurn(t.db, 's-open');
  const asked = { tenantId, runId: open.run.id, epoch: open.epoch };
  for (const approvalId of ['waits', 'decided']) await runs.requestApproval({ ...asked, approvalId, toolName: 'rm', arguments: {} });
  const decision = { resolution: 'approved', actor: { type: 'user', id: 'ann' } } as const;
  await createSessions(t.db).resolveApproval({ tenantId, sessionId: 's-open', approvalId: 'decided', ...decision });
  await appendRunEvents(t.db, { tenantId, runId: open.run.id, epoch: open.epoch, events: [message('x'), tool] });
  for (const key of ['n1', 'n2'])
    await runs.createCommand({ tenantId, runId: open.run.id, idempotencyKey: key, command: { type: 'note', payload: {} } });

  const pending = await aTurn(t.db, 's-pending');
  const cancelling = await aClaimedTurn(t.db, 's-cancelling');
  await runs.cancelRun({ tenantId, runId: cancelling.run.id });

  const half = await aClaimedTurn(t.db, 's-half');
  await runs.finishCommand({ tenantId, runId: half.run.id, commandId: half.command.id, epoch: half.epoch, outcome: completed });

  const first = await aClaimedTurn(t.db, 's-two');
  await runs.finishRun({ tenantId, runId: first.run.id, epoch: first.epoch, outcome: completed });
  const second = await aTurn(t.db, 's-two');

  const log = { tenantId, sessionId: 's-log' };
  await createSessions(t.db).createSession({ tenantId, header: { id: 's-log' } });
  const enqueued = { type: 'input/enqueued', data: { input_id: 'i' } };
  await appendSessionEvents(t.db, { ...log, appendId: 'a', events: [enqueued, enqueued] });
  await appendSessionEvents(t.db, { ...log, events: [enqueued] });

  Object.assign(world, {
    done: done.run.id,
    doneCommand: done.command.id,
    open: open.run.id,
    openCommand: open.command.id,
    pending: pending.run.id,
    pendingCommand: pending.command.id,
    cancelling: cancelling.run.id,
    half: half.run.id,
    halfCommand: half.command.id,
    first: first.run.id,
    second: second.run.id,
  });
  for (const id of ['s-queue', 's-deleted']) await createSessions(t.db).createSession({ tenantId, header: { id } });
  for (const operationId of ['op-0', 'op-1'])
    await acceptSubmission(t.db, { tenantId, sessionId: 's-queue', operationId, submission: { kind: 'turn' } });
  await createSessions(t.db).endSubmission({ tenantId, sessionId: 's-queue', operationId: 'op-0', end: { state: 'completed' } });
  await runs.deleteSession({ tenantId, sessionId: 's-deleted' });
  await makeTasks();
  on = await openClient(t.url);
});
afterAll(() => on.end());

test('a world that operations have made breaks nothing', async () => {
  expect(await findViolations(on)).toEqual([]);
});

/** Writes an event past every guard, with its outbox row and the run's counters. */
async function plantEvent(
  runId: string,
  type: string,
  payload: object,
  { commandId = null, epoch = null }: { commandId?: string | null; epoch?: number | null } = {},
): Promise<void> {
  await on.query(
    `WITH r AS (UPDATE runplane.runs SET last_event_seq = last_event_seq + 1, last_tx = greatest(last_tx, (pg_current_xact_id()::text::bigint + (SELECT tx_offset FROM runplane.store))) WHERE id = $1 RETURNING *),
     e AS (INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, command_id, is_output, producer_epoch)
       SELECT tenant_id, id, last_event_seq, 'evt-' || last_event_seq, $2, $3::json, $4, false, $5::int FROM r)
     INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type, project_id, session_id, run_id, command_id, event_id, data)
       SELECT last_tx, shard, partition_key, tenant_id, 'run', id, last_event_seq, $2, project_id, session_id, id, $4, 'evt-' || last_event_seq, $3::json FROM r`,
    [runId, type, JSON.stringify(payload), commandId, epoch],
  );
}

/** Changes an event and its outbox row alike. */
async function changeEvent(where: string, set: string): Promise<void> {
  await on.query(`UPDATE runplane.outbox_events o SET ${set} FROM runplane.run_events e WHERE o.event_id = e.id AND ${where}`);
  await on.query(`UPDATE runplane.run_events e SET ${set} WHERE ${where}`);
}

async function plantCommand(runId: string, columns: { type: string; key: string; target?: string }): Promise<void> {
  await on.query(
    `WITH r AS (UPDATE runplane.runs SET last_command_seq = last_command_seq + 1 WHERE id = $1 RETURNING *)
     INSERT INTO runplane.commands (tenant_id, id, run_id, session_id, seq, type, payload, payload_hash, hash_version, idempotency_key, target_command_id)
       SELECT tenant_id, 'cmd-planted', id, session_id, last_command_seq, $2, '{}', 'x', 1, $3, $4 FROM r`,
    [runId, columns.type, columns.key, columns.target ?? null],
  );
}

const query = (text: string) => () => on.query(text);

interface Plant {
  readonly invariant: string;
  /** Part of what the checker says. */
  readonly says: RegExp;
  /** Invariants that cannot but break with it. */
  readonly also?: readonly string[];
  readonly plant: () => Promise<unknown>;
}

// One for each branch of the checker; those of one invariant in its order.
const PLANTS: readonly Plant[] = [
  {
    invariant: 'LOG-1',
    says: /counts \d+ events/,
    plant: () => on.query(`UPDATE runplane.runs SET last_event_seq = last_event_seq + 1 WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'LOG-1',
    says: /its pruned log has 0/,
    also: ['LOG-2'],
    plant: () => on.query(`DELETE FROM runplane.run_events WHERE run_id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-1',
    says: /and no row/,
    plant: async () => {
      await plantEvent(world.open, 'assistant_message', {});
      await on.query(`UPDATE runplane.runs SET last_event_seq = last_event_seq - 1 WHERE id = $1`, [world.open]);
      await changeEvent(
        `e.seq = (SELECT max(seq) FROM runplane.run_events WHERE run_id = '${world.open}') AND e.run_id = '${world.open}'`,
        `run_id = 'ghost'`,
      );
      await on.query(`UPDATE runplane.outbox_events SET stream_id = 'ghost' WHERE run_id = 'ghost'`);
    },
  },
  {
    invariant: 'LOG-1',
    says: /counts \d+ commands/,
    plant: () => on.query(`UPDATE runplane.runs SET last_command_seq = last_command_seq + 1 WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'LOG-1',
    says: /session s-log stands at 3/,
    plant: query(`UPDATE runplane.session_heads SET last_sequence = 3 WHERE session_id = 's-log'`),
  },
  {
    invariant: 'LOG-1',
    says: /s-log has events and no head/,
    plant: query(`DELETE FROM runplane.session_heads WHERE session_id = 's-log'`),
  },
  {
    invariant: 'LOG-1',
    says: /s-done has no log/,
    plant: query(`DELETE FROM runplane.session_heads WHERE session_id = 's-done'`),
  },
  {
    invariant: 'LOG-1',
    says: /append a of session s-log has 4 events/,
    plant: query(`UPDATE runplane.session_events SET append_count = 4 WHERE append_id = 'a'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d of session s-log is in 0 rows of the outbox/,
    plant: query(`DELETE FROM runplane.outbox_events WHERE stream_id = 's-log'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d of session s-log is in the outbox as another/,
    plant: query(`UPDATE runplane.outbox_events SET type = 'x' WHERE stream_id = 's-log'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d+ of session s-log is in the outbox alone/,
    plant: query(
      `UPDATE runplane.outbox_events SET events = events + 1 WHERE stream_id = 's-log' AND sequence = (SELECT max(sequence) FROM runplane.outbox_events WHERE stream_id = 's-log')`,
    ),
  },
  {
    invariant: 'LOG-2',
    says: /tells its deletion at \d+ without what must outlive its log/,
    plant: query(`UPDATE runplane.outbox_events SET data = NULL WHERE stream_id = 's-deleted' AND type = 'session/deleted'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d of session s-log left under/,
    plant: query(`UPDATE runplane.outbox_events SET shard = (shard + 1) % 32 WHERE stream_id = 's-log'`),
  },
  {
    invariant: 'LOG-2',
    says: /session s-log and the head of its log disagree/,
    plant: query(`UPDATE runplane.session_heads SET project_id = 'x' WHERE session_id = 's-log'`),
  },
  {
    invariant: 'LOG-2',
    says: /outbox disagree/,
    plant: () => on.query(`DELETE FROM runplane.outbox_events WHERE stream_id = $1 AND sequence = 2`, [world.open]),
  },
  {
    invariant: 'LOG-2',
    says: /was removed at event \d+, the outbox has/,
    plant: () => on.query(`DELETE FROM runplane.outbox_events WHERE stream_id = $1 AND sequence = 2`, [world.gone]),
  },
  {
    invariant: 'LOG-2',
    says: /was removed, and there is a row of it/,
    plant: () =>
      on.query(
        `INSERT INTO runplane.run_tombstones (tenant_id, run_id, last_event_seq, finished_at)
         SELECT tenant_id, id, last_event_seq, now() FROM runplane.runs WHERE id = $1`,
        [world.open],
      ),
  },
  {
    invariant: 'LOG-2',
    says: /its log ends otherwise/,
    also: ['VIEW-1'],
    plant: () => on.query(`UPDATE runplane.runs SET status = 'failed', failure_kind = 'x' WHERE id = $1`, [world.done]),
  },
  {
    invariant: 'LOG-2',
    says: /its run tells otherwise/,
    plant: () => on.query(`UPDATE runplane.commands SET state = 'failed', failure_kind = 'x' WHERE id = $1`, [world.doneCommand]),
  },
  {
    invariant: 'LOG-2',
    says: /acknowledged and its run does not tell it/,
    plant: () =>
      on.query(`UPDATE runplane.commands SET state = 'acknowledged', acknowledged_at = now() WHERE id = $1`, [world.pendingCommand]),
  },
  {
    invariant: 'LOG-2',
    says: /its run tells steer-missed/,
    plant: () => on.query(`UPDATE runplane.commands SET failure_kind = 'x' WHERE type = 'steer'`),
  },
  {
    invariant: 'LOG-2',
    says: /stands at delivered, its run tells cancel-persisted/,
    plant: () => on.query(`UPDATE runplane.cancel_requests SET stage = 'delivered' WHERE run_id = $1`, [world.cancelling]),
  },
  {
    invariant: 'LOG-2',
    says: /another project, session/,
    plant: () => on.query(`UPDATE runplane.outbox_events SET session_id = 'x' WHERE stream_id = $1 AND sequence = 2`, [world.open]),
  },
  {
    invariant: 'LOG-3',
    says: /assistant_message  behind its terminal_status/,
    plant: () => plantEvent(world.done, 'assistant_message', {}),
  },
  { invariant: 'OWN-1', says: /lease disagree/, plant: () => on.query(`DELETE FROM runplane.run_leases WHERE run_id = $1`, [world.open]) },
  {
    invariant: 'OWN-1',
    says: /under epoch 1 after epoch 5/,
    plant: async () => {
      await plantEvent(world.open, 'assistant_message', {}, { epoch: 5 });
      await plantEvent(world.open, 'assistant_message', {}, { epoch: 1 });
    },
  },
  {
    invariant: 'OWN-1',
    says: /held under epoch 7, its last claim was told under 1/,
    plant: async () => {
      await on.query(`UPDATE runplane.runs SET claim_epoch = 7 WHERE id = $1`, [world.open]);
      await on.query(`UPDATE runplane.run_leases SET epoch = 7 WHERE run_id = $1`, [world.open]);
    },
  },
  {
    invariant: 'OWN-1',
    says: /held by nobody until never/,
    plant: async () => {
      await on.query('ALTER TABLE runplane.dispatch_intents DROP CONSTRAINT dispatch_intents_holder_matches_state');
      await on.query(`UPDATE runplane.dispatch_intents SET state = 'dispatching' WHERE run_id = $1`, [world.pending]);
    },
  },
  {
    invariant: 'OWN-1',
    says: /storage of session s-open is being deleted by gc/,
    plant: query(
      `UPDATE runplane.sessions SET storage_lease_owner = 'gc', storage_lease_expires_at = now() WHERE session_id IN ('s-open', 's-done')`,
    ),
  },
  {
    invariant: 'OWN-1',
    says: /session s-log is held by nobody under epoch 0 until 2/,
    plant: query(`UPDATE runplane.session_heads SET lease_expires_at = now() WHERE session_id = 's-log'`),
  },
  {
    invariant: 'TURN-1',
    says: /has 2 open turns/,
    plant: async () => {
      await on.query('DROP INDEX runplane.commands_open_turn_per_session');
      await plantCommand(world.pending, { type: 'turn', key: 'another' });
    },
  },
  {
    invariant: 'TURN-1',
    says: /held by nobody/,
    plant: query(
      `UPDATE runplane.sessions SET execution_state = 'idle', active_run_id = NULL, active_command_id = NULL WHERE session_id = 's-pending'`,
    ),
  },
  {
    invariant: 'END-1',
    says: /finished_at null/,
    plant: async () => {
      await on.query('ALTER TABLE runplane.runs DISABLE TRIGGER runs_rules');
      await on.query(`UPDATE runplane.runs SET finished_at = NULL WHERE id = $1`, [world.done]);
    },
  },
  {
    invariant: 'END-1',
    says: /open intent/,
    plant: () => on.query(`UPDATE runplane.dispatch_intents SET state = 'pending', finished_at = NULL WHERE run_id = $1`, [world.done]),
  },
  {
    invariant: 'END-1',
    says: /its command .* has ended/,
    plant: () => on.query(`UPDATE runplane.dispatch_intents SET state = 'pending', finished_at = NULL WHERE run_id = $1`, [world.half]),
  },
  {
    invariant: 'END-1',
    says: /ended 2 times/,
    plant: () =>
      plantEvent(
        world.half,
        'backend_status',
        { phase: 'command-terminal', commandId: world.halfCommand, state: 'completed' },
        { commandId: world.halfCommand },
      ),
  },
  {
    invariant: 'END-1',
    says: /approval waits is open and its command .* has ended/,
    plant: () => on.query(`UPDATE runplane.approvals SET command_id = $1 WHERE approval_id = 'waits'`, [world.doneCommand]),
  },
  {
    invariant: 'END-1',
    says: /steer cmd-planted is open/,
    plant: () => plantCommand(world.half, { type: 'steer', key: 'steer', target: world.halfCommand }),
  },
  {
    invariant: 'OWN-1',
    says: /is held under epoch 0/,
    plant: query(
      `INSERT INTO runplane.reservations (kind, key, slot, tenant_id, owner, epoch, expires_at) VALUES ('runner-create', '["acme","k"]', 1, 'acme', 'o', 0, now())`,
    ),
  },
  {
    invariant: 'OWN-1',
    says: /o holds 2 places of/,
    plant: query(
      `INSERT INTO runplane.reservations (kind, key, slot, tenant_id, owner, epoch, expires_at)
         SELECT 'runner-create', '["acme","k"]', n, 'acme', 'o', 1, now() + interval '1 minute' FROM generate_series(1, 2) n`,
    ),
  },
  {
    invariant: 'TEN-1',
    says: /place 1 of .* belongs to tenant acme/,
    plant: query(`INSERT INTO runplane.reservations (kind, key, slot, tenant_id) VALUES ('runner-create', '["other","k"]', 1, 'acme')`),
  },
  {
    invariant: 'FEED-1',
    says: /stands at \(/,
    plant: () => on.query(`UPDATE runplane.outbox_events SET tx = tx + 1000000 WHERE stream_id = $1 AND sequence = 2`, [world.open]),
  },
  {
    invariant: 'FEED-1',
    says: /session s-log remembers feed number/,
    plant: query(`UPDATE runplane.session_heads SET event_position = event_position - 1 WHERE session_id = 's-log'`),
  },
  {
    invariant: 'FEED-1',
    says: /remembers feed number 0/,
    plant: () => on.query(`UPDATE runplane.runs SET last_tx = 0 WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'FEED-1',
    says: /the next run/,
    plant: async () => {
      await on.query(`UPDATE runplane.runs SET created_at = created_at + interval '1 s' WHERE id = $1`, [world.second]);
      await on.query(`UPDATE runplane.outbox_events SET tx = 1 WHERE stream_id = $1`, [world.second]);
    },
  },
  {
    invariant: 'FEED-1',
    says: /s-done has version 7 of change 0/,
    plant: query(`UPDATE runplane.sessions SET version = 7, changed_tx = 0 WHERE session_id = 's-done'`),
  },
  {
    invariant: 'IDEM-1',
    says: /of session s-two has 2 commands/,
    plant: async () => {
      await on.query('DROP INDEX runplane.commands_session_idempotency_key');
      await on.query(`UPDATE runplane.commands SET idempotency_key = 'same' WHERE session_id = 's-two'`);
    },
  },
  {
    invariant: 'IDEM-1',
    says: /of run .* has 2 commands/,
    plant: async () => {
      await on.query('DROP INDEX runplane.commands_run_idempotency_key');
      await on.query(`UPDATE runplane.commands SET idempotency_key = 'same' WHERE run_id = $1 AND type = 'note'`, [world.open]);
    },
  },
  {
    invariant: 'TEN-1',
    says: /stands in session x/,
    plant: () => on.query(`UPDATE runplane.commands SET session_id = 'x' WHERE id = $1`, [world.doneCommand]),
  },
  {
    invariant: 'TEN-1',
    says: /is for cmd_.*, which is no turn of its run/,
    plant: () => on.query(`UPDATE runplane.commands SET target_command_id = $1 WHERE type = 'steer'`, [world.openCommand]),
  },
  {
    invariant: 'TEN-1',
    says: /writes to partition/,
    also: ['LOG-2'],
    plant: () => on.query(`UPDATE runplane.runs SET partition_key = 'x' WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'TEN-1',
    says: /not its own/,
    plant: () => changeEvent(`e.run_id = '${world.open}' AND e.type = 'assistant_message'`, `command_id = '${world.doneCommand}'`),
  },
  {
    invariant: 'VIEW-1',
    says: /shows cancelled/,
    plant: query(`UPDATE runplane.sessions SET terminal_status = 'cancelled' WHERE session_id = 's-done'`),
  },
  {
    invariant: 'VIEW-1',
    says: /shows run .* of session s-open/,
    plant: () => on.query(`UPDATE runplane.sessions SET last_run_id = $1 WHERE session_id = 's-done'`, [world.open]),
  },
  {
    invariant: 'VIEW-1',
    says: /1 rows of context_notes were built for session s-done, and no rebuild/,
    plant: query(
      `INSERT INTO runplane.context_notes (tenant_id, session_id, path, content, updated_sequence) SELECT chr(1) || tenant_id, session_id, 'n', '', 0 FROM runplane.sessions WHERE session_id = 's-done'`,
    ),
  },
  {
    invariant: 'VIEW-1',
    says: /approval waits of session s-open is rejected, asked at \d+ and resolved as nothing/,
    plant: query(
      `UPDATE runplane.approvals SET state = 'rejected', resolved_at = now(), resolved_sequence = 0 WHERE approval_id = 'waits'`,
    ),
  },
  {
    invariant: 'VIEW-1',
    says: /reader ann has read version 99 of session s-done/,
    plant: () =>
      on.query(
        `INSERT INTO runplane.session_read_cursors (tenant_id, session_id, reader_id, session_version) VALUES ($1, 's-done', 'ann', 99)`,
        [tenantId],
      ),
  },
  {
    invariant: 'VIEW-1',
    says: /counts 9 runs claimed/,
    plant: () => on.query(`INSERT INTO runplane.run_status_counts (tenant_id, status, n) VALUES ($1, 'claimed', 7)`, [tenantId]),
  },
  {
    invariant: 'FIFO-1',
    says: /works on nothing, its oldest unfinished submission is op-1 at 1/,
    plant: query(`DELETE FROM runplane.submission_heads WHERE session_id = 's-queue'`),
  },
  {
    invariant: 'LOG-2',
    says: /submission op-0 of session s-queue is failed, the log tells submission.accepted and submission.completed/,
    plant: query(`UPDATE runplane.submissions SET state = 'failed' WHERE session_id = 's-queue' AND operation_id = 'op-0'`),
  },
  {
    invariant: 'FIFO-1',
    says: /submission op-0 of session s-queue stands at 7, where the log tells nothing/,
    plant: query(`UPDATE runplane.submissions SET place = 7 WHERE session_id = 's-queue' AND operation_id = 'op-0'`),
  },
  {
    invariant: 'OWN-1',
    says: /submission op-1 of session s-queue is claimed under epoch \d+ after 1 attempts, and may be claimed before the claim ends/,
    plant: query(
      `UPDATE runplane.submission_heads SET state = 'claimed', owner = 'w', attempts = 1, expires_at = now() + interval '1 minute' WHERE session_id = 's-queue'`,
    ),
  },
  {
    invariant: 'VIEW-1',
    says: /session s-queue counts 7 unfinished submissions, 1 of them turns; it has 1, 1/,
    plant: query(`UPDATE runplane.session_heads SET open_submissions = 7 WHERE session_id = 's-queue'`),
  },
  {
    invariant: 'END-1',
    says: /session s-deleted was deleted at .*, its control record says nothing/,
    plant: query(`UPDATE runplane.sessions SET deleted_at = NULL WHERE session_id = 's-deleted'`),
  },
  {
    invariant: 'END-1',
    says: /session s-deleted was erased, and there is a head/,
    plant:
      query(`INSERT INTO runplane.session_tombstones (tenant_id, session_id, incarnation, last_sequence, lease_epoch, claim_epoch, copied_through, last_tx, deleted_at)
      SELECT tenant_id, session_id, incarnation, last_sequence, lease_epoch, claim_epoch, -1, last_tx, deleted_at FROM runplane.session_heads WHERE session_id = 's-deleted'`),
  },
  {
    invariant: 'OWN-1',
    says: /is running and names qa_\S+, active are none/,
    plant: () => on.query(`UPDATE runplane.queue_attempts SET state = 'failed', terminal_at = now() WHERE task_id = $1`, [world.heldTask]),
  },
  {
    invariant: 'OWN-1',
    says: /is held by w2 under epoch 1, its attempt says w and 1/,
    plant: () => on.query(`UPDATE runplane.queue_tasks SET owner = 'w2' WHERE id = $1`, [world.heldTask]),
  },
  {
    invariant: 'OWN-1',
    says: /counts 2 tasks that run, it has 1/,
    plant: () => on.query(`UPDATE runplane.queue_lanes SET running = 2 WHERE queue = 'held' AND lane = 'default'`),
  },
  {
    invariant: 'END-1',
    says: /is completed and is counted among those that run/,
    also: ['OWN-1'],
    plant: () => on.query(`UPDATE runplane.queue_tasks SET places = 1 WHERE id = $1`, [world.doneTask]),
  },
  {
    invariant: 'END-1',
    says: /is blocked, its attempt qa_\S+ ended failed/,
    plant: () => on.query(`UPDATE runplane.queue_tasks SET state = 'blocked' WHERE id = $1`, [world.failedTask]),
  },
  {
    invariant: 'LOG-1',
    says: /counts attempts up to 0, it has 0 up to -1 under 0 ids/,
    also: ['END-1'],
    plant: () => on.query(`DELETE FROM runplane.queue_attempts WHERE task_id = $1`, [world.doneTask]),
  },
  {
    invariant: 'TEN-1',
    says: /is at no queue task of its tenant/,
    plant: () => on.query(`DELETE FROM runplane.queue_tasks WHERE id = $1`, [world.doneTask]),
  },
  {
    invariant: 'VIEW-1',
    says: /reader ann has read version 99 of queue task/,
    plant: () => on.query(`UPDATE runplane.queue_task_read_cursors SET task_version = 99`),
  },
  {
    invariant: 'FEED-1',
    says: /no place in the list of changes/,
    plant: () => on.query(`UPDATE runplane.queue_tasks SET changed_tx = 0 WHERE id = $1`, [world.doneTask]),
  },
  {
    invariant: 'RELAY-1',
    says: /of acme\/x is held for sink planted above the cursor/,
    plant: async () => {
      await plantSink();
      await on.query(
        `INSERT INTO runplane.outbox_blocked_keys (sink, shard, partition_key, tx, position, ready_at) VALUES ('planted', 1, 'acme/x', 5, 5, now())`,
      );
      return on.query(`INSERT INTO runplane.outbox_held VALUES ('planted', 1, 'acme/x', 5, 5)`);
    },
  },
  {
    invariant: 'RELAY-1',
    says: /key acme\/x of sink planted is not blocked and has 1 held events/,
    plant: async () => {
      await plantSink();
      return on.query(`INSERT INTO runplane.outbox_held VALUES ('planted', 1, 'acme/x', 0, 0)`);
    },
  },
  {
    invariant: 'RELAY-1',
    says: /sink planted has 31 shards/,
    plant: async () => {
      await plantSink();
      return on.query(`DELETE FROM runplane.outbox_shards WHERE shard = 7`);
    },
  },
  {
    invariant: 'RELAY-1',
    says: /shard 7 of sink planted stands above the horizon/,
    plant: async () => {
      await plantSink();
      return on.query(`UPDATE runplane.outbox_shards SET tx = runplane.feed_horizon() WHERE shard = 7`);
    },
  },
  {
    invariant: 'OWN-1',
    says: /shard 7 of sink planted is held under epoch 0/,
    plant: async () => {
      await plantSink();
      return on.query(`UPDATE runplane.outbox_shards SET owner = 'r', expires_at = now() WHERE shard = 7`);
    },
  },
];

async function plantSink(): Promise<void> {
  await on.query(`INSERT INTO runplane.outbox_sinks (name, kind) VALUES ('planted', 'memory')`);
  await on.query(
    `INSERT INTO runplane.outbox_shards (sink, shard, tx, position) SELECT 'planted', shard, 0, 0 FROM generate_series(0, 31) shard`,
  );
}

// The one branch that looks at five kinds of things under an ended run.
const UNDER_AN_ENDED_RUN: readonly Plant[] = [
  {
    invariant: 'END-1',
    says: /has ended with open command/,
    also: ['LOG-2', 'TURN-1'],
    plant: () => on.query(`UPDATE runplane.commands SET state = 'pending', finished_at = NULL WHERE id = $1`, [world.doneCommand]),
  },
  {
    invariant: 'END-1',
    says: /has ended with open lease/,
    also: ['OWN-1'],
    plant: () =>
      on.query(
        `INSERT INTO runplane.run_leases (tenant_id, run_id, runner_id, epoch, expires_at, heartbeat_at) VALUES ($1, $2, 'r', 1, now(), now())`,
        [tenantId, world.done],
      ),
  },
  {
    invariant: 'END-1',
    says: /has ended with open tool call/,
    plant: () => changeEvent(`e.run_id = '${world.done}' AND e.type = 'tool_result'`, `type = 'reasoning'`),
  },
  {
    invariant: 'END-1',
    says: /has ended with open approval waits/,
    also: ['VIEW-1'],
    plant: () => on.query(`UPDATE runplane.approvals SET run_id = $1 WHERE approval_id = 'waits'`, [world.done]),
  },
  {
    invariant: 'END-1',
    says: /has ended with open cancel request/,
    also: ['LOG-2'],
    plant: () => on.query(`UPDATE runplane.cancel_requests SET stage = 'persisted' WHERE run_id = $1`, [world.done]),
  },
];

/** The one branch that compares what is asked of people with the log. */
const ASKED_OF_PEOPLE: readonly Plant[] = [
  {
    invariant: 'VIEW-1',
    says: /approval decided of session s-open is rejected, asked at \d+ and resolved as approved/,
    plant: query(`UPDATE runplane.approvals SET state = 'rejected' WHERE approval_id = 'decided'`),
  },
  {
    invariant: 'VIEW-1',
    says: /approval waits of session s-open is nowhere/,
    plant: query(`DELETE FROM runplane.approvals WHERE approval_id = 'waits'`),
  },
];

/** Retention weakens no check: what a run told before its events were removed still counts, and nothing else is let through. */
const OF_A_PRUNED_RUN: readonly Plant[] = [
  {
    invariant: 'LOG-1',
    says: /its pruned log has 1 from/,
    plant: () => on.query(`UPDATE runplane.runs SET last_event_seq = last_event_seq + 1 WHERE id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-1',
    says: /counts \d+ events, its log has 1/,
    also: ['LOG-2'],
    plant: () => on.query(`UPDATE runplane.runs SET events_pruned_at = NULL WHERE id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-2',
    says: /is failed and its log ends otherwise/,
    plant: () => on.query(`UPDATE runplane.runs SET status = 'failed', failure_kind = 'x' WHERE id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-2',
    says: /its run tells otherwise/,
    plant: () => on.query(`UPDATE runplane.commands SET state = 'failed', failure_kind = 'x' WHERE id = $1`, [world.prunedCommand]),
  },
  {
    invariant: 'LOG-3',
    says: /assistant_message  behind its terminal_status/,
    plant: () => plantEvent(world.pruned, 'assistant_message', {}),
  },
];

test.each(
  [...PLANTS, ...UNDER_AN_ENDED_RUN, ...ASKED_OF_PEOPLE, ...OF_A_PRUNED_RUN].map(
    (plant) => [plant.invariant, plant.says.source, plant] as const,
  ),
)('%s is reported: %s', async (_name, _says, planted) => {
  await on.query('BEGIN');
  try {
    await planted.plant();
    const violations = await findViolations(on);
    expect(violations.map(({ detail }) => detail).join('\n')).toMatch(planted.says);
    expect(new Set(violations.map(({ invariant }) => invariant))).toEqual(new Set([planted.invariant, ...(planted.also ?? [])]));
  } finally {
    await on.query('ROLLBACK');
  }
});

test('no check is left out', () => {
  const checks = [...readFileSync(INVARIANTS_FILE, 'utf8').matchAll(/^SELECT '([A-Z]+-\d)'/gm)].map((match) => match[1]);
  expect(checks.length).toBeGreaterThan(20);
  expect(PLANTS.map(({ invariant }) => invariant)).toEqual(checks);
});
