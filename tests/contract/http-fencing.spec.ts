import { allRows } from '../support/rows';
import { makeWorld, callSample, ROUTE_SAMPLES, sampleOf, v1Routes, type World } from '../support/route-samples';
import { useApi } from '../support/test-api';

const api = useApi();

/** The first runner's lease is over and a second one holds the run; the first one does not know. */
async function makeReplaced(): Promise<World> {
  const world = await makeWorld(api);
  await api.db.pool.query(`UPDATE runplane.run_leases SET expires_at = now() - interval '1 second' WHERE run_id = $1`, [world.runId]);
  const claim = await api.call('POST', `/v1/runs/${world.runId}/claim`, { body: { runnerId: `${world.runnerId}-second` } });
  if (claim.status !== 200 || claim.body.epoch <= world.epoch) throw new Error(`no second claim: ${claim.text}`);
  await api.call('POST', `/v1/runs/${world.runId}/cancel`, {
    body: { reason: 'so that there is a cancel to acknowledge', graceMs: 600_000 },
  });
  return world;
}

/** A refusal may be told in the run's own log; nothing else may move. */
function withoutRefusalRecords(rows: Record<string, string[]>): Record<string, string[]> {
  const { run_events = [], outbox_events = [], runs = [], ...others } = rows;
  const withoutRecord = (all: string[]) => all.filter((row) => !row.includes('stale-writer-refused'));
  const withoutCounters = runs.map((row) => row.replace(/^\d+ /, '').replace(/"(last_event_seq|last_tx|updated_at)":("[^"]*"|\d+),?/g, ''));
  return { ...others, runs: withoutCounters, run_events: withoutRecord(run_events), outbox_events: withoutRecord(outbox_events) };
}

const runnerRoutes = Object.keys(ROUTE_SAMPLES).filter((route) => ROUTE_SAMPLES[route]?.fenced === true);

describe('a runner that was replaced', () => {
  test('meets a fence on every route that takes the scope of runners alone', () => {
    const ofRunners = api.app.routeTable.filter(({ access }) => access !== 'public' && access.length === 1 && access[0] === 'runner');
    const unfenced = ofRunners.map(({ method, url }) => `${method} ${url}`).filter((route) => sampleOf(route).fenced !== true);

    // A runner that tells of itself, and dispatchers that record their launches and hold places: none writes as the holder of a run.
    expect(unfenced).toEqual([
      'POST /v1/runners',
      'POST /v1/runners/:runnerId/heartbeat',
      'POST /v1/runs/:runId/jobs',
      'POST /v1/runs/:runId/jobs/:jobId/result',
      'POST /v1/runner-slots',
      'POST /v1/runner-slots/renew',
      'POST /v1/runner-slots/confirm',
      'POST /v1/runner-slots/release',
    ]);
    expect(runnerRoutes.every((route) => v1Routes(api).includes(route))).toBe(true);
  });

  test.each(runnerRoutes)('gets 409 from %s and changes nothing', async (route) => {
    const world = await makeReplaced();
    const before = withoutRefusalRecords(await allRows(api.db));

    const answer = await callSample(api, route, world);

    expect(answer.status).toBe(409);
    expect(answer.body.code).toMatch(/^(lease_lost|run_claimed|run_cancelling)$/);
    expect(answer.body.failureKind).toMatch(/^(runner-lease-conflict|cancelled)$/);
    expect(withoutRefusalRecords(await allRows(api.db))).toEqual(before);
  });

  test('is told at most once a minute in the log of the run, without what it wanted to write', async () => {
    const world = await makeReplaced();
    for (let n = 0; n < 3; n += 1) {
      await api.call('POST', `/v1/runs/${world.runId}/events`, {
        body: { epoch: world.epoch, events: [{ type: 'reasoning', payload: { text: 'stale words' } }] },
      });
    }

    const { body } = await api.call('GET', `/v1/runs/${world.runId}/events`);

    const records = body.events.filter((event: { payload: { phase?: string } }) => event.payload.phase === 'stale-writer-refused');
    expect(records).toHaveLength(1);
    expect(JSON.stringify(body.events)).not.toContain('stale words');
  });
});

/** Whatever names an epoch below a session: routes of session workers, and of workers that have claimed a submission of it. */
const epochRoutes = Object.entries(ROUTE_SAMPLES).flatMap(([route, { body }]) =>
  route.startsWith('POST /v1/sessions/:sessionId/') && 'epoch' in (body?.({ leaseEpoch: 1 } as World) ?? {}) ? [route] : [],
);
const claimRoutes = epochRoutes.filter((route) => route.includes('/submissions/:operationId/'));
const workerRoutes = epochRoutes.filter((route) => !claimRoutes.includes(route));

describe('a session worker that was replaced', () => {
  async function makeReplacedWorker(): Promise<World> {
    const world = await makeWorld(api);
    const lease = `/v1/sessions/${world.sessionId}/lease`;
    await api.call('POST', `${lease}/revoke`);
    const next = await api.call('POST', lease, { body: { owner: 'the next worker' } });
    if (next.status !== 200 || next.body.epoch <= world.leaseEpoch) throw new Error(`no second lease: ${next.text}`);
    return world;
  }

  test('meets a fence on every route that names its epoch', () => {
    expect(workerRoutes).toEqual([
      'POST /v1/sessions/:sessionId/events',
      'POST /v1/sessions/:sessionId/lease/renew',
      'POST /v1/sessions/:sessionId/lease/release',
      'POST /v1/sessions/:sessionId/approvals',
      'POST /v1/sessions/:sessionId/input-requests',
    ]);
  });

  test.each(workerRoutes)('moves nothing by %s', async (route) => {
    const world = await makeReplacedWorker();
    const before = await allRows(api.db);

    const answer = await callSample(api, route, world);

    if (route.endsWith('/release')) expect(answer).toMatchObject({ status: 200, body: { released: false } });
    else expect(answer).toMatchObject({ status: 409, body: { code: 'session_lease_lost', failureKind: 'runner-lease-conflict' } });
    expect(await allRows(api.db)).toEqual(before);
  });
});

describe('a worker whose claim of a submission is over', () => {
  test('meets a fence on every route that names its epoch', () => {
    expect(claimRoutes).toEqual([
      'POST /v1/sessions/:sessionId/submissions/:operationId/renew',
      'POST /v1/sessions/:sessionId/submissions/:operationId/release',
    ]);
  });

  test.each(claimRoutes)('moves nothing by %s', async (route) => {
    const world = await makeWorld(api);
    const before = await allRows(api.db);

    const answer = await callSample(api, route, world);

    expect(answer).toMatchObject({ status: 409, body: { code: 'claim_lost', failureKind: 'runner-lease-conflict' } });
    expect(await allRows(api.db)).toEqual(before);
  });
});
