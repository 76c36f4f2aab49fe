import type pg from 'pg';
import type { Db } from '@runplane/database';
import { openClient, type TestDatabase } from '@runplane/database/testing';
import { claimQueueTasks, createQueue, createQueueTask, markQueueTasksRead, settleQueueTask } from '@runplane/queue';
import { appendRunEvents, createRuns, pruneRunEventsOnce, pruneRunsOnce } from '@runplane/runs';
import { aClaimedTurn, aTurn, makeTenants, message, TENANT } from '@runplane/runs/testing';
import { acceptSubmission, appendSessionEvents, createSessions } from '@runplane/sessions';
import { openDbAhead } from '../support/races';

// A small world that keeps every invariant, and how it is spoilt: past all guards, in a transaction that is rolled back.

export const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;

/** Ids of a small world that keeps every invariant. */
export const world = {
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
let client: pg.Client;

/** The connection on which the case under way plants what it plants. */
export const on = { query: (text: string, values?: unknown[]) => client.query(text, values) };

/** A run of two whose events retention has removed, and the one before it in its session, of which all is gone. */
async function makeRemoved(t: TestDatabase): Promise<void> {
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
async function makeTasks(db: Db): Promise<void> {
  const queue = createQueue(db);
  const ids: string[] = [];
  await queue.setLaneLimit({ tenantId, queue: 'held', lane: 'default', maxRunning: 5 });
  for (const name of ['held', 'done', 'failed']) {
    const { task } = await createQueueTask(db, { tenantId, task: { projectId: 'p1', queue: name, title: name, payload: {} } });
    await claimQueueTasks(db, { tenantId, queue: name, owner: 'w' });
    ids.push(task.id);
  }
  const [heldTask = '', doneTask = '', failedTask = ''] = ids;
  await settleQueueTask(db, { tenantId, taskId: doneTask, epoch: 1, outcome: 'completed' });
  await settleQueueTask(db, { tenantId, taskId: failedTask, epoch: 1, outcome: 'failed', failureKind: 'timeout' });
  await queue.reserveQueueRetry({ tenantId, taskId: failedTask, idempotencyKey: 'k', reason: 'again' });
  await markQueueTasksRead(db, { tenantId, readerId: 'ann', taskIds: [heldTask] });
  Object.assign(world, { heldTask, doneTask, failedTask });
}

/** Makes the world, and the connection on which it is spoilt. */
export async function makeWorld(t: TestDatabase): Promise<pg.Client> {
  await makeTenants(t.db);
  await makeRemoved(t);
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
  await makeTasks(t.db);
  client = await openClient(t.url);
  return client;
}

/** Writes an event past every guard, with its outbox row and the run's counters. */
export async function plantEvent(
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
export async function changeEvent(where: string, set: string): Promise<void> {
  await on.query(`UPDATE runplane.outbox_events o SET ${set} FROM runplane.run_events e WHERE o.event_id = e.id AND ${where}`);
  await on.query(`UPDATE runplane.run_events e SET ${set} WHERE ${where}`);
}

export async function plantCommand(runId: string, columns: { type: string; key: string; target?: string }): Promise<void> {
  await on.query(
    `WITH r AS (UPDATE runplane.runs SET last_command_seq = last_command_seq + 1 WHERE id = $1 RETURNING *)
     INSERT INTO runplane.commands (tenant_id, id, run_id, session_id, seq, type, payload, payload_hash, hash_version, idempotency_key, target_command_id)
       SELECT tenant_id, 'cmd-planted', id, session_id, last_command_seq, $2, '{}', 'x', 1, $3, $4 FROM r`,
    [runId, columns.type, columns.key, columns.target ?? null],
  );
}

export const query = (text: string) => () => on.query(text);

/** What is written past all guards, and what the checker says of it. */
export interface Plant {
  readonly invariant: string;
  /** Part of what the checker says. */
  readonly says: RegExp;
  /** Invariants that cannot but break with it. */
  readonly also?: readonly string[];
  readonly plant: () => Promise<unknown>;
}
