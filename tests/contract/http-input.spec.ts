import { waitForHorizon } from '@runplane/database/testing';
import { methodOf, makeWorld, pathOf, ROUTE_SAMPLES, sampleOf, type World } from '../support/route-samples';
import { allRows } from '../support/rows';
import { useApi, type Answer } from '../support/test-api';

const api = useApi();
let world: World;

const routes = Object.keys(ROUTE_SAMPLES).filter((route) => sampleOf(route).answersAtOnce !== false);
const withBody = routes.filter((route) => sampleOf(route).body !== undefined);
const send = (route: string, body: unknown, path = pathOf(route, world)) => {
  const { headers } = sampleOf(route);
  return api.call(methodOf(route), path, { body, headers });
};

function expectProblem(answer: Answer, status: number, code: string | RegExp): void {
  expect([answer.status, answer.body?.code]).toEqual([status, expect.stringMatching(code)]);
  expect(answer.headers['content-type']).toMatch(/^application\/problem\+json/);
  expect(answer.body).toMatchObject({
    type: `urn:runplane:error:${answer.body.code}`,
    title: expect.any(String),
    status,
    detail: expect.any(String),
    instance: expect.any(String),
    failureKind: expect.any(String),
    retryable: expect.any(Boolean),
    requestId: answer.headers['x-request-id'],
  });
}

