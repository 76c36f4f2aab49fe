import { openPlainPool } from '../support/store';
import { countJobs, inCalls, PAYLOAD, type PeerSetting, type QueuePeer, type Work } from './queue-peer';
import { loadPeer } from './rivals';

// graphile-worker as its page on performance says. It has no calls to take and to end a job: its own workers do. One at a time they are as many as
// callers, without batching; in batches each caller is an instance with 24 workers, a local queue of the batch's size and completion in batches.
// An ended job is deleted.

interface GraphileWorker {
  Logger: new (factory: () => () => void) => object;
  makeWorkerUtils(options: object): Promise<{
    migrate(): Promise<void>;
    addJob(task: string, payload: object): Promise<unknown>;
    addJobs(jobs: { identifier: string; payload: object }[]): Promise<unknown>;
    release(): Promise<void>;
  }>;
  run(options: object): Promise<{ stop(): Promise<void> }>;
}

const TASK = 'bench';
const WORKERS = 24;

export async function openGraphileWorker({ url, callersMax }: PeerSetting): Promise<QueuePeer> {
  const { module, version } = loadPeer<GraphileWorker>('graphile-worker');
  const logger = new module.Logger(() => () => undefined);
  const pool = openPlainPool(url, callersMax);
  const utils = await module.makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  const admin = openPlainPool(url, 1);
  const waiting = async (): Promise<number> => {
    const { rows } = await admin.query<{ n: string }>('SELECT count(*) AS n FROM graphile_worker._private_jobs');
    return Number(rows[0]?.n);
  };
  const presetOf = ({ perCall, callers }: Work): object =>
    perCall === 1
      ? { connectionString: url, concurrentJobs: callers, maxPoolSize: callers + 1 }
      : {
          connectionString: url,
          concurrentJobs: WORKERS,
          maxPoolSize: 4,
          localQueue: { size: perCall },
          completeJobBatchDelay: 0,
          failJobBatchDelay: 0,
        };
  return {
    description:
      `graphile-worker ${version}: addJob or addJobs, run; one at a time concurrentJobs: callers; in batches an instance for each caller, ` +
      `concurrentJobs: ${WORKERS}, localQueue.size: the batch, completeJobBatchDelay: 0`,
    enqueue: (work) =>
      inCalls(work, (jobs) =>
        work.perCall === 1
          ? utils.addJob(TASK, PAYLOAD)
          : utils.addJobs(Array.from({ length: jobs }, () => ({ identifier: TASK, payload: PAYLOAD }))),
      ),
    workOff: async (work) => {
      const { onJob, ended } = countJobs(work.jobs);
      const instances = work.perCall === 1 ? 1 : work.callers;
      const runners = await Promise.all(
        Array.from({ length: instances }, () =>
          module.run({ preset: { worker: { ...presetOf(work), logger } }, logger, noHandleSignals: true, taskList: { [TASK]: onJob } }),
        ),
      );
      const first = await ended;
      while ((await waiting()) > 0);
      const took = performance.now() - first;
      await Promise.all(runners.map((runner) => runner.stop()));
      return took;
    },
    waiting,
    close: async () => {
      await utils.release();
      await pool.end();
      await admin.end();
    },
  };
}
