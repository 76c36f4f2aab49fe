import { getEventListeners } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import type { PublishOutcome, PublishRecord } from '../publisher';
import { openWebhookPublisher, type WebhookOptions } from '.';
import type { Delivery } from './delivery';
import { addressRule } from './guarded-lookup';
import { outcomeOfStatus } from './webhook-answers';
import { webhookBody, webhookHeaders } from './webhook-message';

const [secret, older] = ['one', 'two'].map((text) => `whsec_${Buffer.from(text.repeat(10)).toString('base64')}`) as [string, string];

const record = (sequence: number, fields: Partial<PublishRecord> = {}): PublishRecord => ({
  place: { tx: 1n, position: BigInt(sequence) },
  topic: 'hook',
  partitionKey: 'acme/s1',
  stream: 'session',
  streamId: 's1',
  sequence,
  eventId: `e${sequence}`,
  type: 'user/message',
  tenantId: 'acme',
  projectId: null,
  sessionId: 's1',
  runId: null,
  commandId: null,
  data: `{"b":1,"a":"${sequence} é"}`,
  time: '2026-01-02T03:04:05.006Z',
  ...fields,
});

interface Received {
  readonly headers: Record<string, string>;
  readonly body: string;
}

/** An endpoint that answers as it is told, by the event's id. */
class Endpoint {
  readonly received: Received[] = [];
  answer: (id: string, response: http.ServerResponse) => void = (_, response) => response.end('ok');
  readonly #server = http.createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const headers = request.headers as Record<string, string>;
      this.received.push({ headers, body: Buffer.concat(chunks).toString() });
      this.answer(headers['webhook-id'] ?? '', response);
    });
  });

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/hook`;
  }

  get ids(): (string | undefined)[] {
    return this.received.map(({ headers }) => headers['webhook-id']);
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

let endpoint: Endpoint;
let url: string;
beforeEach(async () => {
  endpoint = new Endpoint();
  url = await endpoint.listen();
});
afterEach(() => endpoint.close());

const LOOPBACK = { allowHttp: true, allowedRanges: ['127.0.0.0/8'] };
const answers =
  (statuses: Record<string, number>): Endpoint['answer'] =>
  (id, response) => {
    response.statusCode = statuses[id] ?? 204;
    response.end(statuses[id] === undefined ? undefined : 'password=hunter2 no');
  };
const kinds = (outcomes: readonly PublishOutcome[]) => outcomes.map((outcome) => ('reason' in outcome ? outcome.reason : outcome.kind));

async function publishAll(
  records: readonly PublishRecord[],
  options: Partial<WebhookOptions> = {},
  timeoutMs = 30_000,
  signal?: AbortSignal,
) {
  const tried: Delivery[] = [];
  const publisher = openWebhookPublisher(
    { url, secrets: [secret], ...LOOPBACK, ...options },
    { onDeliveries: async (some) => void tried.push(...some) },
  );
  const outcomes = await publisher.publish(records, { timeoutMs, signal });
  await publisher.close();
  return { outcomes, tried };
}

test('posts each event as a signed CloudEvent, those of a key in order', async () => {
  const { outcomes, tried } = await publishAll([record(1), record(2), record(1, { partitionKey: 'acme/s2', eventId: 'x' })], {
    secrets: [secret, older],
  });
  expect(kinds(outcomes)).toEqual(['sent', 'sent', 'sent']);
  expect(endpoint.ids.filter((id) => id !== 'x')).toEqual(['e1', 'e2']);
  for (const { headers, body } of endpoint.received) {
    for (const known of [secret, older])
      expect(new Webhook(known).verify(body, headers)).toMatchObject({ specversion: '1.0', tenantid: 'acme' });
    expect(headers['content-type']).toBe('application/cloudevents+json; charset=utf-8');
  }
  expect(endpoint.received.find(({ headers }) => headers['webhook-id'] === 'e1')?.body).toMatch(/,"data":\{"b":1,"a":"1 é"\}\}$/);
  expect(tried.map(({ record: { eventId }, status }) => [eventId, status])).toEqual(
    expect.arrayContaining([
      ['e1', 200],
      ['e2', 200],
      ['x', 200],
    ]),
  );
});

test('of a key at most one event is refused, the others wait; a failure of the endpoint ends the call for all keys', async () => {
  endpoint.answer = answers({ e2: 422, y2: 500 });
  const refusedOnly = await publishAll([record(1), record(2), record(3), record(1, { partitionKey: 'k', eventId: 'x1' })], {
    keysAtOnce: 1,
  });
  expect(kinds(refusedOnly.outcomes)).toEqual(['sent', 'rejected', 'skipped', 'sent']);
  expect(refusedOnly.outcomes[1]).toMatchObject({ kind: 'refused', final: false, error: 'HTTP 422: password=[redacted] no' });
  const failing = ['y1', 'y2', 'y3'].map((eventId) => record(1, { partitionKey: eventId, eventId }));
  const failed = await publishAll(failing, { keysAtOnce: 1 });
  expect(kinds(failed.outcomes)).toEqual(['sent', 'unavailable', 'skipped']); // not the failure of a key that was not tried
  expect(endpoint.ids).not.toContain('y3');
});

test('an endpoint that does not answer times out, and a stop ends what is under way', async () => {
  endpoint.answer = () => undefined;
  expect(kinds((await publishAll([record(1), record(2)], { requestTimeoutMs: 100 })).outcomes)).toEqual(['timed_out', 'skipped']);
  expect(kinds((await publishAll([record(1)], {}, 100)).outcomes)).toEqual(['timed_out']);
  expect(kinds((await publishAll([record(1)], {}, 30_000, AbortSignal.abort())).outcomes)).toEqual(['stopped']);
  const publisher = openWebhookPublisher({ url, secrets: [secret], ...LOOPBACK });
  const call = publisher.publish([record(1)], { timeoutMs: 30_000 });
  await publisher.close();
  expect(kinds(await call)).toEqual(['stopped']);
  expect(kinds(await publisher.publish([record(1)], { timeoutMs: 30_000 }))).toEqual(['stopped']);
});

test('a call leaves nothing at the signal of whoever may stop it, which lives as long as a relay', async () => {
  const { signal } = new AbortController();
  const traces = () =>
    getEventListeners(signal, 'abort').length +
    Object.getOwnPropertySymbols(signal)
      .map((name) => Reflect.get(signal, name) as { size?: number } | null | undefined)
      .reduce((sum, own) => sum + (own?.size ?? 0), 0);
  const before = traces();

  const { outcomes } = await publishAll([record(1), record(2)], {}, 30_000, signal);

  expect(kinds(outcomes)).toEqual(['sent', 'sent']);
  expect(traces()).toBe(before);
});

test('an endpoint that is slow has not failed: what it had no time for is not tried, and comes with the next call', async () => {
  endpoint.answer = (_, response) => void setTimeout(() => response.end(), 60);
  const records = Array.from({ length: 80 }, (_, n) => record(1, { partitionKey: `acme/${n}`, eventId: `e${n}` }));

  const { outcomes, tried } = await publishAll(records, { keysAtOnce: 1 }, 3_000); // what has begun in its first half has the other half to end

  expect(tried.length).toBeGreaterThan(0);
  expect(kinds(outcomes)).toEqual(records.map((_, n) => (n < tried.length ? 'sent' : 'skipped')));
});

test('reads of a long answer only the beginning', async () => {
  endpoint.answer = (_, response) => {
    response.statusCode = 400;
    response.write('x'.repeat(100_000));
  };
  const [outcome] = (await publishAll([record(1)])).outcomes;
  expect(outcome).toMatchObject({ reason: 'rejected', error: expect.stringMatching(/^HTTP 400: x{200,}…$/) as string });
});

test('what was taken is sent, also when the answer never ends', async () => {
  endpoint.answer = (_, response) => void response.writeHead(200).write('o');
  expect(kinds((await publishAll([record(1)], { requestTimeoutMs: 1_500 })).outcomes)).toEqual(['sent']);
  endpoint.answer = (_, response) => void response.writeHead(500).write('o');
  expect(kinds((await publishAll([record(1)], { requestTimeoutMs: 100 })).outcomes)).toEqual(['timed_out']);
});

test.each([
  ['would change the protocol', 'HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n'],
  ['is none of HTTP', 'SSH-2.0-x\r\n'],
])(
  'an answer that %s is a failure of the endpoint, and holds up neither the call nor the end',
  async (_what, text) => {
    endpoint.answer = (_, { socket }) => void socket?.write(text);
    const { outcomes, tried } = await publishAll([record(1)], { requestTimeoutMs: 60_000 });
    expect(kinds(outcomes)).toEqual(['unavailable']);
    expect(tried).toMatchObject([{ status: null, outcome: { error: expect.any(String) as string } }]);
  },
  20_000, // else it waits for ever
);

test('does not follow a redirect', async () => {
  endpoint.answer = (_, response) => response.writeHead(307, { location: url }).end();
  expect(kinds((await publishAll([record(1)])).outcomes)).toEqual(['unavailable']);
  expect(endpoint.received).toHaveLength(1);
});

test.each([
  'http://127.0.0.1:PORT/',
  'http://localhost:PORT/',
  'http://[::1]:PORT/',
  'http://[::ffff:127.0.0.1]:PORT/',
  'http://2130706433:PORT/',
  'http://0:PORT/',
  'http://[::127.0.0.1]:PORT/',
])('reaches nothing private at %s', async (template) => {
  const { outcomes } = await publishAll([record(1)], { url: template.replace('PORT', new URL(url).port), allowedRanges: [] });
  expect(outcomes).toEqual([{ kind: 'failed', reason: 'unavailable', error: expect.stringContaining('is no public address') as string }]);
  expect(endpoint.received).toEqual([]);
});

test.each([
  ['93.184.216.34', true],
  ['2606:4700::1111', true],
  ['10.1.2.3', true],
  ['10.2.0.1', false],
  ['169.254.169.254', false],
  ['100.64.0.1', false],
  ['0.0.0.0', false],
  ['::ffff:10.2.0.1', false],
  ['::ffff:10.1.0.1', true],
  ['64:ff9b::a02:1', false],
  ['64:ff9b:1::a9fe:a9fe', false],
  ['::7f00:1', false],
  ['::ffff:0:7f00:1', false],
  ['2002:7f00:1::', false],
  ['4000::1', false],
  ['fec0::1', false],
  ['168.63.129.16', false],
  ['::ffff:168.63.129.16', false],
  ['192.0.0.192', false],
  ['100.100.100.200', false],
  ['fe80::1', false],
  ['fd00::1', false],
  ['ff02::1', false],
  ['x', false],
])('the address %s passes: %s', (address, passes) => {
  expect(addressRule(['10.1.0.0/16'])(address)).toBe(passes);
});

test.each([
  [200, 'sent'],
  [204, 'sent'],
  [301, 'unavailable'],
  [400, 'rejected'],
  [401, 'credentials'],
  [404, 'unavailable'],
  [408, 'timed_out'],
  [410, 'unavailable'],
  [413, 'too_large'],
  [422, 'rejected'],
  [429, 'overloaded'],
  [500, 'unavailable'],
  [503, 'overloaded'],
])('%i means %s', (status, meaning) => {
  expect(kinds([outcomeOfStatus(status, 'x')])).toEqual([meaning]);
});

test('the same event has the same body on every try', () => {
  const [first, second] = [0, 60_000].map((at) => {
    const body = webhookBody(record(7), { sourceUri: 'urn:runplane' });
    return { body, headers: webhookHeaders('e7', body, { secrets: [secret], now: new Date(at) }) };
  });
  expect(second?.body).toBe(first?.body);
  expect(second?.headers['webhook-id']).toBe(first?.headers['webhook-id']);
  expect(second?.headers['webhook-signature']).not.toBe(first?.headers['webhook-signature']);
});

test.each([
  { url: 'http://example.com/' },
  { url: 'https://u:p@example.com/' },
  { url: 'ftp://example.com/' },
  { secrets: [] },
  { secrets: ['whsec_c2hvcnQ='] },
  { allowedRanges: ['10.0.0.1'] },
])('%j is refused', (options) => {
  expect(() => openWebhookPublisher({ url: 'https://example.com/', secrets: [secret], ...options })).toThrow(
    expect.objectContaining({ code: 'invalid_request' }),
  );
});