describe('a request that cannot be right', () => {
  beforeAll(async () => {
    world = await makeWorld(api);
  });

  test.each(withBody)('%s refuses a field that it does not know, and names it', async (route) => {
    const before = await allRows(api.db);

    const answer = await send(route, { ...sampleOf(route).body?.(world), surprise: 'bad-value-7' });

    expectProblem(answer, 400, 'invalid_request');
    expect(answer.body.detail).toContain('surprise');
    expect(answer.text).not.toContain('bad-value-7');
    expect(await allRows(api.db)).toEqual(before);
  });

  test.each(withBody)('%s refuses a body that is no object, no JSON, empty or of another type', async (route) => {
    for (const body of ['[]', '"text"', '5', 'null', 'true']) expectProblem(await send(route, body), 400, 'invalid_request');
    for (const body of ['{', '{"a":1,}', "{'a':1}", '', '\u0000']) expectProblem(await send(route, body), 400, 'invalid_request');
    const asText = await api.call(methodOf(route), pathOf(route, world), { body: '{}', headers: { 'content-type': 'text/plain' } });
    expectProblem(asText, 415, 'unsupported_media_type');
  });

  test.each(withBody)('%s refuses values of the wrong type with the place and without the value', async (route) => {
    for (const [field, value] of Object.entries(sampleOf(route).body?.(world) ?? {})) {
      const wrong = typeof value === 'number' ? 'bad-value-7' : 77777;
      const answer = await send(route, { ...sampleOf(route).body?.(world), [field]: wrong });
      expectProblem(answer, 400, 'invalid_request');
      expect(answer.body.data.issues[0].path).toMatch(new RegExp(`^body/${field}`));
      expect(answer.text).not.toMatch(/bad-value-7|77777/);
    }
  });

  test.each(routes)('%s refuses ids that nobody can have', async (route) => {
    const path = pathOf(route, world);
    if (!path.includes('run_') && !path.includes('cmd') && !path.includes(world.sessionId)) return;
    for (const bad of ['a%00b', '%20', 'a%E2%80%8Bb', 'x'.repeat(201), 'y'.repeat(3_000), '%F0%9F%98%80'.repeat(60)]) {
      const params = route.split(' ')[1]?.match(/:\w+/g) ?? [];
      for (const param of params) {
        const badPath = (route.split(' ')[1] ?? '')
          .replace(param, bad)
          .replace(/:(\w+)/g, (_, name: string) => String(world[name as Exclude<keyof World, 'slot'>]));
        expectProblem(await send(route, sampleOf(route).body?.(world), badPath), 400, 'invalid_request');
      }
    }
  });

  test('a path that is not UTF-8 is refused', async () => {
    for (const bad of ['%ED%A0%80', '%', '%C3%28']) expectProblem(await api.call('GET', `/v1/runs/${bad}`), 400, 'invalid_request');
  });

  test.each([
    '/v1/runs?limit=0',
    '/v1/runs?limit=101',
    '/v1/runs?limit=1e1',
    '/v1/runs?limit=',
    '/v1/runs?limit=5&limit=6',
    '/v1/runs?status=unknown',
    '/v1/runs?projectId=a%00b',
    `/v1/runs?projectId=${'x'.repeat(3_000)}`,
    '/v1/runs?nonsense=1',
    '/v1/feed?limit=-1',
    '/v1/feed?wait=31',
    '/v1/feed?wait=NaN',
  ])('%s is refused', async (path) => {
    expectProblem(await api.call('GET', path), 400, 'invalid_request');
  });

  test.each([
    '/v1/runs?cursor=nonsense',
    '/v1/runs?cursor=',
    '/v1/feed?after=nonsense',
    '/v1/feed?after=a%00b',
    `/v1/feed?after=${'x'.repeat(3_000)}`,
  ])('%s is refused as a cursor', async (path) => {
    expectProblem(await api.call('GET', path), 400, /^invalid_(cursor|request)$/);
  });

  test('a body over 5 MiB is refused before it is read', async () => {
    expectProblem(await send('POST /v1/runs', `{"x":"${'x'.repeat(5 * 1024 * 1024)}"}`), 413, 'payload_too_large');
  });

  test('a key __proto__ or constructor.prototype is refused at every depth, and pollutes nothing', async () => {
    const path = `/v1/runs/${world.runId}/events`;
    const events = (payload: string) => `{"epoch":${world.epoch},"events":[{"type":"custom/x","payload":${payload}}]}`;
    for (const payload of [
      '{"__proto__":{"role":"admin"}}',
      '{"a":[{"__proto__":1}]}',
      '{"constructor":{"prototype":{}}}',
      '{"\\u005f_proto__":1}',
    ]) {
      expectProblem(await api.call('POST', path, { body: events(payload) }), 400, 'invalid_request');
    }
    expect(({} as { role?: string }).role).toBeUndefined();
    expect((await api.call('POST', path, { body: events('{"toString":1,"hasOwnProperty":2,"constructor":"x"}') })).status).toBe(201);
  });

  test('an unknown route is a problem, and so is a method that the route does not have', async () => {
    for (const [method, path] of [
      ['GET', '/nowhere'],
      ['GET', '/v1/'],
      ['PATCH', `/v1/runs/${world.runId}`],
      ['PATCH', '/v1/runs'],
    ] as const) {
      expectProblem(await api.call(method, path), 404, 'route_not_found');
    }
  });

  test('turns need an idempotency key that is an identifier', async () => {
    const body = sampleOf('POST /v1/sessions/:sessionId/turns').body?.(world);
    const call = (headers: Record<string, string>) => api.call('POST', '/v1/sessions/keyless/turns', { body, headers });

    expectProblem(await call({}), 400, 'idempotency_key_required');
    for (const key of ['', ' ', 'x'.repeat(201)]) expectProblem(await call({ 'idempotency-key': key }), 400, 'invalid_request');
    expect((await api.call('GET', '/v1/sessions/keyless')).status).toBe(404);
  });

  test('an idempotency key may hold any letters, sent as the bytes of UTF-8', async () => {
    const body = sampleOf('POST /v1/sessions/:sessionId/turns').body?.(world);
    const headers = { 'idempotency-key': Buffer.from('ключ 钥', 'utf8').toString('latin1') };

    const first = await api.call('POST', '/v1/sessions/letters/turns', { body, headers });
    const again = await api.call('POST', '/v1/sessions/letters/turns', { body, headers });

    expect([first.status, again.status]).toEqual([201, 200]);
    expect(again.body.command).toMatchObject({ id: first.body.command.id, idempotencyKey: 'ключ 钥' });
  });
});

