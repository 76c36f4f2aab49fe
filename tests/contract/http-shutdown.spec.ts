import type { ChildProcess } from 'node:child_process';
import { makeWorld, type World } from '../support/route-samples';
import { startServed } from '../support/served';
import { parseFrames, RawClient, type SseFrame } from '../support/sse-client';
import { useApi } from '../support/test-api';
import { until } from '../support/until';

const api = useApi();
const children: ChildProcess[] = [];
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
});

const start = () => startServed({ DATABASE_URL: api.url }, children);

describe('a process that is told to stop', () => {
  test('ends within seconds and with 0, whoever is connected; its clients go on elsewhere and miss nothing', async () => {
    const world: World = await makeWorld(api);
    const url = `/v1/runs/${world.runId}`;
    const authorization = `Bearer ${api.adminKey}`;
    const first = await start();
    const streams = Array.from({ length: 20 }, () => new RawClient(first.address, `${url}/events/stream`, { authorization }));
    const silent = new RawClient(first.address, '/healthz', {});
    for (const client of [...streams, silent]) await client.until(({ bytes }) => bytes > 0, 'an answer');
    const poll = fetch(`${first.address}${url}/result?wait=30`, { headers: { authorization } });
    await until('all of them wait', async () => /^runplane_waiters 21$/m.test(await (await fetch(`${first.address}/metrics`)).text()));

    const start0 = Date.now();
    first.child.kill('SIGTERM');
    setTimeout(() => first.child.kill('SIGTERM'), 20);
    setTimeout(() => first.child.kill('SIGINT'), 40);
    const code = await first.exit;

    expect([code, first.output()]).toEqual([0, expect.any(String)]);
    expect(Date.now() - start0).toBeLessThan(25_000); // the poll alone would wait for thirty
    expect((await poll).status).toBe(200);
    const seen: SseFrame[][] = [];
    for (const client of streams) {
      await client.until(({ closed }) => closed, 'the end of the stream');
      const { frames, retries } = parseFrames(client.body);
      expect(frames.at(-1)?.event).toBe('shutdown');
      expect(retries).toHaveLength(2);
      seen.push(frames.filter(({ id }) => id !== undefined));
    }
    const second = await start();
    await api.call('POST', `${url}/finish`, { body: { epoch: world.epoch, outcome: { terminalStatus: 'completed' } } });
    const { body } = await api.call('GET', `${url}/events?limit=500`);
    for (const frames of seen) {
      const again = new RawClient(second.address, `${url}/events/stream`, { authorization, 'last-event-id': frames.at(-1)?.id ?? '' });
      await again.until((client) => client.frames.at(-1)?.event === 'end', 'the end of the run');
      expect([...frames, ...again.frames.slice(0, -1)].map(({ data }) => data)).toEqual(body.events);
      again.cut();
    }
    second.child.kill('SIGINT');
    expect(await second.exit).toBe(0);
  });

  test('that cannot start says why and exits with 1', async () => {
    const refused = startServed({ DATABASE_URL: 'postgresql://app:hunter2secret@127.0.0.1:1/x' }, children);

    await expect(refused).rejects.toThrow('runplane: ');
    await expect(refused).rejects.not.toThrow('hunter2secret');
    expect(children.at(-1)?.exitCode).toBe(1);
  });
});
