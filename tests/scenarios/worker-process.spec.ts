import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { useApi } from '../support/test-api';
import { until } from '../support/until';

// Workers as processes of their own, told to stop by SIGTERM in the middle of their work.

const PROGRAM = path.resolve(__dirname, '../dist/support/worker-process.js');
const api = useApi();
let url = '';
const children: ChildProcess[] = [];
beforeAll(async () => {
  await api.app.listen({ port: 0, host: '127.0.0.1' });
  url = `http://127.0.0.1:${(api.app.server.address() as AddressInfo).port}`;
});
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

const COUNT = 8;
const numbers = Array.from({ length: COUNT }, (_, n) => `w${n}`);

interface Work {
  put(): Promise<unknown>;
  /** A row for each: whether somebody holds it, how many tries have counted, and whether it has ended. */
  readonly rows: string;
}

const WORK: Record<'task' | 'submission', Work> = {
  task: {
    put: () =>
      api.call('POST', '/v1/queue/task-batches', {
        body: { tasks: numbers.map((title) => ({ projectId: 'p', queue: 'work', lane: 'l', title, payload: {}, idempotencyKey: title })) },
      }),
    rows: `SELECT owner IS NOT NULL AS "isHeld", attempts, state = 'completed' AS "isDone" FROM runplane.queue_tasks WHERE queue = 'work'`,
  },
  submission: {
    put: async () => {
      for (const id of numbers) {
        await api.call('POST', '/v1/sessions', { body: { header: { id } } });
        await api.call('POST', `/v1/sessions/${id}/submissions`, { body: { kind: 'work' }, headers: { 'idempotency-key': id } });
      }
    },
    rows: `SELECT coalesce(h.owner IS NOT NULL, false) AS "isHeld", s.attempts + coalesce(h.attempts, 0) AS attempts, s.state = 'completed' AS "isDone"
             FROM runplane.submissions s LEFT JOIN runplane.submission_heads h USING (tenant_id, session_id, operation_id) WHERE s.kind = 'work'`,
  },
};

test.each(['task', 'submission'] as const)(
  'a worker of the kind %s that gets SIGTERM, and once more while it stops, ends what it has begun, gives back the rest, and exits with 0',
  async (kind) => {
    await WORK[kind].put();
    const child = spawn(process.execPath, [PROGRAM], {
      env: { PATH: process.env['PATH'], RUNPLANE_URL: url, RUNPLANE_API_KEY: api.adminKey, WORKER_KIND: kind },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    children.push(child);
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
    const exited = once(child, 'exit');
    const rows = async () => (await api.db.pool.query(WORK[kind].rows)).rows as { isHeld: boolean; attempts: number; isDone: boolean }[];
    const held = async () => (await rows()).filter(({ isHeld }) => isHeld).length;
    await until('two are at work and three wait in the worker', async () => output.split('begun').length === 3 && (await held()) === 5);

    child.kill('SIGTERM');
    await until('it has given back what it had not begun', async () => (await held()) === 2);
    child.kill('SIGTERM');
    expect([await exited, output]).toMatchObject([[0, null], expect.stringContaining('{"completed":2,"failed":0,"released":3,"lost":0}')]);

    const after = await rows();
    expect(after.filter(({ isHeld }) => isHeld)).toEqual([]);
    expect(after.filter(({ isDone }) => isDone)).toHaveLength(2);
    expect(after.filter(({ attempts }) => attempts > 0)).toHaveLength(2); // a stop is no failure: it uses up no try
  },
);