describe('a number or a time beyond what the database holds', () => {
  beforeAll(async () => {
    world = await makeWorld(api);
  });

  test.each([2 ** 31, Number.MAX_SAFE_INTEGER])('%s is no epoch, no producer sequence and no number of a command', async (n) => {
    const path = `/v1/runs/${world.runId}`;
    const events = [{ type: 'custom/x', payload: {} }];
    const bodies: [string, object][] = [
      ['heartbeat', { epoch: n }],
      ['heartbeat', { epoch: world.epoch, commandsAfterSeq: n }],
      ['events', { epoch: n, events }],
      ['events', { epoch: world.epoch, producerSequence: n, events }],
      ['finish', { epoch: n, outcome: { terminalStatus: 'completed' } }],
      ['cancel-acknowledgements', { epoch: n, stage: 'delivered' }],
      [`commands/${world.commandId}/ack`, { epoch: n }],
    ];
    for (const [call, body] of bodies) expectProblem(await api.call('POST', `${path}/${call}`, { body }), 400, 'invalid_request');
    const { remainingMs: _, ...slot } = world.slot;
    for (const call of ['renew', 'confirm', 'release'])
      expectProblem(await api.call('POST', `/v1/runner-slots/${call}`, { body: { ...slot, epoch: n } }), 400, 'invalid_request');
  });

  test('behind the last command there is nothing, however far', async () => {
    const answer = await api.call('GET', `/v1/runs/${world.runId}/commands?after=${10 ** 14}`);
    expect([answer.status, answer.body]).toEqual([200, { commands: [] }]);
  });

  test.each([
    ['0000-01-01T00:00:00Z', undefined],
    ['9999-12-31T23:59:59-14:00', undefined],
    ['0001-01-01T00:00:00+14:00', undefined],
    ['9999-12-31T23:59:59.9999Z', '9999-12-31T23:59:59.999Z'],
    ['2030-01-01T00:00:00+23:59', '2029-12-31T00:01:00.000Z'],
  ])('a session that expires at %s is refused, or reads back as %s', async (expiresAt, stored) => {
    const sessionRef = { sessionId: `expires ${expiresAt}`, expiresAt };

    const created = await api.call('POST', '/v1/runs', { body: { projectId: 'p', backendProfile: 'b', sessionRef } });

    if (stored === undefined) return expectProblem(created, 400, 'invalid_request');
    const session = await api.call('GET', `/v1/sessions/${encodeURIComponent(sessionRef.sessionId)}`);
    expect([created.status, session.body.expiresAt]).toEqual([201, stored]);
  });

  test('a forged cursor is refused, whatever its parts', async () => {
    await makeWorld(api);
    const partsOf = (cursor: string) => JSON.parse(Buffer.from(cursor, 'base64url').toString('utf8')) as unknown[];
    const forge = (cursor: string, parts: object) => {
      const [version, kind, filter, own] = partsOf(cursor);
      return Buffer.from(JSON.stringify([version, kind, filter, { ...(own as object), ...parts }])).toString('base64url');
    };
    const { cursor: list } = (await api.call('GET', '/v1/runs?limit=1')).body;
    const { cursor: feed } = (await api.call('GET', '/v1/feed')).body;

    for (const parts of [{ updatedAt: '0000-01-01T00:00:00.000Z' }, { updatedAt: '2026-01-01T00:00:00Z' }, { id: 'a\0b' }, { id: '' }]) {
      expectProblem(await api.call('GET', `/v1/runs?limit=1&cursor=${forge(list, parts)}`), 400, 'invalid_cursor');
    }
    for (const parts of [{ tx: '9'.repeat(19) }, { tx: '0', position: '9'.repeat(19) }, { position: '-1' }]) {
      expectProblem(await api.call('GET', `/v1/feed?after=${forge(feed, parts)}`), 400, 'invalid_cursor');
    }
  });

  test('usage that adds up beyond 2^53 - 1 stops there', async () => {
    const usage = {
      model: 'm',
      inputTokens: Number.MAX_SAFE_INTEGER,
      outputTokens: 1,
      costMicros: Number.MAX_SAFE_INTEGER,
      currency: 'EUR',
    };
    const body = { epoch: world.epoch, events: [usage, usage].map((payload) => ({ type: 'usage', payload })) };
    await api.call('POST', `/v1/runs/${world.runId}/events`, { body });

    const { status, body: result } = await api.call('GET', `/v1/runs/${world.runId}/result`);

    expect([status, result.usage]).toEqual([200, [{ ...usage, outputTokens: 2 }]]);
  });
});

