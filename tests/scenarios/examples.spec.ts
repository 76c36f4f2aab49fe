import { createClient } from '@runplane/client';
import { ensureTenant } from '@runplane/database';
import { openClient } from '@runplane/database/testing';

import { countEndedRuns } from '@runplane/examples/consume-feed';
import { placeOrder } from '@runplane/examples/embed';
import { ask } from '@runplane/examples/follow-run';
import { openWithCost, totalCost } from '@runplane/examples/own-view';
import { countWords } from '@runplane/examples/runner';
import { cleanUp } from '@runplane/examples/session-worker';
import {
  acquireSessionLease,
  appendSessionEvents,
  createSessions,
  listPendingApprovals,
  readSessionEvents,
  readSnapshot,
} from '@runplane/sessions';
import { useApi } from '../support/test-api';
import { until } from '../support/until';

const api = useApi();
let url: string;
beforeAll(async () => {
  url = await api.app.listen({ host: '127.0.0.1', port: 0 });
});

describe('examples/embed', () => {
  it('commits an order and its run together, or neither', async () => {
    await ensureTenant(api.db.sql, 'shop');
    const shop = await openClient(api.url);
    await shop.query('CREATE TABLE shop_orders (id text PRIMARY KEY, wish text NOT NULL CHECK (wish <> $$nonsense$$), run_id text)');
    const runsOf = async (id: string) => (await shop.query('SELECT id FROM runplane.runs WHERE session_id = $1', [`order-${id}`])).rows;

    const { runId } = await placeOrder(shop, api.db, { id: '1', wish: 'a red bicycle' });
    expect(await runsOf('1')).toEqual([{ id: runId }]);
    expect((await shop.query('SELECT run_id FROM shop_orders')).rows).toEqual([{ run_id: runId }]);

    await shop.query('ALTER TABLE shop_orders ADD CHECK (run_id IS NULL OR id <> $$2$$)'); // the last write of the second order fails
    await expect(placeOrder(shop, api.db, { id: '2', wish: 'a blue one' })).rejects.toMatchObject({ code: '23514' });
    expect(await runsOf('2')).toEqual([]);
    await shop.end();
  });
});

describe('examples/session-worker', () => {
  it.each([
    ['approved', ['a/b'], ['tool/call', 'tool/result', 'step/end', 'turn/end']],
    ['rejected', [], ['tool/result', 'step/end', 'turn/end']],
  ] as const)('asks before it acts: %s', async (resolution, removed, after) => {
    await ensureTenant(api.db.sql, 'shop');
    const session = { tenantId: 'shop', sessionId: `cleaner-${resolution}` };
    await createSessions(api.db).createSession({ tenantId: 'shop', header: { id: session.sessionId } });

    const gone: string[] = [];
    const working = cleanUp(api.db, { ...session, turnId: 't1', folder: 'a/b' }, async (path) => void gone.push(path));
    const asked = await until('it asks', async () => (await listPendingApprovals(api.db, session)).approvals[0]);
    expect(asked).toMatchObject({ toolName: 'remove_folder', argumentsSummary: { folder: 'a/b' }, outcome: 'pending' });
    const { approvalId, revision } = asked;
    await createSessions(api.db).resolveApproval({ ...session, approvalId, resolution, revision, actor: { type: 'user', id: 'ada' } });

    expect(await working).toBe(resolution);
    expect(gone).toEqual(removed);
    const { events } = await readSessionEvents(api.db, session);
    expect(events.map(({ type }) => type)).toEqual([
      'turn/start',
      'step/start',
      'assistant/message',
      'approval/requested',
      'approval/resolved',
      ...after,
    ]);
    expect((await readSnapshot(api.db, session)).snapshot).toMatchObject({
      activeTurnId: null,
      driverState: 'idle',
      pendingApprovalIds: [],
    });
  });
});

describe('examples/runner and examples/follow-run', () => {
  it('work on a turn and follow it to its end', async () => {
    const lines: string[] = [];
    const asked = ask(url, api.adminKey, 'Zwei Wörter', (line) => lines.push(line));
    const run = await until('the run exists', async () => {
      const { runs } = await createClient({ url, apiKey: api.adminKey }).listRuns({ sessionId: 'my-session' });
      return runs[0];
    });

    const end = await countWords(url, await api.makeRunToken(run.id), run.id);

    expect(end.kind).toBe('finished');
    expect(await asked).toBe('completed: You wrote 2 words.');
    expect(lines.join('\n')).toContain('“Wörter” has 6 letters.');
    expect(lines.filter((line) => line.includes('terminal_status'))).toHaveLength(1);
  });
});

describe('examples/own-view', () => {
  it('keeps a view of its own over the logs of sessions', async () => {
    await ensureTenant(api.db.sql, 'shop');
    const db = await openWithCost(api.url);
    const costing = (sessionId: string, micros: number[], at = db) =>
      appendSessionEvents(at, {
        tenantId: 'shop',
        sessionId,
        epoch: 1,
        events: micros.map((each) => ({ type: 'metrics/model-call', data: { micros: each } })),
      });
    for (const sessionId of ['dear', 'cheap']) {
      await createSessions(db).createSession({ tenantId: 'shop', header: { id: sessionId } });
      await acquireSessionLease(db, { tenantId: 'shop', sessionId, owner: 'w' });
    }

    await costing('dear', [700, 300]);
    await costing('cheap', [4], api.db); // by a process without the view
    expect(await totalCost(db, 'shop')).toBe(1000);
    await costing('cheap', [1]);
    expect(await totalCost(db, 'shop')).toBe(1005);
    await db.close();
  });
});

describe('examples/consume-feed', () => {
  it('counts each run once: also one whose page came again after a crash, and those that ended while it was away', async () => {
    const key = await api.makeKey(['feed:read', 'runs:write']);
    const client = createClient({ url, apiKey: key });
    const table = await openClient(api.url);
    await table.query('CREATE TABLE ended_runs (event_id text PRIMARY KEY, project_id text, outcome text)');
    const endARun = async () => {
      const { run } = await client.createRun({ projectId: 'counted', backendProfile: 'shell' });
      await client.cancelRun(run.id, { immediate: true });
    };
    const counted = async () =>
      (await table.query(`SELECT count(*)::int AS n FROM ended_runs WHERE project_id = 'counted'`)).rows[0]?.n as number;
    const consume = () => {
      const stop = new AbortController();
      const done = countEndedRuns(table, { url, apiKey: key, signal: stop.signal });
      return async () => (stop.abort(), done);
    };

    await endARun();
    const stopFirst = consume();
    await until('the first is counted', async () => (await counted()) === 1 || undefined);
    const { cursor } = (await client.getFeedConsumer('ended-runs')) as { cursor: string };
    await stopFirst();
    await endARun();
    // As a crash between the handler and the commit leaves it: counted, and the place where it was.
    await client.rewindFeedConsumer('ended-runs', 'start');
    const stopSecond = consume();
    await until('the second is counted', async () => (await counted()) === 2 || undefined);
    await until('it has committed', async () => (await client.getFeedConsumer('ended-runs')).lag.events === 0 || undefined);
    await stopSecond();

    expect(await counted()).toBe(2);
    expect((await client.getFeedConsumer('ended-runs')).cursor).not.toBe(cursor);
    await table.end();
  });
});
