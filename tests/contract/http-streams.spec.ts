import { setTimeout as sleep } from 'node:timers/promises';
import { buildApp, type App } from '@runplane/api';
import { openClient } from '@runplane/database/testing';
import { makeWorld, type World } from '../support/route-samples';
import { parseFrames, RawClient, type SseFrame } from '../support/sse-client';
import { useApi } from '../support/test-api';

const api = useApi({ app: { waitersMax: 60 }, database: { db: { onError: () => undefined } } }); // connections are killed on purpose
let world: World;
/** Events that a run has at the start of a test. */
let known: number;
let address: string;
const clients: RawClient[] = [];

beforeAll(async () => {
  address = await api.app.listen({ host: '127.0.0.1', port: 0 });
});
beforeEach(async () => {
  world = await makeWorld(api);
  known = (await api.call('GET', path())).body.lastEventSeq;
});
afterEach(async () => {
  for (const client of clients.splice(0)) client.cut();
  await until(async () => (await waiters()) === 0 && api.db.hub.stats.subscriptions === 0, 'no waiter is left');
  expect(api.db.pool.waitingCount).toBe(0);
});

const path = () => `/v1/runs/${world.runId}`;
const append = async (events: { type: string; payload: unknown }[]) => {
  const answer = await api.call('POST', `${path()}/events`, { body: { epoch: world.epoch, events } });
  if (answer.status !== 201) throw new Error(answer.text);
};
const say = (text: string) => append([{ type: 'assistant_message', payload: { text } }]);
const sayMany = async (count: number, text = 'x') => {
  for (let left = count; left > 0; left -= 500) {
    await append(Array.from({ length: Math.min(left, 500) }, () => ({ type: 'assistant_message', payload: { text } })));
  }
};
const finish = () => api.call('POST', `${path()}/finish`, { body: { epoch: world.epoch, outcome: { terminalStatus: 'completed' } } });
const log = async () => {
  const events: { seq: number }[] = [];
  for (;;) {
    const { body } = await api.call('GET', `${path()}/events?limit=500&after=${events.at(-1)?.seq ?? 0}`);
    if (body.events.length === 0) return events;
    events.push(...body.events);
  }
};
const open = (headers: Record<string, string> = {}, query = '', on = address) => {
  const client = new RawClient(on, `${path()}/events/stream${query}`, { authorization: `Bearer ${api.adminKey}`, ...headers });
  clients.push(client);
  return client;
};
const events = (frames: SseFrame[]) => frames.filter(({ id }) => id !== undefined).map(({ data }) => data);
const ended = (client: RawClient) => client.frames.at(-1)?.event === 'end';
const waiters = async () => Number(/^runplane_waiters (\d+)$/m.exec((await api.call('GET', '/metrics')).text)?.[1]);
async function until(holds: () => Promise<boolean>, what: string): Promise<void> {
  for (const late = Date.now() + 60_000; !(await holds()); await sleep(10)) if (Date.now() > late) throw new Error(`never came: ${what}`);
}

