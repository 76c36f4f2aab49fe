import { randomUUID } from 'node:crypto';
import { appendRunEvents, claimRun, createRuns, heartbeat } from '@runplane/runs';
import { aClaimedTurn, aRunner, aTurn, message, newRun } from '@runplane/runs/testing';
import { lockRow } from '../support/races';
import { TENANT, useApi, type Answer } from '../support/test-api';

// Somebody holds a row for longer than anybody wants to wait (an operator's open psql, a migration): every call is answered within its
// budget, says that it may be repeated, has changed nothing, and succeeds when it is repeated after the release.

const LOCK_TIMEOUT_MS = 4_000;
/** PostgreSQL lets a waiter behind another one wait twice: for its place in the line, then for the holder. The rest is for a busy machine. */
const BUDGET_MS = 2 * LOCK_TIMEOUT_MS + 12_000;

const api = useApi();

interface Timed extends Answer {
  readonly ms: number;
}

async function timed(call: () => Promise<Answer>): Promise<Timed> {
  const startedAt = performance.now();
  return { ...(await call()), ms: performance.now() - startedAt };
}

const completed = { terminalStatus: 'completed' };

test('calls on a run that somebody holds locked answer 503 in time, its heartbeat at once, and all succeed after the release', async () => {
  const { run, epoch, command } = await aClaimedTurn(api.db);
  const other = await aClaimedTurn(api.db);
  const unclaimed = await aTurn(api.db);
  const path = `/v1/runs/${run.id}`;
  const calls = {
    append: () => api.call('POST', `${path}/events`, { body: { epoch, producerSequence: 1, events: [message('late')] } }),
    ack: () => api.call('POST', `${path}/commands/${command.id}/ack`, { body: { epoch } }),
    cancel: () => api.call('POST', `/v1/runs/${other.run.id}/cancel`, { body: { reason: 'enough', immediate: true } }),
    claim: () => api.call('POST', `/v1/runs/${unclaimed.run.id}/claim`, { body: { runnerId: 'runner-1' } }),
    finish: () => api.call('POST', `${path}/finish`, { body: { epoch, outcome: completed } }),
  };
  const beat = () => api.call('POST', `${path}/heartbeat`, { body: { epoch } });
  const holder = await lockRow(api.url, 'runs', 'true');

  const answers = await Promise.all(Object.values(calls).map(timed));
  const beats = await beat();
  await holder.release();

  expect(answers.map(({ status, body }) => [status, body.code])).toEqual(answers.map(() => [503, 'lock_timeout']));
  for (const { ms, headers } of answers) {
    expect(ms).toBeLessThan(BUDGET_MS);
    expect(headers['retry-after']).toBe('1');
  }
  expect(beats.status).toBe(200); // while the run was held
  for (const call of Object.values(calls)) expect([200, 201]).toContain((await call()).status);
});

test('calls that need a session which somebody holds locked answer 503 in time, appends go on, and all succeed after the release', async () => {
  const busy = await aClaimedTurn(api.db);
  const queued = await aTurn(api.db);
  const free = await aClaimedTurn(api.db);
  const runs = createRuns(api.db);
  await runs.finishRun({ tenantId: TENANT, runId: free.run.id, epoch: free.epoch, outcome: { terminalStatus: 'completed' } });
  const key = randomUUID();
  const calls = {
    finish: () => api.call('POST', `/v1/runs/${busy.run.id}/finish`, { body: { epoch: busy.epoch, outcome: completed } }),
    cancel: () => api.call('POST', `/v1/runs/${queued.run.id}/cancel`, { body: {} }),
    admit: () =>
      api.call('POST', `/v1/sessions/${free.run.sessionId}/turns`, {
        body: { run: newRun(), payload: { text: 'next' } },
        headers: { 'idempotency-key': key },
      }),
  };
  const holder = await lockRow(api.url, 'sessions', 'true');

  const waiting = Promise.all(Object.values(calls).map(timed));
  const notes = { tenantId: TENANT, runId: busy.run.id, epoch: busy.epoch };
  await heartbeat(api.db, notes);
  const answers = await waiting;
  const appended = await appendRunEvents(api.db, { ...notes, producerSequence: 1, events: [message('still here')] });
  await holder.release();

  expect(answers.map(({ status, body }) => [status, body.code])).toEqual(answers.map(() => [503, 'lock_timeout']));
  for (const { ms } of answers) expect(ms).toBeLessThan(BUDGET_MS);
  expect(appended.replayed).toBe(false);
  expect((await calls.finish()).status).toBe(200);
  expect((await calls.cancel()).status).toBe(200);
  expect((await calls.admit()).status).toBe(201);
});

test('heartbeats of other runs do not wait behind one whose lease somebody holds locked', async () => {
  const [stuck, free] = [await aClaimedTurn(api.db), await aClaimedTurn(api.db)];
  const holder = await lockRow(api.url, 'run_leases', `run_id = '${stuck.run.id}'`);

  const waiting = [1, 2, 3].map(() => heartbeat(api.db, { tenantId: TENANT, runId: stuck.run.id, epoch: stuck.epoch }));
  let answered = 0;
  for (const each of waiting)
    void each.then(
      () => (answered += 1),
      () => (answered += 1),
    );
  await heartbeat(api.db, { tenantId: TENANT, runId: free.run.id, epoch: free.epoch });
  expect(answered).toBe(0); // the ones in front of it still wait
  await holder.release();

  for (const answer of await Promise.all(waiting)) expect(answer.leaseRemainingMs).toBeGreaterThan(0);
});

test('a claim waits for nothing but its run', async () => {
  const { run } = await aTurn(api.db);
  const holder = await lockRow(api.url, 'sessions', 'true');

  const claimed = await claimRun(api.db, { tenantId: TENANT, runId: run.id, runnerId: aRunner() });
  await holder.release();

  expect(claimed.epoch).toBe(1);
});
