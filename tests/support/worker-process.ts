import { createClient } from '@runplane/client';
import { runQueueWorker, runSubmissionWorker, type WorkContext } from '@runplane/runner';
import { setTimeout as sleep } from 'node:timers/promises';

// A worker as an operator runs it: until SIGTERM. Says in lines what it does: `begun <id>`, and at its end its report. What it has begun ends when
// SIGTERM comes again.

const { RUNPLANE_URL: url = '', RUNPLANE_API_KEY: apiKey = '', WORKER_KIND: kind } = process.env;
const stop = new AbortController();
let signals = 0;
process.on('SIGTERM', () => {
  signals += 1;
  stop.abort();
});
const work = async (id: string, { signal }: WorkContext): Promise<void> => {
  console.log(`begun ${id}`);
  while (signals < 2) await sleep(10, undefined, { signal });
};
const options = { client: createClient({ url, apiKey }), signal: stop.signal, concurrency: 2, prefetch: 3, waitSeconds: 1 };
const working =
  kind === 'submission'
    ? runSubmissionWorker({ ...options, kind: 'work', handle: ({ operationId }, context) => work(operationId, context) })
    : runQueueWorker({ ...options, queue: 'work', handle: ({ taskId }, context) => work(taskId, context) });
working.then(
  (report) => console.log(JSON.stringify(report)),
  (error: unknown) => {
    console.error(error);
    process.exitCode = 1;
  },
);
