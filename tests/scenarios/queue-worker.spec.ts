import { createClient, type Client } from '@runplane/client';
import { runQueueWorker } from '@runplane/runner';
import type { AddressInfo } from 'node:net';
import { useApi } from '../support/test-api';

// A worker of the SDK against the API over HTTP: it is told to stop in the middle of its work, and the next one goes on.

const api = useApi();
let client: Client;

beforeAll(async () => {
  await api.app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = api.app.server.address() as AddressInfo;
  client = createClient({ url: `http://127.0.0.1:${port}`, apiKey: api.adminKey });
});

test('a worker that stops leaves no task behind, and each task is done once', async () => {
  const tasks = Array.from({ length: 24 }, (_, n) => ({
    projectId: 'p',
    queue: 'render',
    lane: `lane-${n % 3}`,
    title: `task ${n}`,
    payload: { n },
  }));
  const { tasks: made } = await client.createQueueTasks({ tasks });
  await client.setLaneLimit({ queue: 'render', lane: 'lane-0', maxRunning: 2 });
  const done: string[] = [];
  const work = (signal: AbortSignal, onEnd: () => void) =>
    runQueueWorker({
      client,
      queue: 'render',
      concurrency: 3,
      prefetch: 5,
      waitSeconds: 1,
      signal,
      handle: async ({ taskId }) => {
        done.push(taskId);
        onEnd();
      },
    });

  const first = new AbortController();
  const stopped = await work(first.signal, () => {
    if (done.length === 6) first.abort();
  });
  const { rows: held } = await api.db.pool.query(`SELECT id FROM runplane.queue_tasks WHERE owner IS NOT NULL`);
  const second = new AbortController();
  const finished = await work(second.signal, () => {
    if (done.length === made.length) second.abort();
  });

  expect(stopped).toMatchObject({ failed: 0, lost: 0 });
  expect(held).toEqual([]);
  expect(stopped.completed + finished.completed).toBe(made.length);
  expect([...done].sort()).toEqual(made.map(({ taskId }) => taskId).sort());
  expect((await client.getQueueStats({ queue: 'render' })).byState).toEqual({ completed: made.length });
});
