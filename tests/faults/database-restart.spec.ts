import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '@runplane/contracts';
import { openClient, type RawQueries } from '@runplane/database/testing';
import { aClaimedRun, endLease, message } from '@runplane/runs/testing';
import type { ApiProcess } from '../support/api-process';
import { useMachine } from '../support/machine';
import { until } from '../support/until';

// The database goes away and comes back, while the API does nothing and while it works: the process stays, says that it is not ready, and
// goes on by itself.

jest.setTimeout(180_000);
const machine = useMachine({ onRunnerLost: 'fail' });
let api: ApiProcess;
beforeAll(async () => {
  api = await machine.startApi({ env: { RUNPLANE_DISPATCH: 'off' } });
});

/** Calls go on until they are answered. */
const patiently = { retry: { attemptsMax: Infinity, elapsedMsMax: Infinity, pauseMsMin: 50, pauseMsMax: 300 } };

async function countBackends(where: string): Promise<number> {
  const client = await openClient(machine.postgres.url);
  const { rows } = await client.query(
    `SELECT count(*)::int AS n FROM pg_stat_activity WHERE application_name LIKE 'runplane-api%' AND ${where}`,
  );
  await client.end();
  return (rows[0] as { n: number }).n;
}

async function terminateBackends(on: RawQueries): Promise<void> {
  await on.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'runplane-api%'`);
}

async function createsARun(): Promise<void> {
  const runId = newId('run');
  await machine.client(api).createRun({ projectId: 'p1', backendProfile: 'none' }, { runId });
  const { events } = await machine.client(api).listEvents(runId);
  expect(events).toHaveLength(1);
}

describe('a database that is restarted while the API is idle', () => {
  test.each([
    ['killed', () => machine.postgres.crash()],
    ['stopped', () => machine.postgres.stop()],
  ] as const)('%s: the same process says that it is not ready, then that it is, and works', async (_how, end) => {
    const { pid } = api;
    await createsARun();

    await end();
    await api.untilReady(false, 60_000);
    const refused = await machine
      .client(api)
      .getRun('run-1', { retry: { attemptsMax: 1 } })
      .catch((error: unknown) => error);
    await machine.restartPostgres();
    await api.untilReady(true, 60_000);

    expect(refused).toMatchObject({ code: 'database_unavailable', status: 503 });
    await createsARun();
    expect([api.pid, api.isRunning]).toEqual([pid, true]);
    await until('it listens again, once', async () => (await countBackends(`application_name = 'runplane-api-listener'`)) === 1);
  });
});

describe('under load', () => {
  /** A runner that appends batch after batch until told to stop; what was acknowledged, by sequence. */
  async function appendUntil(stop: () => boolean): Promise<{ runId: string; acknowledged: Map<number, string>; batches: number }> {
    const client = machine.client(api);
    const runId = newId('run');
    await client.createRun({ projectId: 'p1', backendProfile: 'none' }, { runId, ...patiently });
    const { epoch } = await client.claimRun(runId, { runnerId: newId('runner'), leaseMs: 120_000 }, patiently);
    const acknowledged = new Map<number, string>();
    let producerSequence = 0;
    while (!stop()) {
      producerSequence += 1;
      const text = `batch ${producerSequence}`;
      const { firstSeq } = await client.appendEvents(runId, { epoch, producerSequence, events: [message(text)] }, patiently);
      acknowledged.set(firstSeq, text);
    }
    await client.finishRun(runId, { epoch, outcome: { terminalStatus: 'completed' } }, patiently);
    return { runId, acknowledged, batches: producerSequence };
  }

  async function expectStored({ runId, acknowledged, batches }: Awaited<ReturnType<typeof appendUntil>>): Promise<void> {
    const { rows } = await machine.db.pool.query<{ seq: number; text: string }>(
      `SELECT seq::int, payload ->> 'text' AS text FROM runplane.run_events WHERE run_id = $1 AND type = 'assistant_message' ORDER BY seq`,
      [runId],
    );
    expect(new Map(rows.map(({ seq, text }) => [seq, text]))).toEqual(acknowledged);
    expect(rows).toHaveLength(batches);
  }

  test('every connection of the API is cut twenty times: the same process, nothing that was acknowledged lost or doubled', async () => {
    const { pid } = api;
    let over = false;
    const runners = [1, 2, 3, 4].map(() => appendUntil(() => over));
    const killer = await openClient(machine.postgres.url);

    for (let cut = 1; cut <= 20; cut += 1) {
      await sleep(20 + Math.random() * 200);
      await terminateBackends(killer);
    }
    over = true;
    const appended = await Promise.all(runners);
    await killer.end();

    for (const each of appended) await expectStored(each);
    expect([api.pid, api.isRunning]).toEqual([pid, true]);
    await api.untilReady(true, 60_000);
    expect(await countBackends(`state LIKE 'idle in transaction%'`)).toBe(0);
  });

  test('the server is killed and started again: the same process, nothing that was acknowledged lost or doubled', async () => {
    const { pid } = api;
    let over = false;
    const runners = [1, 2].map(() => appendUntil(() => over));

    await sleep(300 + Math.random() * 300);
    await machine.postgres.crash();
    await machine.restartPostgres();
    await api.untilReady(true, 60_000);
    over = true;
    const appended = await Promise.all(runners);

    for (const each of appended) await expectStored(each);
    expect([api.pid, api.isRunning]).toEqual([pid, true]);
  });

  test('a sweep that loses its connections in the middle is done by the next ones, to the last run', async () => {
    const runs = await Promise.all(Array.from({ length: 40 }, () => aClaimedRun(machine.db, { onRunnerLost: 'fail' })));
    for (const { run } of runs) await endLease(machine.db, run.id);
    const left = async (): Promise<number> => {
      const { rows } = await machine.db.pool.query<{ n: number }>(
        `SELECT count(*)::int AS n FROM runplane.runs r JOIN runplane.run_leases k ON k.run_id = r.id WHERE k.expires_at <= runplane.app_now()`,
      );
      return rows[0]?.n ?? 0;
    };
    const killer = await openClient(machine.postgres.url);

    await until('the sweep has begun', async () => (await left()) < runs.length, 20_000, 5);
    for (let cut = 1; cut <= 5; cut += 1) {
      await terminateBackends(killer);
      await sleep(20);
    }

    await until('no run is left', async () => (await left()) === 0, 60_000);
    await killer.end();
  });
});
