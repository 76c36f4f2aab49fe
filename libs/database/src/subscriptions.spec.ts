import { Subscriptions } from './subscriptions';

let subscriptions: Subscriptions;
beforeEach(() => {
  subscriptions = new Subscriptions();
});
afterEach(() => {
  subscriptions.close();
});

it('a change wakes everybody who waits for the stream, and nobody else', async () => {
  const [one, two, other] = [subscriptions.subscribe('feed'), subscriptions.subscribe('feed'), subscriptions.subscribe('run:t/1')];
  const waits = [one, two].map((subscription) => subscription.next({ timeoutMs: 5_000 }));
  const otherWait = other.next({ timeoutMs: 20 });

  expect(subscriptions.wake('feed')).toBe(2);

  expect(await Promise.all(waits)).toEqual(['changed', 'changed']);
  expect(await otherWait).toBe('timeout');
});

it('a change that came between two waits is remembered, once', async () => {
  const subscription = subscriptions.subscribe('feed');

  subscriptions.wake('feed');
  subscriptions.wake('feed');

  expect(await subscription.next({ timeoutMs: 0 })).toBe('changed');
  expect(await subscription.next({ timeoutMs: 0 })).toBe('timeout');
});

it.each([0, -5, NaN])('a wait of %p milliseconds times out at once', async (timeoutMs) => {
  expect(await subscriptions.subscribe('feed').next({ timeoutMs })).toBe('timeout');
});

it.each([2 ** 31, Number.MAX_SAFE_INTEGER, Infinity])('a wait of %p milliseconds does not end at once', async (timeoutMs) => {
  const subscription = subscriptions.subscribe('feed');
  const wait = subscription.next({ timeoutMs });
  await new Promise((resolve) => setTimeout(resolve, 20));
  subscriptions.wake('feed');
  expect(await wait).toBe('changed');
});

it('a signal ends a wait, also one that was given before', async () => {
  const subscription = subscriptions.subscribe('feed');
  const controller = new AbortController();
  const wait = subscription.next({ timeoutMs: 5_000, signal: controller.signal });

  controller.abort();

  expect(await wait).toBe('aborted');
  expect(await subscription.next({ timeoutMs: 5_000, signal: controller.signal })).toBe('aborted');
});

it('waits leave no listener on a signal that lives longer', async () => {
  const { signal } = new AbortController();
  const added = jest.spyOn(signal, 'addEventListener');
  const removed = jest.spyOn(signal, 'removeEventListener');
  const subscription = subscriptions.subscribe('feed');

  for (let turn = 0; turn < 20; turn += 1) await subscription.next({ timeoutMs: 0, signal });

  expect(removed).toHaveBeenCalledTimes(added.mock.calls.length);
});

it('the end answers closed to all who wait and to all who come later', async () => {
  const wait = subscriptions.subscribe('feed').next({ timeoutMs: 5_000 });

  subscriptions.close();

  expect(await wait).toBe('closed');
  expect(await subscriptions.subscribe('feed').next({ timeoutMs: 5_000 })).toBe('closed');
  expect([subscriptions.count, subscriptions.streams]).toEqual([0, []]);
});

it('a closed subscription answers closed and leaves nothing behind', async () => {
  const subscription = subscriptions.subscribe('run:t/1');
  const wait = subscription.next({ timeoutMs: 5_000 });

  subscription.close();
  subscription.close();

  expect(await wait).toBe('closed');
  expect([subscriptions.count, subscriptions.streams]).toEqual([0, []]);
});

it('two waits at a time on one subscription are a mistake of the caller', () => {
  const subscription = subscriptions.subscribe('feed');
  void subscription.next({ timeoutMs: 5_000 });
  expect(() => subscription.next({ timeoutMs: 5_000 })).toThrow('one call of next at a time');
});
