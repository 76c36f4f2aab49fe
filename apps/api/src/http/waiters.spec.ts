import { once } from 'node:events';
import { pipelined, type Pipelined } from '../testing/pipelined';
import { Waiters } from './waiters';

let client: Pipelined;
afterEach(() => {
  client.close();
});

test('a waiter ends with its connection, also one whose turn to be answered has not come', async () => {
  client = await pipelined(20);
  const waiters = new Waiters(20);
  const signals = client.replies.map((reply) => waiters.enter(reply).signal);

  client.socket.destroy();

  for (const signal of signals) if (!signal.aborted) await once(signal, 'abort');
  expect(signals).toHaveLength(20);
}, 20_000); // else it waits for ever

test('whoever has gone before it waits does not wait', async () => {
  client = await pipelined(2);
  const closed = client.replies.map(({ request }) => once(request.raw.socket, 'close'));
  client.socket.destroy();
  await Promise.all(closed);

  const waiters = new Waiters(2);

  expect(client.replies.map((reply) => waiters.enter(reply).signal.aborted)).toEqual([true, true]);
});

test('a waiter that leaves lets go of its connection, which takes the next request', async () => {
  client = await pipelined(1);
  const waiters = new Waiters(1);
  const listeners = client.replies.map((reply) => {
    const { socket } = reply.request.raw;
    const before = socket.listenerCount('close');
    waiters.enter(reply).leave();
    return socket.listenerCount('close') - before;
  });

  expect([listeners, waiters.count]).toEqual([[0], 0]);
});
