import { openPlainPool } from '../support/store';
import { inCalls, PAYLOAD, untilEmpty, type PeerSetting, type QueuePeer } from './queue-peer';
import { loadPeer } from './rivals';

// pg-boss as its documentation says for throughput: batches by insert() and fetch({ batchSize }), a queue in a table of its own, no worker that polls.
// Its maintenance rests, as ours does: the loops of neither are measured.

interface PgBoss {
  on(event: 'error', listener: () => void): void;
  start(): Promise<unknown>;
  stop(options: { graceful: boolean }): Promise<void>;
  createQueue(name: string, options: { partition: boolean }): Promise<void>;
  send(name: string, data: object): Promise<string | null>;
  insert(name: string, jobs: { data: object }[]): Promise<unknown>;
  fetch(name: string, options: { batchSize: number }): Promise<{ id: string }[]>;
  complete(name: string, ids: string[]): Promise<{ affected: number }>;
}

const QUEUE = 'bench';

export async function openPgBoss({ url, callersMax }: PeerSetting): Promise<QueuePeer> {
  const { module, version } = loadPeer<{ PgBoss: new (options: object) => PgBoss }>('pg-boss');
  const boss = new module.PgBoss({ connectionString: url, max: callersMax, supervise: false, schedule: false });
  boss.on('error', () => undefined);
  await boss.start();
  await boss.createQueue(QUEUE, { partition: true });
  const admin = openPlainPool(url, 1);
  return {
    description: `pg-boss ${version}: send or insert, fetch, complete; partition: true, supervise: false, schedule: false, max: ${callersMax}`,
    enqueue: (work) =>
      inCalls(work, (jobs) =>
        work.perCall === 1
          ? boss.send(QUEUE, PAYLOAD)
          : boss.insert(
              QUEUE,
              Array.from({ length: jobs }, () => ({ data: PAYLOAD })),
            ),
      ),
    workOff: (work) =>
      untilEmpty(work, async (batchSize) => {
        const jobs = await boss.fetch(QUEUE, { batchSize });
        if (jobs.length === 0) return 0;
        const ids = jobs.map(({ id }) => id);
        const { affected } = await boss.complete(QUEUE, ids);
        if (affected !== ids.length) throw new Error(`${affected} of ${ids.length} jobs were completed`);
        return jobs.length;
      }),
    waiting: async () => {
      const { rows } = await admin.query<{ n: string }>(`SELECT count(*) AS n FROM pgboss.job WHERE name = $1 AND state < 'completed'`, [
        QUEUE,
      ]);
      return Number(rows[0]?.n);
    },
    close: async () => {
      await admin.end();
      await boss.stop({ graceful: false });
    },
  };
}
