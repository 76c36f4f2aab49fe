import { openPlainPool } from '../support/store';
import { countJobs, inCalls, PAYLOAD, type PeerSetting, type QueuePeer } from './queue-peer';
import { loadPeer } from './rivals';

// DBOS Transact: a job is a workflow of no steps on a queue. Enqueued by its client, in batches by enqueueInTransaction, many in one transaction; worked
// off by its own dispatcher, which polls as often as it can, with as many workflows at a time as callers times batch.

interface Dbos {
  DBOSClient: {
    create(options: object): Promise<{
      enqueue(options: object, argument: object): Promise<unknown>;
      enqueueInTransaction(client: object, options: object, argument: object): Promise<unknown>;
      registerQueue(name: string, options: object): Promise<unknown>;
      destroy(): Promise<void>;
    }>;
  };
  DBOS: {
    setConfig(config: object): void;
    registerWorkflow(run: (argument: object) => Promise<void>, options: { name: string }): unknown;
    launch(): Promise<void>;
    shutdown(): Promise<void>;
  };
}

const NAME = 'bench';
const OPTIONS = { workflowName: NAME, queueName: NAME };
const POLL_MS = 1;

export async function openDbos({ url, callersMax }: PeerSetting): Promise<QueuePeer> {
  const { module, version } = loadPeer<Dbos>('@dbos-inc/dbos-sdk');
  const { DBOS, DBOSClient } = module;
  const logger = { info: quiet, debug: quiet, warn: quiet, error: quiet };
  let onJob: () => void = quiet;
  DBOS.registerWorkflow(() => Promise.resolve(onJob()), { name: NAME });
  DBOS.setConfig({ name: NAME, systemDatabaseUrl: url, systemDatabasePoolSize: Math.max(callersMax, 10), logger, listenQueues: [NAME] });
  await DBOS.launch(); // makes its schema
  await DBOS.shutdown();
  const pool = openPlainPool(url, callersMax);
  const client = await DBOSClient.create({ systemDatabaseUrl: url, systemDatabasePool: pool, applicationName: NAME, logger });
  const admin = openPlainPool(url, 1);
  const waiting = async (): Promise<number> => {
    const { rows } = await admin.query<{ n: string }>(
      `SELECT count(*) AS n FROM dbos.workflow_status WHERE queue_name = $1 AND status IN ('ENQUEUED', 'PENDING')`,
      [NAME],
    );
    return Number(rows[0]?.n);
  };
  const enqueueMany = async (jobs: number): Promise<void> => {
    const connection = await pool.connect();
    try {
      await connection.query('BEGIN');
      for (let n = 0; n < jobs; n += 1) await client.enqueueInTransaction(connection, OPTIONS, PAYLOAD);
      await connection.query('COMMIT');
    } finally {
      connection.release();
    }
  };
  return {
    description:
      `@dbos-inc/dbos-sdk ${version}: enqueue or enqueueInTransaction, workflows without steps; workerConcurrency: callers × batch, ` +
      `minPollingIntervalMs: ${POLL_MS}, systemDatabasePoolSize: ${Math.max(callersMax, 10)}`,
    enqueue: (work) => inCalls(work, (jobs) => (work.perCall === 1 ? client.enqueue(OPTIONS, PAYLOAD) : enqueueMany(jobs))),
    workOff: async ({ jobs, perCall, callers }) => {
      const counted = countJobs(jobs);
      onJob = counted.onJob;
      // Before the launch: its dispatcher would begin by the limits of the step before.
      await client.registerQueue(NAME, { workerConcurrency: callers * perCall, minPollingIntervalMs: POLL_MS });
      await DBOS.launch();
      const first = await counted.ended;
      while ((await waiting()) > 0);
      const took = performance.now() - first;
      await DBOS.shutdown();
      return took;
    },
    waiting,
    close: async () => {
      await client.destroy();
      await pool.end();
      await admin.end();
    },
  };
}

function quiet(): void {
  // nothing is printed, nothing is counted
}
