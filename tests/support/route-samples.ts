import type {
  AdmittedTurn,
  ClaimedRun,
  CreatedQueueTask,
  RegisteredFeedConsumer,
  RequestedApproval,
  RequestedInput,
  RunnerSlot,
  SavedRunnerJob,
} from '@runplane/contracts';
import { encodeFeedCursor, registerSinks } from '@runplane/outbox';
import { acquireSessionLease } from '@runplane/sessions';
import { randomUUID } from 'node:crypto';
import { TENANT, type TestApi } from './test-api';

/** One run in the middle of its life: claimed under `epoch`, in a session, with an open turn that has a dispatch intent. */
export interface World {
  readonly sessionId: string;
  readonly runId: string;
  readonly commandId: string;
  readonly runnerId: string;
  readonly epoch: number;
  /** A recorded job of the run, and a place that the runner holds. */
  readonly jobId: string;
  readonly slot: RunnerSlot;
  readonly profile: string;
  /** Of a projection. */
  readonly key: string;
  /** A pending task, and an attempt that it does not have. */
  readonly taskId: string;
  readonly attemptId: string;
  /** A submission that waits in the session. */
  readonly operationId: string;
  /** What the runner asks of people, and nobody has answered. */
  readonly approvalId: string;
  readonly requestId: string;
  /** Of the session's lease. */
  readonly leaseEpoch: number;
  /** Of a registered reader of the feed, and where it stands. */
  readonly name: string;
  readonly feedCursor: string;
  /** Of the operator. */
  readonly sink: string;
}

let worlds = 0;

export async function makeWorld(api: TestApi): Promise<World> {
  worlds += 1;
  const sessionId = `session-${worlds}`;
  const turn = await api.call('POST', `/v1/sessions/${sessionId}/turns`, {
    headers: { 'idempotency-key': 'turn-1' },
    body: { run: { projectId: 'p', backendProfile: 'shell' }, payload: { text: 'hello' }, dispatch: {} },
  });
  if (turn.status !== 201) throw new Error(`no turn: ${turn.text}`);
  const { run, command } = turn.body as AdmittedTurn;
  const runnerId = `runner-${worlds}`;
  const claim = await api.call('POST', `/v1/runs/${run.id}/claim`, { body: { runnerId } });
  if (claim.status !== 200) throw new Error(`no claim: ${claim.text}`);
  await api.call('POST', '/v1/runners', { body: { runnerId } });
  const job = await api.call('POST', `/v1/runs/${run.id}/jobs`, { body: { commandId: command.id, jobName: 'job' } });
  const slot = await api.call('POST', '/v1/runner-slots', { body: { key: `world-${worlds}`, owner: runnerId } });
  const task = await api.call('POST', '/v1/queue/tasks', { body: newTask });
  if (task.status !== 201) throw new Error(`no task: ${task.text}`);
  const queued = { taskId: (task.body as CreatedQueueTask).task.id, attemptId: `qa_${worlds}` };
  const kept = { jobId: (job.body as SavedRunnerJob).job.id, slot: slot.body as RunnerSlot, profile: 'shell', key: 'subagentIdentity' };
  const { epoch } = claim.body as ClaimedRun;
  const approval = await api.call('POST', `/v1/runs/${run.id}/approvals`, {
    body: { epoch, toolName: 'bash', arguments: {}, timeoutSeconds: 3600 },
  });
  const input = await api.call('POST', `/v1/runs/${run.id}/input-requests`, { body: { epoch, prompt: 'why?', timeoutSeconds: 3600 } });
  if (approval.status !== 201 || input.status !== 201) throw new Error(`nothing asked: ${approval.text} ${input.text}`);
  const { approvalId } = (approval.body as RequestedApproval).approval;
  const { requestId } = (input.body as RequestedInput).request;
  const lease = await acquireSessionLease(api.db, { tenantId: TENANT, sessionId, owner: runnerId });
  await api.call('POST', `/v1/sessions/${sessionId}/submissions`, { headers: { 'idempotency-key': 'op-1' }, body: { kind: 'turn' } });
  await api.db.pool.query('DELETE FROM runplane.feed_consumers'); // of worlds before: a tenant may have a hundred
  const consumer = await api.call('PUT', `/v1/feed/consumers/consumer-${worlds}`, { body: {} });
  if (consumer.status !== 201) throw new Error(`no consumer: ${consumer.text}`);
  const reading = { name: `consumer-${worlds}`, feedCursor: (consumer.body as RegisteredFeedConsumer).consumer.cursor };
  const asked = { approvalId, requestId, leaseEpoch: lease.epoch };
  const sink = `samples-${worlds}`;
  await registerSinks(api.db, [{ name: sink, kind: 'memory', start: 'now' }]);
  return {
    ...queued,
    ...kept,
    ...asked,
    ...reading,
    operationId: 'op-1',
    sessionId,
    runId: run.id,
    commandId: command.id,
    runnerId,
    epoch,
    sink,
  };
}

