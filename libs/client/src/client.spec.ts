import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createClient, ConnectionFailed, isProblem, ProblemError, StillInterrupting, UnexpectedAnswer } from './index';

const RETRY = { attemptsMax: 4, elapsedMsMax: 5_000, pauseMsMin: 1, pauseMsMax: 5 };

type Handler = (request: IncomingMessage, response: ServerResponse, body: string) => void;
let server: Server;
let url: string;
let handle: Handler;
let requests: { method: string; url: string; body: string; headers: IncomingMessage['headers'] }[];

beforeEach(async () => {
  requests = [];
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += String(chunk)));
    request.on('end', () => {
      requests.push({ method: request.method ?? '', url: request.url ?? '', body, headers: request.headers });
      handle(request, response, body);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(() => {
  server.closeAllConnections();
  server.close();
});

const client = (options: { timeoutMs?: number } = {}) => createClient({ url, apiKey: 'secret', retry: RETRY, ...options });

const appended = { firstSeq: 7, lastSeq: 8, eventIds: ['a', 'b'], replayed: false };
const append = { epoch: 3, producerSequence: 1, events: [{ type: 'reasoning', payload: { text: 'hm' } }] };

function answer(response: ServerResponse, status: number, body: object, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}
function problem(response: ServerResponse, status: number, code: string, retryable: boolean, headers: Record<string, string> = {}): void {
  answer(
    response,
    status,
    { type: 'about:blank', title: code, status, code, failureKind: 'infra-failed', retryable, data: { n: 1 } },
    headers,
  );
}

describe('a call', () => {
  it('carries the key and its body, and its answer is parsed', async () => {
    handle = (_, response) => answer(response, 200, { ...appended, newField: 'of a newer server' });

    expect(await client().appendEvents('run/1', append)).toEqual(appended);

    expect(requests[0]).toMatchObject({ method: 'POST', url: '/v1/runs/run%2F1/events', headers: { authorization: 'Bearer secret' } });
    expect(JSON.parse(requests[0]?.body ?? '')).toEqual(append);
  });

  it.each([
    [{ apiKey: 'rp_1\nThe key of default' }, 'apiKey'],
    [{ apiKey: '' }, 'apiKey'],
    [{ url: '127.0.0.1:3000' }, 'URL'],
    [{ url: 'localhost:3000' }, 'url is'],
    [{ url: '' }, 'URL'],
  ])('is not even made with %j', (wrong, why) => {
    expect(() => createClient({ url, apiKey: 'secret', ...wrong })).toThrow(why);
  });

  it('is refused with the problem, typed', async () => {
    handle = (_, response) => problem(response, 409, 'run_claimed', true, { 'retry-after': '2' });

    const error: unknown = await client()
      .claimRun('r', { runnerId: 'w' })
      .catch((e: unknown) => e);

    expect(error).toBeInstanceOf(ProblemError);
    expect(isProblem(error, 'run_claimed')).toBe(true);
    expect(error).toMatchObject({ status: 409, retryable: true, data: { n: 1 }, retryAfterMs: 2000 });
    expect(requests).toHaveLength(1); // a retryable 409 is for the caller to decide upon
  });

  it('is repeated while the server is overloaded, not before the time it names', async () => {
    const startedAt = performance.now();
    handle = (_, response) =>
      requests.length < 2 ? problem(response, 503, 'overloaded', true, { 'retry-after': '1' }) : answer(response, 200, appended);

    await client().appendEvents('r', append);

    expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1000);
    expect(requests).toHaveLength(2);
  });

  it('is repeated with the same content when the connection breaks after the server acted', async () => {
    handle = (request, response) =>
      requests.length < 3 ? request.socket.destroy() : answer(response, 200, { ...appended, replayed: true });

    expect(await client().appendEvents('r', append)).toMatchObject({ replayed: true });

    expect(new Set(requests.map(({ body }) => body)).size).toBe(1);
    expect(requests).toHaveLength(3);
  });

  it('is not repeated when a repeat could act twice', async () => {
    handle = (request) => request.socket.destroy();

    await expect(client().appendEvents('r', { epoch: 3, events: append.events })).rejects.toThrow(ConnectionFailed);

    expect(requests).toHaveLength(1);
  });

  it('keeps its own id and key over the repeats', async () => {
    handle = (request) => request.socket.destroy();

    await expect(client().createRun({ projectId: 'p', backendProfile: 'b' })).rejects.toThrow(ConnectionFailed);
    await expect(client().createCommand('r', { type: 'note', payload: {} })).rejects.toThrow(ConnectionFailed);

    expect(new Set(requests.map((request) => request.url)).size).toBe(2);
    expect(new Set(requests.map(({ headers }) => headers['idempotency-key'])).size).toBe(2); // none for the run, one for the command
    expect(requests).toHaveLength(2 * RETRY.attemptsMax);
  });

  it('ends at its deadline, and at once with the reason of its signal', async () => {
    handle = () => undefined;
    const controller = new AbortController();

    await expect(client({ timeoutMs: 20 }).getRun('r', { retry: { attemptsMax: 1 } })).rejects.toThrow(/no answer within 20 ms/);
    const aborted = client().getRun('r', { signal: controller.signal });
    controller.abort(new Error('enough'));
    await expect(aborted).rejects.toThrow('enough');
  });

  it('says so when something else than the API answers', async () => {
    handle = (_, response) => response.writeHead(404, { 'content-type': 'text/html' }).end('<h1>Not here</h1>');
    await expect(client().getRun('r')).rejects.toThrow(UnexpectedAnswer);
    handle = (_, response) => answer(response, 200, { hello: 'world' });
    await expect(client().getRun('r')).rejects.toThrow(UnexpectedAnswer);
  });
});

const event = (seq: number) => ({
  id: `evt_${seq}`,
  runId: 'r',
  seq,
  type: 'reasoning',
  payload: { text: `thought ${seq} – ü\n` },
  commandId: null,
  createdAt: '2026-01-01T00:00:00.000Z',
});
const frame = (seq: number) => `id: r:${seq}\nevent: reasoning\ndata: ${JSON.stringify(event(seq))}\n\n`;
const end = (terminalSeq: number) => `event: end\ndata: ${JSON.stringify({ status: 'completed', terminalSeq })}\n\n`;
const openStream = (response: ServerResponse) =>
  response.writeHead(200, { 'content-type': 'text/event-stream' }).write('retry: 5\n\n: ping\n\n');
const afterOf = (request: IncomingMessage) => Number(new URL(request.url ?? '', url).searchParams.get('after'));
const upTo = (last: number) => Array.from({ length: last }, (_, index) => index + 1);

async function collect(after = 0, options: { silenceMsMax?: number; signal?: AbortSignal } = {}) {
  const iterator = client().followRun('r', { after, ...options });
  const seqs: number[] = [];
  for (;;) {
    const next = await iterator.next();
    if (next.done === true) return { seqs, end: next.value };
    seqs.push(next.value.seq);
  }
}

describe('following a run', () => {
  it('yields every event once and in order though the connection is cut again and again, also inside a frame', async () => {
    const lengths = [0, 1, 3, 2.5, 7, 0.1, 4];
    handle = (request, response) => {
      openStream(response);
      const after = afterOf(request);
      const text = upTo(40).slice(after).map(frame);
      const length = lengths[requests.length % lengths.length] ?? 0;
      const whole = text.slice(0, Math.floor(length)).join('');
      const part = (text[Math.floor(length)] ?? end(40)).slice(0, 60 * (length % 1));
      if (after === 40) return void response.end(end(40));
      response.write(Buffer.from(whole + part), () => request.socket.destroy());
    };

    expect(await collect()).toEqual({ seqs: upTo(40), end: { status: 'completed', terminalSeq: 40 } });

    expect(requests.length).toBeGreaterThan(10);
  });

  it('starts behind a sequence, drops what it has, and ignores control frames that it does not know', async () => {
    handle = (_, response) => {
      openStream(response);
      response.end(`${[3, 4, 5, 5, 4, 6].map(frame).join('')}event: weather\ndata: {}\n\n${end(6)}`);
    };

    expect(await collect(4)).toEqual({ seqs: [5, 6], end: { status: 'completed', terminalSeq: 6 } });
  });

  it('comes back after a shutdown of the server and while it is down', async () => {
    handle = (request, response) => {
      if (requests.length === 1) return (void openStream(response), void response.end(`${frame(1)}event: shutdown\ndata: {}\n\n`));
      if (requests.length < 9) return void problem(response, 503, 'shutting_down', true);
      openStream(response);
      response.end(`${upTo(2).slice(afterOf(request)).map(frame).join('')}${end(2)}`);
    };

    expect((await collect()).seqs).toEqual([1, 2]);
  });

  it('takes a connection without any byte for dead', async () => {
    handle = (_, response) => {
      openStream(response);
      if (requests.length > 1) response.end(frame(1) + end(1));
    };

    expect((await collect(0, { silenceMsMax: 50 })).seqs).toEqual([1]);
  });

  it('fails on a refusal, on a hole in the sequence, and with the reason of its signal', async () => {
    handle = (_, response) => problem(response, 404, 'run_not_found', false);
    await expect(collect()).rejects.toThrow(ProblemError);

    handle = (_, response) => (openStream(response), void response.end(frame(1) + frame(3)));
    await expect(collect()).rejects.toThrow('goes on with 3 after 1');

    const controller = new AbortController();
    handle = (_, response) => (openStream(response), setTimeout(() => controller.abort(new Error('enough')), 20));
    await expect(collect(0, { signal: controller.signal })).rejects.toThrow('enough');
  });

  it('leaves no connection behind when the caller breaks off', async () => {
    let closed: Promise<void> | undefined;
    handle = (_, response) => {
      openStream(response);
      response.write(frame(1));
      closed = new Promise((resolve) => response.on('close', resolve));
    };

    for await (const { seq } of client().followRun('r')) if (seq === 1) break;

    await closed;
  });
});

describe('waiting', () => {
  const result = { runId: 'r', status: 'completed', finished: true, failure: null, lastAssistantMessage: null, usage: [], lastEventSeq: 3 };

  it('for a result goes on over unfinished answers and outages', async () => {
    handle = (request, response) => {
      if (requests.length < 3) return void request.socket.destroy();
      answer(response, 200, { ...result, finished: requests.length > 4, status: requests.length > 4 ? 'completed' : 'claimed' });
    };

    expect(await client().waitForResult('r')).toEqual(result);
  });

  it('for the feed goes from page to page by the cursor of the page', async () => {
    const item = (n: number) => ({
      cursor: `c${n}`, eventId: `e${n}`, stream: 'run', streamId: 'r', sequence: n, type: 't', tenantId: 'a', projectId: null,
      sessionId: null, runId: 'r', commandId: null, time: '2026-01-01T00:00:00.000Z', data: {},
    }); // prettier-ignore
    handle = (request, response) => {
      const after = Number(new URL(request.url ?? '', url).searchParams.get('after') ?? 0);
      answer(response, 200, { events: after === 2 ? [] : [item(after + 1)], cursor: String(after + 1), head: 'h', more: false });
    };

    const seen: number[] = [];
    for await (const { sequence } of client().followFeed()) if (seen.push(sequence) === 4) break;

    expect(seen).toEqual([1, 2, 4, 5]);
  });
});

describe('a turn that interrupts', () => {
  const time = '2026-01-01T00:00:00.000Z';
  const interrupting = {
    disposition: 'interrupting', sessionId: 's', runId: 'run_old', commandId: 'cmd_old', holder: 'r', deadlineRemainingMs: 30_000,
    request: {
      id: 'cancel_1', targetKind: 'run', targetId: 'run_old', runId: 'run_old', commandId: null, sessionId: 's', taskId: null, reason: 'interrupt',
      requestedBy: null, epoch: 1, stage: 'persisted', createdAt: time, updatedAt: time,
    },
  }; // prettier-ignore
  const command = {
    id: 'cmd_1', runId: 'run_1', sessionId: 's', seq: 1, type: 'turn', payload: {}, targetCommandId: null, state: 'pending', failure: null, cancel: null,
    createdAt: time, updatedAt: time, acknowledgedAt: null, finishedAt: null,
  }; // prettier-ignore
  const run = {
    id: 'run_1', tenantId: 't', projectId: 'p', sessionId: 's', sessionRef: null, workspaceRef: {}, resourceBundleRef: null, providerId: 'd',
    backendProfile: 'b', executionPolicy: {}, traceSink: null, status: 'pending', failure: null, onRunnerLost: 'fail', maxAttempts: 3, attempts: 0,
    claimedBy: null, claimEpoch: 0, leaseRemainingMs: null, lastEventSeq: 3, lastCommandSeq: 1, cancel: null, createdAt: time, updatedAt: time,
    finishedAt: null,
  }; // prettier-ignore
  const admitted = {
    disposition: 'created', run, command, intent: null, replayed: false, recoveredPriorPartialWrite: false, partialWrite: false,
  }; // prettier-ignore
  const turn = { run: { projectId: 'p', backendProfile: 'b' }, payload: {}, busyPolicy: 'interrupt' as const };
  const admit = (options: { signal?: AbortSignal; interruptMsMax?: number } = {}) =>
    client().admitTurn('s', turn, { idempotencyKey: 'k', ...options });

  it('is asked for again, as the same call, until the open one has ended', async () => {
    handle = (_, response) => (requests.length < 3 ? answer(response, 202, interrupting) : answer(response, 201, admitted));

    expect(await admit()).toMatchObject({ disposition: 'created', run: { id: 'run_1' } });

    expect(new Set(requests.map(({ body, headers }) => `${String(headers['idempotency-key'])} ${body}`)).size).toBe(1);
    expect(requests).toHaveLength(3);
  });

  it('is given up when its time is over, or with the signal', async () => {
    handle = (_, response) => answer(response, 202, interrupting);

    const error: unknown = await admit({ interruptMsMax: 10 }).catch((e: unknown) => e);
    expect(error).toBeInstanceOf(StillInterrupting);
    expect(error).toMatchObject({ interrupting: { runId: 'run_old' } });
    await expect(admit({ signal: AbortSignal.timeout(50) })).rejects.toMatchObject({ name: 'TimeoutError' });
  });
});