describe('a stream', () => {
  test('sends its headers at once, with what proxies must know', async () => {
    const client = open({}, `?after=${known}`); // nothing to send yet

    await client.until(({ body }) => body.includes('retry:'), 'the first bytes', 10_000); // before the first ping

    const head = client.head.toLowerCase();
    expect(head).toMatch(/^http\/1.1 200/);
    expect(head).toContain('content-type: text/event-stream');
    expect(head).toContain('cache-control: no-cache, no-transform');
    expect(head).toContain('x-accel-buffering: no');
    expect(head).toContain('x-request-id: req_');
    expect(head).not.toContain('content-encoding');
  });

  test('ends with the run: the whole log in order, then a frame without id that says how it ended', async () => {
    const early = open();
    await say('one');
    await say('two');
    await finish();
    const late = open();
    await early.until(ended, 'the end');
    await late.until(({ complete }) => complete, 'the end of a stream that came late');

    const all = await log();
    for (const client of [early, late]) {
      expect(events(client.frames)).toEqual(all);
      const end = client.frames.at(-1);
      expect(end).toEqual({ id: undefined, event: 'end', data: { status: 'completed', terminalSeq: expect.any(Number) } });
    }
    expect(early.frames.filter(({ id }) => id !== undefined).map(({ id }) => id)).toEqual(all.map(({ seq }) => `${world.runId}:${seq}`));
  });

  test('that is cut in the middle goes on behind the last frame, and the parts together are the log', async () => {
    await sayMany(600);
    const received: SseFrame[] = [];
    const writing = (async () => {
      for (let n = 0; n < 20; n += 1) await say(`while reading ${n}`);
      await finish();
    })();
    for (let cuts = 0; cuts < 6; cuts += 1) {
      const lastId = received.filter(({ id }) => id !== undefined).at(-1)?.id;
      const client = open(lastId === undefined ? {} : { 'last-event-id': lastId });
      // On a slow machine one look may show the whole rest: nothing more comes behind the end then.
      await client.until(({ frames }) => frames.at(-1)?.event === 'end' || (cuts < 5 && frames.length >= 100), 'more of the log');
      client.cut();
      received.push(...client.frames);
    }
    await writing;

    expect(events(received)).toEqual(await log());
  });

  test('of one client is not hurried on by another that is further', async () => {
    await sayMany(300);
    const first = open();
    await first.until(({ frames }) => frames.length > 300, 'the log so far');
    const writing = (async () => {
      for (let n = 0; n < 60; n += 1) await say(`live ${n}`);
      await finish();
    })();
    const others = Array.from({ length: 20 }, (_, n) => open({ 'last-event-id': `${world.runId}:${n * 10}` }));
    await writing;
    for (const client of [first, ...others]) await client.until(ended, 'the end');

    const all = await log();
    expect(events(first.frames)).toEqual(all);
    for (const [n, client] of others.entries()) expect(events(client.frames)).toEqual(all.slice(n * 10));
  });

  test('takes the header before the query', async () => {
    await say('six');
    await finish();
    const seqs = async (headers: Record<string, string>, query: string) => {
      const client = open(headers, query);
      await client.until(ended, 'the end');
      return events(client.frames).map((event) => (event as { seq: number }).seq);
    };
    const all = (await log()).map(({ seq }) => seq);

    expect(await seqs({ 'last-event-id': `${world.runId}:4` }, '?after=1')).toEqual(all.slice(4));
    expect(await seqs({ 'last-event-id': '' }, '?after=2')).toEqual(all.slice(2));
    expect(await seqs({ 'last-event-id': `${world.runId}:0` }, '')).toEqual(all);
  });

  test('refuses a Last-Event-ID that is none of this run', async () => {
    for (const id of ['0', '5', 'run_other:1', ':1', 'x', '-1']) {
      const answer = await api.call('GET', `${path()}/events/stream`, { headers: { 'last-event-id': id } });
      expect([id, answer.status, answer.body.code]).toEqual([id, 400, 'invalid_cursor']);
    }
  });

  test('refuses to start behind the end of the log', async () => {
    for (const [headers, query] of [
      [{ 'last-event-id': `${world.runId}:999` }, ''],
      [{}, '?after=999'],
    ] as const) {
      const answer = await api.call('GET', `${path()}/events/stream${query}`, { headers });
      expect([answer.status, answer.body.code]).toEqual([400, 'invalid_cursor']);
    }
  });

  test('cannot be forged by what is in an event', async () => {
    const nasty = 'a\r\n\r\nid: 9\nevent: end\ndata: {}\n\n\u2028\u2029\u0000';
    await append([
      { type: 'custom/x', payload: { text: nasty, [nasty.replace('\u0000', '')]: 1 } },
      { type: 'assistant_message', payload: { text: nasty } },
    ]);
    const forged = await api.call('POST', `${path()}/events`, {
      body: { epoch: world.epoch, events: [{ type: 'x\nevent: forged', payload: {} }] },
    });
    await finish();
    const client = open();
    await client.until(ended, 'the end');

    expect(forged.status).toBe(400);
    expect(events(client.frames)).toEqual(await log());
    expect(client.frames.filter(({ event }) => event === 'end')).toHaveLength(1);
  });

  test('gives a slow reader everything, and a reader that has gone nothing more', async () => {
    const text = 'y'.repeat(150_000);
    for (let n = 0; n < 40; n += 1) await say(text);
    await finish();
    const slow = open();
    slow.socket.pause();
    const gone = open();
    gone.socket.pause();
    let pausing: NodeJS.Timeout | undefined;
    const trickle = setInterval(() => {
      slow.socket.resume();
      pausing = setTimeout(() => slow.socket.pause(), 2);
    }, 20);
    await until(async () => (await waiters()) === 2, 'both wait');
    gone.cut();
    await until(async () => (await waiters()) <= 1, 'the one that has gone is forgotten');
    clearInterval(trickle);
    clearTimeout(pausing);
    slow.socket.resume();
    await slow.until(ended, 'the end', 60_000);

    expect(events(slow.frames)).toEqual(await log());
    expect(slow.frames.filter(({ event }) => event === 'assistant_message')).toHaveLength(40);
  });

  test('whose turn to be sent has not come, behind another on its connection, ends with the connection', async () => {
    const client = open({}, `?after=${known}`);
    const { hostname, port } = new URL(address);
    const next = `GET ${path()}/events/stream?after=${known} HTTP/1.1\r\nhost: ${hostname}:${port}\r\nauthorization: Bearer ${api.adminKey}\r\n\r\n`;
    client.socket.write(next.repeat(3));
    await until(async () => (await waiters()) === 4, 'all of them wait');

    client.cut();

    await until(async () => (await waiters()) === 0, 'none of them waits');
  });

  test('that fails tells its client, and harms no other', async () => {
    const failing = await buildApp({ db: { ...api.db, sql: { query: (statement) => breakable(statement) } }, logger: false });
    let broken = false;
    const breakable: typeof api.db.sql.query = (statement) =>
      broken && /run_events/.test(statement.text)
        ? Promise.reject(new Error('canary: the database went away'))
        : api.db.sql.query(statement);
    const failingAddress = await failing.listen({ host: '127.0.0.1', port: 0 });
    const victim = open({}, `?after=${known}`, failingAddress);
    const other = open();
    await victim.until(({ body }) => body.includes('retry:'), 'the stream');

    broken = true;
    await say('news');
    await victim.until(({ complete }) => complete, 'its end');
    await finish();
    await other.until(ended, 'the end of the other');
    await failing.close();

    expect(victim.frames.at(-1)).toMatchObject({ id: undefined, event: 'error', data: { status: 500, code: 'internal_error' } });
    expect(victim.body).not.toContain('canary');
    expect(events(other.frames)).toEqual(await log());
  });

  test('lives through killed connections of the pool', async () => {
    const streams = Array.from({ length: 20 }, () => open());
    for (const client of streams) await client.until(({ frames }) => frames.length >= known, 'the log so far');
    const killer = await openClient(api.url);
    for (let n = 0; n < 5; n += 1) {
      await killer.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'runplane' AND pid <> pg_backend_pid() AND state = 'idle'`,
      );
      await say(`after the kill ${n}`).catch(() => undefined);
    }
    await killer.end();
    // A call may meet a connection that is just dying: it is repeated.
    await until(async () => (await finish()).status === 200, 'the finish');
    // A stream whose query was hit ends with an error frame; its client comes back behind its last event.
    for (const client of streams) await client.until((each) => each.complete, 'an end');

    const all = await log();
    for (const client of streams) {
      const got = events(client.frames);
      expect(got).toEqual(all.slice(0, got.length));
      expect(client.frames.at(-1)?.event).toMatch(/^(end|error)$/);
    }
    expect((await api.call('GET', '/readyz')).body.checks.database).toBe('ok');
  });
});

describe('waiting', () => {
  test('answers when there is news, and otherwise when the time is over', async () => {
    const early = api.call('GET', `${path()}/events?after=${known}&wait=20`);
    const result = api.call('GET', `${path()}/result?wait=20`);
    const feed = api.call('GET', `/v1/feed?after=now&wait=20`);
    await until(async () => (await waiters()) === 3, 'three wait');
    const start = Date.now();
    await say('news');
    const page = await early;
    await finish();

    expect(page.body.events).toHaveLength(1);
    expect((await result).body).toMatchObject({ finished: true, status: 'completed', lastAssistantMessage: 'news' });
    expect((await feed).body.events.length).toBeGreaterThan(0);
    expect(Date.now() - start).toBeLessThan(15_000); // they would have waited for twenty
    const empty = await api.call('GET', `${path()}/events?after=${page.body.lastSeq + 100}&wait=1`);
    expect([empty.status, empty.body.events]).toEqual([200, []]);
  });

  test('holds no connection of the pool, and is bounded', async () => {
    const polls = Array.from(
      { length: 60 },
      () => new RawClient(address, `${path()}/events?after=${known}&wait=30`, { authorization: `Bearer ${api.adminKey}` }),
    );
    clients.push(...polls);
    await until(async () => (await waiters()) === 60, 'sixty wait');

    const refused = await api.call('GET', `${path()}/events?after=${known}&wait=30`);
    const atOnce = await api.call('GET', `${path()}/events`);

    await until(async () => api.db.pool.totalCount === api.db.pool.idleCount, 'every connection is idle');
    expect([refused.status, refused.body.code, refused.headers['retry-after']]).toEqual([503, 'overloaded', '1']);
    expect(atOnce.status).toBe(200);
  });
});

describe('closing', () => {
  test('ends streams with a hint, answers long polls, refuses new requests and lets idle connections go', async () => {
    const closing: App = await buildApp({ db: api.db, logger: false });
    const on = await closing.listen({ host: '127.0.0.1', port: 0 });
    const streams = Array.from({ length: 20 }, () => open({}, '', on));
    for (const client of streams) await client.until(({ frames }) => frames.length >= known, 'the log so far');
    const poll = fetch(`${on}${path()}/events?after=${known}&wait=30`, { headers: { authorization: `Bearer ${api.adminKey}` } });
    const idle = new RawClient(on, '/healthz', {});
    await idle.until(({ bytes }) => bytes > 0, 'an answer on a connection that stays');
    const silent = new RawClient(on, '/healthz', {}); // and one that has asked nothing yet would hang just the same
    clients.push(idle, silent);
    await until(async () => /^runplane_waiters 21$/m.test(await (await fetch(`${on}/metrics`)).text()), 'streams and poll wait');

    const start = Date.now();
    await closing.close();
    expect(Date.now() - start).toBeLessThan(25_000); // the poll alone would wait for thirty

    const answer = await poll;
    expect([answer.status, ((await answer.json()) as { events: unknown[] }).events]).toEqual([200, []]);
    for (const client of streams) {
      await client.until(({ closed }) => closed, 'the end');
      const { retries, frames } = parseFrames(client.body);
      expect(frames.at(-1)).toEqual({ id: undefined, event: 'shutdown', data: {} });
      expect(retries.at(-1)).toBeLessThan(2_000);
    }
    await idle.until(({ closed }) => closed, 'the end of an idle connection');
  });
});

describe('a run of large events', () => {
  const texts = Array.from({ length: 12 }, (_, i) => `${i} ${'x'.repeat(1_000_000)}`);
  const textsOf = (found: { type: string; payload: { text: string } }[]) =>
    found.filter(({ type }) => type === 'assistant_message').map(({ payload }) => payload.text);

  test('comes whole, by pages, stream and feed, in pieces that a process can hold', async () => {
    const from = (await api.call('GET', '/v1/feed?after=now')).body.cursor as string;
    for (const text of texts) await say(text);
    await finish();

    const page = await api.call('GET', `${path()}/events?limit=500`);
    expect(page.text.length).toBeLessThan(6_000_000);
    expect(textsOf((await log()) as never)).toEqual(texts);

    const client = open();
    await client.until(ended, 'the end', 60_000);
    expect(textsOf(events(client.frames) as never)).toEqual(texts);

    const fed: { type: string; data: { text: string } }[] = [];
    for (let cursor = from, more = true; more || fed.at(-1)?.type !== 'terminal_status';) {
      const answer = await api.call('GET', `/v1/feed?after=${cursor}&limit=200`);
      expect(answer.text.length).toBeLessThan(6_000_000);
      ({ cursor, more } = answer.body);
      fed.push(...answer.body.events);
    }
    expect(textsOf(fed.map(({ type, data }) => ({ type, payload: data })))).toEqual(texts);
  });

  test('large commands reach their runner in pieces too', async () => {
    for (const text of texts) await api.call('POST', `${path()}/commands`, { body: { type: 'note', payload: { text } } });

    const seen: string[] = [];
    for (let last = 0; ;) {
      const { body, text } = await api.call('POST', `${path()}/heartbeat`, { body: { epoch: world.epoch, commandsAfterSeq: last } });
      expect(text.length).toBeLessThan(6_000_000);
      if (body.commands.length === 0) break;
      seen.push(
        ...body.commands.flatMap((command: { type: string; payload: { text: string } }) =>
          command.type === 'note' ? command.payload.text : [],
        ),
      );
      last = body.commands.at(-1).seq;
    }
    expect(seen).toEqual(texts);
  });
});