export interface RouteSample {
  readonly body?: (world: World) => Record<string, unknown>;
  /** Of a route that takes no JSON object. */
  readonly text?: (world: World) => string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, string>>;
  /** What the same call by another tenant gets: not found, a hold that it does not have, or an effect among its own rows alone. */
  readonly foreign: 404 | 409 | 'own';
  /** True where the body names the epoch of a claim, or the call asks for a claim: a runner that was replaced is refused. */
  readonly fenced?: boolean;
  /** False for a stream, which answers for as long as the run lives. */
  readonly answersAtOnce?: boolean;
}

const newRun = { projectId: 'p', backendProfile: 'shell' };
const held = ({ slot: { key, slot, owner, epoch } }: World) => ({ key, slot, owner, epoch });
const completed = { terminalStatus: 'completed' };
const newTask = { projectId: 'p', queue: 'samples', title: 'a task', payload: { n: 1 } };

/** A good request for each route under /v1. A route without one fails the tests that go through the route table. */
export const ROUTE_SAMPLES: Readonly<Record<string, RouteSample>> = {
  'POST /v1/runs': { body: () => newRun, foreign: 'own' },
  'PUT /v1/runs/:runId': { body: () => newRun, foreign: 'own' },
  'GET /v1/runs': { foreign: 'own' },
  'GET /v1/run-facets': { foreign: 'own' },
  'GET /v1/runs/:runId': { foreign: 404 },
  'GET /v1/runs/:runId/result': { foreign: 404 },
  'GET /v1/runs/:runId/why': { foreign: 404 },
  'POST /v1/runs/:runId/cancel': { body: () => ({ reason: 'enough' }), foreign: 404 },
  'GET /v1/runs/:runId/cancel-requests': { foreign: 404 },
  'POST /v1/runs/:runId/commands': { body: () => ({ type: 'note', payload: { text: 'x' } }), foreign: 404 },
  'GET /v1/runs/:runId/commands': { foreign: 404 },
  'GET /v1/commands/:commandId': { foreign: 404 },
  'GET /v1/commands/:commandId/intent': { foreign: 404 },
  'POST /v1/commands/:commandId/cancel': { body: () => ({ reason: 'enough' }), foreign: 404 },
  'GET /v1/runs/:runId/events': { foreign: 404 },
  'GET /v1/runs/:runId/events/count': { foreign: 404 },
  'GET /v1/runs/:runId/output': { foreign: 404 },
  'GET /v1/runs/:runId/commands/:commandId/events': { foreign: 404 },
  'GET /v1/sessions/:sessionId/trace': { foreign: 404 },
  'GET /v1/sessions/:sessionId/output': { foreign: 404 },
  'GET /v1/runs/:runId/events/stream': { foreign: 404, answersAtOnce: false },
  'POST /v1/sessions/:sessionId/turns': {
    body: () => ({ run: newRun, payload: { text: 'again' } }),
    headers: { 'idempotency-key': 'turn-2' },
    foreign: 'own',
  },
  'POST /v1/sessions/:sessionId/steers': {
    body: () => ({ payload: { text: 'to the left' } }),
    headers: { 'idempotency-key': 'steer-1' },
    foreign: 404,
  },
  'GET /v1/sessions/:sessionId': { foreign: 404 },
  'POST /v1/sessions/:sessionId/cancel': { body: () => ({ reason: 'enough' }), foreign: 404 },
  'GET /v1/sessions/:sessionId/cancel-requests': { foreign: 404 },
  'GET /v1/sessions/:sessionId/why': { foreign: 404 },
  'PUT /v1/sessions/:sessionId': { body: () => ({ ...newRun, metadata: { a: 1 } }), foreign: 'own' },
  'GET /v1/sessions': { foreign: 'own' },
  'POST /v1/sessions': { body: ({ sessionId }) => ({ header: { id: `${sessionId}-made` } }), foreign: 'own' },
  'GET /v1/session-logs': { foreign: 'own' },
  'GET /v1/sessions/:sessionId/log': { foreign: 404 },
  'POST /v1/sessions/:sessionId/events': {
    body: ({ leaseEpoch }) => ({ epoch: leaseEpoch, events: [{ type: 'user/message', data: { content: 'x' } }] }),
    foreign: 404,
  },
  'GET /v1/sessions/:sessionId/events': { foreign: 404 },
  'GET /v1/sessions/:sessionId/events/stream': { foreign: 404, answersAtOnce: false },
  'POST /v1/sessions/:sessionId/lease': { body: ({ runnerId }) => ({ owner: runnerId }), foreign: 404 },
  'POST /v1/sessions/:sessionId/lease/renew': {
    body: ({ runnerId, leaseEpoch }) => ({ owner: runnerId, epoch: leaseEpoch }),
    foreign: 404,
  },
  'POST /v1/sessions/:sessionId/lease/release': {
    body: ({ runnerId, leaseEpoch }) => ({ owner: runnerId, epoch: leaseEpoch }),
    foreign: 404,
  },
  'POST /v1/sessions/:sessionId/lease/revoke': { foreign: 404 },
  'GET /v1/sessions/:sessionId/snapshot': { foreign: 404 },
  'GET /v1/recovery-candidates': { foreign: 'own' },
  'GET /v1/projections/:key': { foreign: 'own' },
  'GET /v1/sessions/:sessionId/projections': { foreign: 404 },
  'GET /v1/sessions/:sessionId/channel-bindings': { foreign: 404 },
  'GET /v1/sessions/:sessionId/channel-deliveries': { foreign: 404 },
  'GET /v1/sessions/:sessionId/context-windows': { foreign: 404 },
  'GET /v1/sessions/:sessionId/context-notes': { foreign: 404 },
  'GET /v1/sessions/:sessionId/context-note': { query: { path: 'plan' }, foreign: 404 },
  'GET /v1/sessions/:sessionId/context-history': { foreign: 404 },
  'GET /v1/sessions/:sessionId/context-search': { query: { query: 'x' }, foreign: 404 },
  'POST /v1/sessions/:sessionId/submissions': {
    body: () => ({ kind: 'turn', source: { from: 'here' } }),
    headers: { 'idempotency-key': 'op-2' },
    foreign: 404,
  },
  'GET /v1/sessions/:sessionId/submissions': { foreign: 404 },
  'GET /v1/sessions/:sessionId/submission-counts': { foreign: 404 },
  'GET /v1/sessions/:sessionId/submissions/:operationId': { foreign: 404 },
  'GET /v1/sessions/:sessionId/submissions/:operationId/receipt': { foreign: 404 },
  'GET /v1/sessions/:sessionId/submissions/:operationId/why': { foreign: 404 },
  'POST /v1/sessions/:sessionId/submissions/:operationId/end': { body: () => ({ state: 'completed' }), foreign: 404 },
  'POST /v1/sessions/:sessionId/submissions/:operationId/renew': { body: () => ({ epoch: 1 }), foreign: 404 },
  'POST /v1/sessions/:sessionId/submissions/:operationId/release': { body: () => ({ epoch: 1, error: 'no' }), foreign: 404 },
  'POST /v1/sessions/:sessionId/submissions/:operationId/requeue': { foreign: 404 },
  'GET /v1/submissions': { foreign: 'own' },
  'POST /v1/submissions/claims': { body: () => ({ owner: 'w', kind: 'sample', leaseOwner: 'w', limit: 2 }), foreign: 'own' },
  'POST /v1/submissions/claims/renew': {
    body: ({ sessionId, operationId }) => ({ claims: [{ sessionId, operationId, epoch: 1 }] }),
    foreign: 'own',
  },
  'POST /v1/submissions/claims/settle': {
    body: ({ sessionId, operationId }) => ({ settlements: [{ sessionId, operationId, epoch: 1, outcome: 'released' }] }),
    foreign: 'own',
  },
  'DELETE /v1/sessions/:sessionId': { foreign: 404 },
  'DELETE /v1/runs/:runId': { foreign: 404 },
  'POST /v1/sessions/:sessionId/fork': { body: ({ sessionId }) => ({ newSessionId: `${sessionId}-fork` }), foreign: 404 },
  'GET /v1/sessions/:sessionId/export': { foreign: 404 },
  'POST /v1/session-imports': {
    text: ({ sessionId }) => `{"type":"session","id":"${sessionId}-brought"}\n`,
    headers: { 'content-type': 'application/x-ndjson' },
    foreign: 'own',
  },
  'GET /v1/session-changes': { foreign: 'own' },
  'GET /v1/sessions/:sessionId/summary': { foreign: 404 },
  'GET /v1/sessions/:sessionId/resource-run': { foreign: 404 },
  'POST /v1/sessions/:sessionId/rename': { body: () => ({ title: 'Another' }), foreign: 404 },
  'POST /v1/sessions/:sessionId/read': { body: () => ({ readerId: 'ann' }), foreign: 404 },
  'POST /v1/session-reads': { body: ({ sessionId }) => ({ readerId: 'ann', sessionIds: [sessionId] }), foreign: 'own' },
  'PUT /v1/sessions/:sessionId/storage': { body: () => ({ kind: 'folder', name: 'f' }), foreign: 404 },
  'POST /v1/sessions/:sessionId/storage/evicted': { body: () => ({ name: 'f', storageVersion: 1 }), foreign: 404 },
  'GET /v1/expired-storage': { foreign: 'own' },
  'POST /v1/runs/:runId/session-events': {
    body: ({ epoch }) => ({ epoch, events: [{ type: 'user/message', data: { content: 'x' } }] }),
    foreign: 404,
    fenced: true,
  },
  'POST /v1/runs/:runId/approvals': {
    body: ({ epoch }) => ({ epoch, toolName: 'bash', argumentsDigest: 'a'.repeat(64), reason: 'why' }),
    foreign: 404,
    fenced: true,
  },
  'GET /v1/runs/:runId/approvals/:approvalId': { foreign: 404 },
  'POST /v1/runs/:runId/input-requests': { body: ({ epoch }) => ({ epoch, prompt: 'why?' }), foreign: 404, fenced: true },
  'GET /v1/runs/:runId/input-requests/:requestId': { foreign: 404 },
  'POST /v1/sessions/:sessionId/approvals': {
    body: ({ leaseEpoch }) => ({ epoch: leaseEpoch, toolName: 'bash', argumentsDigest: 'a'.repeat(64), reason: 'why' }),
    foreign: 404,
  },
  'GET /v1/sessions/:sessionId/approvals/:approvalId': { foreign: 404 },
  'POST /v1/sessions/:sessionId/approvals/:approvalId/resolve': {
    body: () => ({ resolution: 'approved', actor: { type: 'user', id: 'ann' }, reason: 'fine' }),
    foreign: 404,
  },
  'POST /v1/sessions/:sessionId/input-requests': {
    body: ({ leaseEpoch }) => ({ epoch: leaseEpoch, prompt: 'why?', inputSchema: {} }),
    foreign: 404,
  },
  'GET /v1/sessions/:sessionId/input-requests/:requestId': { foreign: 404 },
  'POST /v1/sessions/:sessionId/input-requests/:requestId/resolve': {
    body: () => ({ outcome: 'declined', actor: { type: 'user', id: 'ann' }, reason: 'fine' }),
    foreign: 404,
  },
  'GET /v1/approvals': { foreign: 'own' },
  'GET /v1/input-requests': { foreign: 'own' },
  'POST /v1/runs/:runId/claim': { body: ({ runnerId }) => ({ runnerId }), foreign: 404, fenced: true },
  'POST /v1/runs/:runId/heartbeat': { body: ({ epoch }) => ({ epoch }), foreign: 404, fenced: true },
  'POST /v1/runs/:runId/events': {
    body: ({ epoch }) => ({ epoch, events: [{ type: 'assistant_message', payload: { text: 'hi' } }] }),
    foreign: 404,
    fenced: true,
  },
  'POST /v1/runs/:runId/commands/:commandId/ack': { body: ({ epoch }) => ({ epoch }), foreign: 404, fenced: true },
  'POST /v1/runs/:runId/commands/:commandId/finish': { body: ({ epoch }) => ({ epoch, outcome: completed }), foreign: 404, fenced: true },
  'POST /v1/runs/:runId/finish': { body: ({ epoch }) => ({ epoch, outcome: completed }), foreign: 404, fenced: true },
  'POST /v1/runs/:runId/cancel-acknowledgements': { body: ({ epoch }) => ({ epoch, stage: 'delivered' }), foreign: 404, fenced: true },
  'POST /v1/runners': { body: () => ({ placement: 'here' }), foreign: 'own' },
  'GET /v1/runners': { foreign: 'own' },
  'GET /v1/runners/:runnerId': { foreign: 404 },
  'POST /v1/runners/:runnerId/heartbeat': { foreign: 404 },
  'POST /v1/runs/:runId/jobs': { body: ({ commandId }) => ({ commandId, jobName: 'job-2' }), foreign: 404 },
  'GET /v1/runs/:runId/jobs': { foreign: 404 },
  'POST /v1/runs/:runId/jobs/:jobId/result': { body: () => ({ patch: { phase: 'Running' } }), foreign: 404 },
  'POST /v1/runner-slots': { body: () => ({ key: 'cluster', limit: 1000, owner: randomUUID() }), foreign: 'own' },
  'POST /v1/runner-slots/renew': { body: held, foreign: 409 },
  'POST /v1/runner-slots/confirm': { body: held, foreign: 409 },
  'POST /v1/runner-slots/release': { body: held, foreign: 'own' },
  'GET /v1/backends': { foreign: 'own' },
  'PUT /v1/backends/:profile': { body: () => ({ health: { status: 'ready' } }), foreign: 'own' },
  'POST /v1/queue/tasks': { body: () => newTask, foreign: 'own' },
  'POST /v1/queue/task-batches': { body: () => ({ tasks: [newTask] }), foreign: 'own' },
  'GET /v1/queue/tasks': { foreign: 'own' },
  'GET /v1/queue/task-changes': { foreign: 'own' },
  'GET /v1/queue/tasks/:taskId': { foreign: 404 },
  'GET /v1/queue/tasks/:taskId/attempts': { foreign: 404 },
  'GET /v1/queue/tasks/:taskId/why': { foreign: 404 },
  'POST /v1/queue/claims': { body: () => ({ queue: 'samples', owner: 'w', limit: 2 }), foreign: 'own' },
  'POST /v1/queue/claims/renew': { body: ({ taskId }) => ({ claims: [{ taskId, epoch: 1 }] }), foreign: 'own' },
  'POST /v1/queue/claims/settle': { body: ({ taskId }) => ({ settlements: [{ taskId, epoch: 1, outcome: 'completed' }] }), foreign: 'own' },
  'POST /v1/queue/tasks/:taskId/renew': { body: () => ({ epoch: 1, leaseMs: 10_000 }), foreign: 404 },
  'POST /v1/queue/tasks/:taskId/settle': { body: () => ({ epoch: 1, outcome: 'completed' }), foreign: 404 },
  'POST /v1/queue/tasks/:taskId/run': { body: () => ({ dispatch: false }), foreign: 404 },
  'POST /v1/queue/tasks/:taskId/cancel': { body: () => ({ reason: 'enough' }), foreign: 404 },
  'POST /v1/queue/tasks/:taskId/schedule': { body: () => ({ runAt: '2099-01-01T00:00:00Z' }), foreign: 404 },
  'POST /v1/queue/tasks/:taskId/attempts': {
    body: ({ attemptId }) => ({ attemptId, expectedVersion: 1, state: 'running' }),
    foreign: 404,
  },
  'POST /v1/queue/tasks/:taskId/retries': { body: () => ({ reason: 'again' }), headers: { 'idempotency-key': 'retry-1' }, foreign: 404 },
  'POST /v1/queue/tasks/:taskId/retries/:attemptId/activate': { body: () => ({ state: 'running' }), foreign: 404 },
  'POST /v1/queue/tasks/:taskId/retries/:attemptId/failure': { body: () => ({ failureKind: 'timeout' }), foreign: 404 },
  'POST /v1/queue/reads': { body: ({ taskId }) => ({ readerId: 'ann', taskIds: [taskId] }), foreign: 'own' },
  'GET /v1/queue/stats': { foreign: 'own' },
  'GET /v1/queue/commander': { foreign: 'own' },
  'GET /v1/queue/lanes': { foreign: 'own' },
  'PUT /v1/queue/lanes': { body: () => ({ queue: 'samples', lane: 'default', maxRunning: 1_000 }), foreign: 'own' },
  'GET /v1/feed': { foreign: 'own' },
  'GET /v1/feed/stream': { foreign: 'own', answersAtOnce: false },
  'GET /v1/feed/status': { foreign: 'own' },
  'GET /v1/feed/why': { foreign: 'own' },
  'GET /v1/feed/consumers': { foreign: 'own' },
  'PUT /v1/feed/consumers/:name': { body: () => ({ after: 'now' }), foreign: 'own' },
  'GET /v1/feed/consumers/:name': { foreign: 404 },
  'POST /v1/feed/consumers/:name/commit': { body: ({ feedCursor }) => ({ from: feedCursor, to: feedCursor }), foreign: 404 },
  'POST /v1/feed/consumers/:name/rewind': { body: () => ({ to: 'start' }), foreign: 404 },
  'DELETE /v1/feed/consumers/:name': { foreign: 404 },
  'GET /v1/store/feed': { foreign: 'own' },
  'GET /v1/store/feed/why': { foreign: 'own' },
  'GET /v1/relay/sinks': { foreign: 'own' },
  'GET /v1/relay/sinks/:sink': { foreign: 'own' },
  'GET /v1/relay/sinks/:sink/keys': { foreign: 'own' },
  'GET /v1/relay/sinks/:sink/deliveries': { foreign: 'own' },
  'GET /v1/relay/sinks/:sink/why': { query: { shard: '0' }, foreign: 'own' },
  'POST /v1/relay/sinks/:sink/skip': {
    body: () => ({ key: 'nobody/nothing', cursor: encodeFeedCursor('store', { tx: 1n, position: 1n }) }),
    foreign: 404,
  },
  'POST /v1/relay/sinks/:sink/retry': { body: () => ({}), foreign: 'own' },
  'POST /v1/relay/sinks/:sink/republish': { body: () => ({ from: 'now' }), foreign: 'own' },
  'POST /v1/relay/sinks/:sink/enable': { body: () => ({}), foreign: 'own' },
  'POST /v1/relay/sinks/:sink/disable': { foreign: 'own' },
  'POST /v1/admin/retention': { body: () => ({ dryRun: true, policy: { runsDays: 1 } }), foreign: 'own' },
  'GET /v1/health': { foreign: 'own' },
  'GET /v1/migrations': { foreign: 'own' },
  'GET /v1/dispatch': { foreign: 'own' },
  'GET /v1/rebuilds': { foreign: 'own' },
  'POST /v1/sessions/:sessionId/rebuild': { foreign: 404 },
  'GET /v1/sessions/:sessionId/rebuild': { foreign: 404 },
};

/** `POST /v1/runs/:runId/claim` → `/v1/runs/run_…/claim` */
export function pathOf(route: string, world: World): string {
  const [, url = ''] = route.split(' ');
  const path = url.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(String(world[name as Exclude<keyof World, 'slot'>])));
  const { query } = ROUTE_SAMPLES[route] ?? {};
  return query === undefined ? path : `${path}?${new URLSearchParams(query).toString()}`;
}

export const methodOf = (route: string): string => route.split(' ')[0] ?? '';

/** The routes under /v1 as the app has them. */
export function v1Routes(api: TestApi): string[] {
  return api.app.routeTable.filter(({ url }) => url.startsWith('/v1/')).map(({ method, url }) => `${method} ${url}`);
}

export function sampleOf(route: string): RouteSample {
  const sample = ROUTE_SAMPLES[route];
  if (sample === undefined) throw new Error(`${route} has no sample in tests/support/route-samples.ts: add one`);
  return sample;
}

export function callSample(api: TestApi, route: string, world: World, key?: string) {
  const { body, text, headers } = sampleOf(route);
  return api.call(methodOf(route), pathOf(route, world), { key, body: text?.(world) ?? body?.(world), headers });
}
