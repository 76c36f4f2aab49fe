import { APPEND_BYTES_MAX, AppendedEvents, COALESCER_QUEUE_BYTES_MAX, EVENT_BYTES_MAX } from '@runplane/contracts';
import { buildApp } from '@runplane/api';
import { openDb } from '@runplane/database';
import { openClient } from '@runplane/database/testing';
import { appendRunEvents, cancelRun } from '@runplane/runs';
import { ending, hold } from '../support/races';
import { makeWorld } from '../support/route-samples';
import { TENANT, useApi } from '../support/test-api';

const api = useApi({ database: { db: { lockTimeoutMs: 300 } } });

describe('when something is wrong on our side', () => {
  test('a row that stays locked is a 503 with a hint, nothing is lost, and the repeat works', async () => {
    const { runId, epoch } = await makeWorld(api);
    const path = `/v1/runs/${runId}`;
    const append = () =>
      api.call('POST', `${path}/events`, { body: { epoch, producerSequence: 1, events: [{ type: 'reasoning', payload: { text: 'x' } }] } });
    const cancel = () => api.call('POST', `${path}/cancel`, { body: { reason: 'enough', graceMs: 60_000 } });
    const finish = () => api.call('POST', `${path}/finish`, { body: { epoch, outcome: { terminalStatus: 'completed' } } });
    const holder = await openClient(api.url);
    await holder.query('BEGIN');
    await holder.query('SELECT FROM runplane.runs WHERE id = $1 FOR UPDATE', [runId]);

    const refused = [await append(), await cancel(), await finish()];
    const beat = await api.call('POST', `${path}/heartbeat`, { body: { epoch } });
    const read = await api.call('GET', path);
    await holder.query('ROLLBACK');
    await holder.end();
    const repeated = [await append(), await cancel(), await finish()];

    for (const { status, headers, body } of refused) {
      expect([status, headers['retry-after'], body.code, body.retryable]).toEqual([503, '1', 'lock_timeout', true]);
    }
    expect([beat.status, read.status]).toEqual([200, 200]);
    expect(repeated.map(({ status }) => status)).toEqual([201, 200, 200]);
  });

  test('more appends than may wait are sent away with a hint, also of runs that nobody holds up, and none is half done', async () => {
    const db = await openDb({ url: api.url, lockTimeoutMs: 14_000 }); // longer than it takes to send 64 MiB
    const app = await buildApp({ db, logger: false });
    const [stuck, free] = [await makeWorld(api), await makeWorld(api)];
    const append = (text: string) =>
      app.inject({
        method: 'POST',
        url: `/v1/runs/${free.runId}/events`,
        headers: { authorization: `Bearer ${api.adminKey}` },
        payload: { epoch: free.epoch, producerSequence: 1, events: [{ type: 'reasoning', payload: { text } }] },
      });
    const holder = await hold(api.db, (tx) => cancelRun(tx, { tenantId: TENANT, runId: stuck.runId, reason: 'enough', immediate: true }));
    const large = Array.from({ length: 4 }, () => ({ type: 'reasoning' as const, payload: { text: 'x'.repeat(EVENT_BYTES_MAX - 100) } }));
    const waiting = Array.from({ length: 1 + COALESCER_QUEUE_BYTES_MAX / APPEND_BYTES_MAX }, () =>
      ending(appendRunEvents(db, { tenantId: TENANT, runId: stuck.runId, epoch: stuck.epoch, events: large })),
    );

    const refused = await append('x'.repeat(100_000));
    const metrics = await app.inject('/metrics');
    await holder.commit();
    const ended = await Promise.all(waiting);
    const repeated = await append('x'.repeat(100_000));

    expect([refused.statusCode, refused.headers['retry-after'], refused.json()]).toMatchObject([
      503,
      '1',
      { code: 'backlog_full', retryable: true },
    ]);
    expect(metrics.payload).toMatch(/runplane_coalesced_refused\{kind="append"\} 1\n/);
    expect([repeated.statusCode, repeated.json()]).toMatchObject([201, { replayed: false }]);
    expect(ended).toMatchObject(waiting.map(() => ({ code: 'run_closed' })));
    await app.close();
    await db.close();
  });

  test('an answer that does not fit its schema is a 500 without detail, and the log says which route', async () => {
    const lines: string[] = [];
    const app = await buildApp({ db: api.db, logger: { level: 'info', stream: { write: (line) => void lines.push(line) } } });
    const misfit = { firstSeq: 'canary' } as never;
    app.get('/v1/misfit', { config: { access: 'public' }, schema: { response: { 200: AppendedEvents } } }, async () => misfit);
    const answer = await app.inject('/v1/misfit');
    await app.close();

    expect([answer.statusCode, answer.json().code]).toEqual([500, 'internal_error']);
    expect(answer.payload).not.toMatch(/canary|firstSeq|schema/);
    expect(lines.join('')).toMatch(/FST_ERR_RESPONSE_SERIALIZATION/);
    expect(lines.join('')).not.toContain('canary');
  });

  test('a busy session says who holds it and when to come back', async () => {
    const { sessionId, runId, commandId } = await makeWorld(api);
    const turn = { run: { projectId: 'p', backendProfile: 'shell' }, payload: { text: 'again' } };

    const busy = await api.call('POST', `/v1/sessions/${sessionId}/turns`, { headers: { 'idempotency-key': 'other' }, body: turn });

    expect([busy.status, busy.body.code, busy.body.retryable]).toEqual([409, 'session_busy', true]);
    expect(busy.body.data).toMatchObject({ sessionId, runId, commandId });
    const { staleInMs } = busy.body.data;
    expect(busy.headers['retry-after']).toBe(staleInMs === null ? undefined : String(Math.max(1, Math.ceil(staleInMs / 1000))));
  });

  test('a run that another runner holds says for how long', async () => {
    const { runId } = await makeWorld(api);

    const { status, headers, body } = await api.call('POST', `/v1/runs/${runId}/claim`, { body: { runnerId: 'second' } });

    expect([status, body.code]).toEqual([409, 'run_claimed']);
    expect(Number(headers['retry-after'])).toBe(Math.ceil(body.data.leaseRemainingMs / 1000));
  });
});
