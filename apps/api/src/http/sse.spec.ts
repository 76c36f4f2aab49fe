import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { RunEvent } from '@runplane/contracts';
import type { FastifyReply } from 'fastify';
import { controlFrame, eventFrame, EventStream, frameId, parseFrameId } from './sse';

const event = (over: Partial<RunEvent>): RunEvent => ({
  id: 'ev_1',
  runId: 'run_1',
  seq: 7,
  type: 'assistant_message',
  payload: {},
  commandId: null,
  createdAt: '2026-01-01T00:00:00.000Z',
  ...over,
});

describe('a frame', () => {
  test('has the place in the log as its id, the type as its name and one line of data', () => {
    const frame = eventFrame(event({ payload: { text: 'a\nb\r\u2028c' } }));

    expect(frame.split('\n').slice(0, 2)).toEqual(['id: run_1:7', 'event: assistant_message']);
    expect(frame).toMatch(/^id: [^\n\r]*\nevent: [^\n\r]*\ndata: [^\n\r]*\n\n$/);
    expect(JSON.parse(frame.split('data: ')[1] ?? '').payload).toEqual({ text: 'a\nb\r\u2028c' });
  });

  test('cannot be forged by a type', () => {
    expect(eventFrame(event({ type: 'x\nevent: forged\rid: 9' }))).toMatch(/^id: [^\n\r]*\nevent: [^\n\r ]*\ndata: [^\n\r]*\n\n$/);
  });

  test('of the stream itself has no id', () => {
    expect(controlFrame('end', { status: 'completed' })).toBe('event: end\ndata: {"status":"completed"}\n\n');
  });
});

describe('the id of a frame', () => {
  test('leads back to the sequence, whatever letters the run’s id has', () => {
    for (const runId of ['run_1', 'a:b', '会话 一', 'a%2Fb', 'x\u{1F600}']) expect(parseFrameId(frameId(runId, 12), runId)).toBe(12);
  });

  test.each([
    '',
    '7',
    'run_1',
    'run_1:',
    'run_1:-1',
    'run_1:07',
    'run_1:1e3',
    'run_1:9999999999999999',
    'run_2:7',
    'run_1:7\nid: 8',
    ' run_1:7',
  ])('is refused when it is of another run or malformed: %j', (id) => {
    expect(parseFrameId(id, 'run_1')).toBeUndefined();
  });
});

describe('an idle stream', () => {
  test('sends a comment every 15 s, keeps the headers of hooks, and leaves no timer behind', async () => {
    jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask', 'setTimeout', 'clearTimeout'] });
    let stream: EventStream | undefined;
    const server = http.createServer((_request, raw) => {
      stream = new EventStream({
        raw,
        hijack: () => undefined,
        getHeaders: () => ({ 'access-control-allow-origin': '*' }),
      } as unknown as FastifyReply);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const response = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    const read = async () => Buffer.from((await reader.read()).value ?? []).toString();

    expect(response.headers.get('access-control-allow-origin')).toBe('*'); // what hooks have set stays
    expect(await read()).toBe('retry: 2000\n\n');
    for (let n = 0; n < 3; n += 1) {
      jest.advanceTimersByTime(15_000);
      expect(await read()).toBe(': ping\n\n');
    }
    stream?.end();

    expect((await reader.read()).done).toBe(true);
    expect(jest.getTimerCount()).toBe(0);
    jest.useRealTimers();
    server.close();
  });
});
