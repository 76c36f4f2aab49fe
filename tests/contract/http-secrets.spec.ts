import { buildApp } from '@runplane/api';
import { makeWorld, methodOf, pathOf, ROUTE_SAMPLES, sampleOf, type World } from '../support/route-samples';
import { allRows } from '../support/rows';
import { useApi } from '../support/test-api';

const api = useApi();
let world: World;
beforeEach(async () => {
  world = await makeWorld(api);
});

/** Nobody could tell these from other words: they must not be shown anywhere. */
const CANARY = 'canary-7f3a';
const spoil = (value: unknown): unknown => (typeof value === 'object' && value !== null ? CANARY : { nested: CANARY });

describe('what a caller sends', () => {
  test('is in no log line and in no refusal, whatever is wrong with it', async () => {
    const refusals: string[] = [];
    for (const route of Object.keys(ROUTE_SAMPLES)) {
      const good = sampleOf(route).body?.(world) ?? {};
      const headers = { ...sampleOf(route).headers, cookie: CANARY, 'x-canary': CANARY };
      const bodies =
        sampleOf(route).body === undefined
          ? [undefined]
          : [CANARY, `{"a":"${CANARY}`, ...Object.keys(good).map((field) => ({ ...good, [field]: spoil(good[field]) }))];
      for (const body of bodies) {
        refusals.push((await api.call(methodOf(route), `${pathOf(route, world)}?token=${CANARY}`, { body, headers })).text);
        refusals.push(
          (await api.call(methodOf(route), pathOf(route, world), { key: '', body, headers: { authorization: `Bearer ${CANARY}` } })).text,
        );
      }
    }

    expect(refusals.filter((text) => text.includes(CANARY))).toEqual([]);
    expect(api.log.filter((line) => line.includes(CANARY))).toEqual([]);
    expect(api.log.length).toBeGreaterThan(50);
  });

  test('is in no log line when all goes well either, and neither is a key', async () => {
    const run = { projectId: 'p', backendProfile: 'b', workspaceRef: { note: CANARY }, traceSink: { note: CANARY } };
    await api.call('POST', '/v1/runs', { body: run });
    await api.call('POST', `/v1/runs/${world.runId}/commands`, { body: { type: 'note', payload: { text: CANARY } } });
    await api.call('POST', `/v1/runs/${world.runId}/events`, {
      body: { epoch: world.epoch, events: [{ type: 'reasoning', payload: { text: CANARY } }] },
    });
    await api.call('GET', `/v1/runs?projectId=${CANARY}`);

    expect(api.log.filter((line) => line.includes(CANARY) || line.includes(api.adminKey.slice(4)))).toEqual([]);
  });

  test('is not in the answer or the log of a request that the database refused with its values', async () => {
    const lines: string[] = [];
    const refused = Object.assign(new Error(`duplicate key: Key (x)=(${CANARY})`), {
      severity: 'ERROR',
      code: '23505',
      constraint: 'some_key',
      detail: CANARY,
      where: CANARY,
    });
    const query: typeof api.db.sql.query = (statement) =>
      /api_keys/.test(statement.text) ? api.db.sql.query(statement) : Promise.reject(refused);
    const broken = await buildApp({
      db: { ...api.db, sql: { query } },
      logger: { level: 'trace', stream: { write: (line) => void lines.push(line) } },
    });
    const answer = await broken.inject({ url: `/v1/runs/${world.runId}`, headers: { authorization: `Bearer ${api.adminKey}` } });
    await broken.close();

    expect([answer.statusCode, answer.json().code]).toEqual([500, 'internal_error']);
    expect(answer.payload).not.toMatch(/canary|duplicate|some_key|23505/);
    expect(lines.join('')).toContain('"sqlState":"23505"');
    expect(lines.join('')).toContain('"constraint":"some_key"');
    expect(lines.join('')).not.toContain(CANARY);
  });
});

describe('a secret that a runner reports', () => {
  const secrets = {
    url: 'postgres://app:CANARYPASS1@db.example/x',
    bearer: 'Authorization: Bearer CANARYTOKEN2abcdefghij1234567890',
    key: 'sk-CANARY3abcdefghijklmnopqrstuvwxyz123456',
    json: '{"apiKey":"CANARY4secretvalue","nested":{"password":"CANARY5secretvalue"}}',
    own: `rp_${'a1'.repeat(16)}_CANARY6${'x'.repeat(36)}`,
  };
  const text = Object.values(secrets).join(' and ');
  const leaks = (shown: string) => [...shown.matchAll(/CANARY\w*/g)].map(([found]) => found);

  test('is masked in the store, in every answer, in streams and in the log', async () => {
    const path = `/v1/runs/${world.runId}`;
    const { epoch, commandId } = world;
    const events = [
      { type: 'command_output', payload: { stream: 'stderr', text } },
      { type: 'error', payload: { message: text.slice(0, 1_000) } },
      {
        type: 'tool_call',
        payload: {
          callId: 'c',
          name: 'http',
          arguments: { headers: { 'X-Api-Key': 'CANARY7plain', API_KEY: 'CANARY8plain' }, url: secrets.url, list: [text] },
        },
      },
      { type: 'tool_result', payload: { callId: 'c', status: 'error', output: [text, { password: 'CANARY9plain' }] } },
      { type: 'custom/any', payload: { deep: { deeper: { token: 'CANARY10plain' } } } },
    ];
    const answers = [
      await api.call('POST', `${path}/events`, { body: { epoch, events } }),
      await api.call('POST', '/v1/runners', {
        body: { runId: world.runId, placement: text.slice(0, 150), metadata: { env: { DB_PASSWORD: 'CANARY11plain' }, text } },
      }),
      await api.call('POST', `${path}/cancel`, { body: { reason: text, graceMs: 600_000 } }),
      await api.call('POST', `${path}/commands/${commandId}/finish`, {
        body: { epoch, outcome: { terminalStatus: 'failed', failureKind: 'backend-failed', failureMessage: text } },
      }),
      await api.call('POST', `${path}/finish`, {
        body: { epoch, outcome: { terminalStatus: 'failed', failureKind: 'backend-failed', failureMessage: `${text}\n    at stack` } },
      }),
      await api.call('GET', path),
      await api.call('GET', `${path}/events?limit=500`),
      await api.call('GET', `${path}/events/stream`),
      await api.call('GET', `${path}/result`),
      await api.call('GET', `${path}/cancel-requests`),
      await api.call('GET', `/v1/commands/${commandId}`),
      await api.call('GET', '/v1/feed?limit=200'),
    ];

    expect(answers.map(({ status }) => Math.floor(status / 100))).toEqual(answers.map(() => 2));
    expect(answers.flatMap(({ text: shown }) => leaks(shown))).toEqual([]);
    expect(leaks(JSON.stringify(await allRows(api.db)))).toEqual([]);
    expect(leaks(api.log.join(''))).toEqual([]);
  });
});
