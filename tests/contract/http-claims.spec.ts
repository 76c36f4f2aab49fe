import { openClient, waitUntilBlocked } from '@runplane/database/testing';
import { once } from 'node:events';
import { request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { useApi } from '../support/test-api';
import { until } from '../support/until';

// Claims over HTTP, and callers who go before they have their answer.

const api = useApi();
let port = 0;
beforeAll(async () => {
  await api.app.listen({ port: 0, host: '127.0.0.1' });
  port = (api.app.server.address() as AddressInfo).port;
});

const connections = (): Promise<number> =>
  new Promise((resolve, reject) => {
    api.app.server.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
  });

interface Claims {
  readonly path: string;
  readonly body: object;
  readonly table: string;
  /** Puts one into the queue. */
  add(): Promise<unknown>;
  /** Who holds it, and how many tries have counted. */
  readonly holder: string;
  readonly claimed: string;
}

const CLAIMS: Record<string, Claims> = {
  'a task': {
    path: '/v1/queue/claims',
    body: { queue: 'gone', owner: 'w' },
    table: 'queue_tasks',
    add: () =>
      api.call('POST', '/v1/queue/tasks', {
        body: { projectId: 'p', queue: 'gone', lane: 'l', title: 't', payload: {} },
        headers: { 'idempotency-key': 'gone' },
      }),
    holder: `SELECT owner, attempts, epoch FROM runplane.queue_tasks WHERE queue = 'gone'`,
    claimed: 'tasks',
  },
  'a submission': {
    path: '/v1/submissions/claims',
    body: { kind: 'gone', owner: 'w' },
    table: 'submission_heads',
    add: async () => {
      await api.call('POST', '/v1/sessions', { body: { header: { id: 'gone' } } });
      await api.call('POST', '/v1/sessions/gone/submissions', { body: { kind: 'gone' }, headers: { 'idempotency-key': 'gone' } });
    },
    holder: `SELECT owner, attempts, epoch FROM runplane.submission_heads WHERE kind = 'gone'`,
    claimed: 'submissions',
  },
};

test.each(Object.keys(CLAIMS))(
  '%s that was claimed for a caller who has gone meanwhile is given back at once, and the try does not count',
  async (what) => {
    const { path, body, table, add, holder, claimed } = CLAIMS[what] as Claims;
    await add();
    const client = await openClient(api.url);
    await client.query(`BEGIN; LOCK TABLE runplane.${table} IN SHARE ROW EXCLUSIVE MODE`);
    const call = request({
      port,
      path,
      method: 'POST',
      headers: { authorization: `Bearer ${api.adminKey}`, 'content-type': 'application/json' },
    });
    call.on('error', () => undefined).end(JSON.stringify(body));
    await once(call, 'finish');
    await waitUntilBlocked(api.db, 1);

    call.destroy();
    await until('the server knows that the caller has gone', async () => (await connections()) === 0);
    await client.query('COMMIT');
    await client.end();

    const row = async () => (await api.db.pool.query(holder)).rows[0];
    await until('the claim is over', async () => (await row()).owner === null && (await row()).epoch > 1);
    expect(await row()).toMatchObject({ owner: null, attempts: 0 });
    const again = await api.call('POST', path, { body });
    expect(again).toMatchObject({ status: 200, body: { [claimed]: [{ attempts: 1 }] } });
  },
);

test.each(Object.entries(CLAIMS))(
  'a claim of %s waits no longer than it may: a longer wait is refused and held by no timer',
  async (_, { path, body }) => {
    expect(await api.call('POST', path, { body: { ...body, waitSeconds: 999_999_999 } })).toMatchObject({
      status: 400,
      body: { code: 'invalid_request' },
    });
  },
);
