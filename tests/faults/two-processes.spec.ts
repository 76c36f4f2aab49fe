import { randomUUID } from 'node:crypto';
import { createClient, type Client } from '@runplane/client';
import type { RunEvent } from '@runplane/contracts';
import { balanced, freePort, type ApiProcess } from '../support/api-process';
import { useMachine } from '../support/machine';
import { until } from '../support/until';

// Two processes with the same configuration, the same name and the same folder, as a rolling deployment has them: each start is somebody
// else. One is told to stop while both work.

jest.setTimeout(180_000);
const machine = useMachine({ onRunnerLost: 'fail' });
const backends = {
  lines: { command: ['/bin/sh', '-c', 'for i in 1 2 3 4 5 6 7 8; do echo "line $i"; sleep 0.1; done'], stdin: 'turn' as const },
};
const SESSIONS = 4;
const CLOSE_MS = 30_000;

let staying: ApiProcess;
let leaving: ApiProcess;
let client: Client;

beforeAll(async () => {
  const port = await freePort();
  const env = { RUNPLANE_PUBLIC_URL: `http://127.0.0.1:${port}` }; // runners speak with the one that stays, as through a load balancer
  staying = await machine.startApi({ backends, port, env });
  leaving = await machine.startApi({ backends, env });
  client = createClient({
    url: 'http://balancer',
    apiKey: machine.apiKey,
    fetch: balanced([staying, leaving]),
    retry: { attemptsMax: Infinity },
  });
});

interface Watched {
  readonly runId: string;
  readonly events: RunEvent[];
}

async function turn(sessionId: string): Promise<Watched> {
  const { run } = await client.admitTurn(
    sessionId,
    { run: { projectId: 'p1', backendProfile: 'lines' }, payload: { text: 'go' } },
    { idempotencyKey: randomUUID() },
  );
  const events: RunEvent[] = [];
  for await (const event of client.followRun(run.id)) events.push(event);
  return { runId: run.id, events };
}

test('one of them is told to stop, and started again: it goes in time, nothing stops for it, each run is worked on once', async () => {
  let over = false;
  const loops = Array.from({ length: SESSIONS }, async (_, i) => {
    const done: Watched[] = [];
    while (!over) done.push(await turn(`session-${i}`));
    return done;
  });

  const exits: [number | null, number][] = [];
  for (let round = 1; round <= 2; round += 1) {
    await until('both have started something', async () => (await countRuns()) >= round * SESSIONS);
    const askedAt = performance.now();
    exits.push([await leaving.stop(), performance.now() - askedAt]);
    await leaving.restart();
  }
  over = true;
  const watched = (await Promise.all(loops)).flat();

  for (const [code, ms] of exits) {
    expect(code).toBe(0);
    expect(ms).toBeLessThan(CLOSE_MS);
  }
  const { rows } = await machine.db.pool.query(
    `SELECT DISTINCT status::text, attempts, (SELECT count(*)::int FROM runplane.dispatch_intents i WHERE i.run_id = r.id) AS intents FROM runplane.runs r`,
  );
  expect(rows).toEqual([{ status: 'completed', attempts: 1, intents: 1 }]);
  for (const { events } of watched) {
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, i) => i + 1));
    expect(events.filter(({ payload }) => payload['phase'] === 'process-started')).toHaveLength(1);
  }
});

async function countRuns(): Promise<number> {
  const { rows } = await machine.db.pool.query<{ n: number }>('SELECT count(*)::int AS n FROM runplane.runs');
  return rows[0]?.n ?? 0;
}
