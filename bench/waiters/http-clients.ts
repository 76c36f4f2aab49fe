import http from 'node:http';
import { isPoll, latencyOf, runOf } from './waiters-case';

// The clients of waiters/http.ts, in a process of their own: they send the latency of each event that reaches them.

export interface ClientsTask {
  readonly url: string;
  readonly key: string;
  readonly waiters: number;
  readonly runIds: readonly string[];
  readonly afterSeq: number;
}

const agent = new http.Agent({ keepAlive: true, maxSockets: Infinity });

process.once('message', ({ url, key, waiters, runIds, afterSeq }: ClientsTask) => {
  const get = (path: string): Promise<http.IncomingMessage> =>
    new Promise((resolve, reject) => {
      http.get(`${url}/v1${path}`, { agent, headers: { authorization: `Bearer ${key}` } }, resolve).once('error', reject);
    });
  const poll = async (runId: string): Promise<void> => {
    for (let seen = afterSeq; ;) {
      const answer = await get(`/runs/${runId}/events?after=${seen}&wait=30`);
      const { events } = JSON.parse(await textOf(answer)) as { events: { seq: number; payload: { text: string } }[] };
      for (const event of events) process.send?.(latencyOf(event.payload.text));
      seen = events.at(-1)?.seq ?? seen;
    }
  };
  const follow = async (runId: string): Promise<void> => {
    let rest = '';
    for await (const chunk of (await get(`/runs/${runId}/events/stream?after=${afterSeq}`)).setEncoding('utf8')) {
      const frames = (rest + String(chunk)).split('\n\n');
      rest = frames.pop() ?? '';
      for (const frame of frames) {
        const text = /"text":"(\d+)"/.exec(frame)?.[1];
        if (text !== undefined) process.send?.(latencyOf(text));
      }
    }
  };
  for (let n = 0; n < waiters; n += 1) {
    void (isPoll(n) ? poll : follow)(runOf(runIds, n)).catch((error: unknown) => {
      console.error(error);
      process.exit(1);
    });
  }
});

async function textOf(answer: http.IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of answer.setEncoding('utf8')) text += String(chunk);
  return text;
}