describe('a NUL or a lone surrogate in a text', () => {
  beforeEach(async () => {
    world = await makeWorld(api);
  });

  const texts = { nul: 'a\u0000b', surrogate: 'a\ud800b' };

  test.each(withBody)('%s: is repaired or refused, never a 5xx', async (route) => {
    const spoil = (value: unknown, text: string): unknown[] => {
      if (typeof value === 'string') return [text];
      if (Array.isArray(value))
        return value.flatMap((each, index) => spoil(each, text).map((bad) => Object.assign([...value], { [index]: bad })));
      if (typeof value !== 'object' || value === null) return [];
      const inside = Object.entries(value).flatMap(([key, each]) => spoil(each, text).map((bad) => ({ ...value, [key]: bad })));
      return [...inside, { ...value, [text]: 1 }];
    };
    for (const text of Object.values(texts)) {
      for (const body of spoil(sampleOf(route).body?.(world), text)) {
        const answer = await send(route, body);
        expect({ body: JSON.stringify(body), status: answer.status < 500 }).toEqual({ body: JSON.stringify(body), status: true });
      }
    }
  });

  test('a runner can report any output, and finish, whatever its texts hold', async () => {
    const path = `/v1/runs/${world.runId}`;
    const events = Object.values(texts).map((text) => ({ type: 'command_output', payload: { stream: 'stdout', text } }));
    const outcome = { terminalStatus: 'failed', failureKind: 'backend-failed', failureMessage: `${texts.nul}${texts.surrogate}` };

    const append = await api.call('POST', `${path}/events`, { body: { epoch: world.epoch, events } });
    const finish = await api.call('POST', `${path}/finish`, { body: { epoch: world.epoch, outcome } });

    expect([append.status, finish.status]).toEqual([201, 200]);
    expect(finish.body.failure).toEqual({ kind: 'backend-failed', message: 'a\ufffdba\ufffdb' });
    const stored = (await api.call('GET', `${path}/events`)).body.events.filter(
      (event: { type: string }) => event.type === 'command_output',
    );
    expect(stored.map((event: { payload: { text: string } }) => event.payload.text)).toEqual(['a\ufffdb', 'a\ufffdb']);
  });
});

describe('what was sent comes back as it was', () => {
  beforeEach(async () => {
    world = await makeWorld(api);
  });

  const values = [
    [],
    [1, 2],
    ['a'],
    'hello',
    '{"a":1}',
    5,
    0.1,
    true,
    null,
    { a: { b: [null, { c: [] }, 'x'] } },
    '',
    { '': 1, ' ': 2, 'a.b': 3 },
  ];
  const unicode = ['e\u0301', '\u00e9', '👩‍👩‍👧‍👦', '🇩🇪', '\u{20000}', '\u200d', '\u2028', 'ﷺ', '\ufeffx', '\u0007'];

  test('every JSON value and every well-formed text, in payloads, events, stream and feed', async () => {
    const path = `/v1/runs/${world.runId}`;
    const from = (await api.call('GET', '/v1/feed?after=now')).body.cursor;
    const payload = { values, unicode, nested: { $ref: '#/x', additional: { deep: [[[]]] } } };

    const command = await api.call('POST', `${path}/commands`, { body: { type: 'note', payload } });
    const append = await api.call('POST', `${path}/events`, {
      body: {
        epoch: world.epoch,
        events: [
          { type: 'custom/any', payload },
          ...values.map((output) => ({ type: 'tool_result', payload: { callId: 'c', status: 'ok', output } })),
        ],
      },
    });
    await api.call('POST', `${path}/finish`, { body: { epoch: world.epoch, outcome: { terminalStatus: 'completed' } } });

    expect(command.body.command.payload).toEqual(payload);
    expect((await api.call('GET', `/v1/commands/${command.body.command.id}`)).body.payload).toEqual(payload);
    expect(append.status).toBe(201);
    const { events } = (await api.call('GET', `${path}/events?limit=500`)).body;
    expect(events.find((event: { type: string }) => event.type === 'custom/any').payload).toEqual(payload);
    expect(
      events
        .filter((event: { type: string }) => event.type === 'tool_result')
        .map((event: { payload: { output: unknown } }) => event.payload.output),
    ).toEqual(values);
    const streamed = (await api.call('GET', `${path}/events/stream`)).text;
    const frames = streamed
      .split('\n')
      .filter((line) => line.startsWith('data: '))
      .map((line) => JSON.parse(line.slice(6)));
    expect(frames.filter((frame) => 'seq' in frame)).toEqual(events);
    await waitForHorizon(api.db);
    const feed = await api.call('GET', `/v1/feed?after=${from}&limit=200`);
    const ofRun = feed.body.events.filter(
      (event: { runId: string; stream: string }) => event.runId === world.runId && event.stream === 'run',
    );
    expect(ofRun.map((event: { data: unknown }) => JSON.stringify(event.data))).toContainEqual(
      expect.stringContaining(JSON.stringify(unicode).slice(1, -1)),
    );
  });
});
