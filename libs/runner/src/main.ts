import { readFile } from 'node:fs/promises';
import { createClient } from '@runplane/client';
import { JOB_FILE_VARIABLE, ProcessJob } from '@runplane/contracts';
import { processWork } from './process-backend';
import { runRunner, type RunnerEnd } from './run-runner';

// The program that a launcher starts. Its only input is one JSON line (ProcessJob): on standard input, or in the file that a Job mounts.

/** 0 says that the run has ended as reported; the others, that somebody else has to see to it. */
const EXIT_CODES: Record<RunnerEnd['kind'] | 'no-job', number> = { finished: 0, refused: 3, lost: 4, released: 5, 'no-job': 64 };
/** How soon cancels and steers reach the program, at the latest; while the API can be waited on, at once. */
const HEARTBEAT_MS_MAX = 2_000;
/** An earlier runner of this job may still have its lease. */
const CLAIM_WAIT_MS = 60_000;
const JOB_BYTES_MAX = 1024 * 1024;

async function main(): Promise<number> {
  const jobFile = process.env[JOB_FILE_VARIABLE];
  const line = jobFile === undefined ? await readLine(process.stdin) : await readFile(jobFile, 'utf8');
  if (line === undefined) return EXIT_CODES['no-job']; // the launcher died before it had recorded this process
  const { apiUrl, token, runId, commandId, runnerId, ...work } = ProcessJob.parse(JSON.parse(line));
  const stop = new AbortController();
  process.on('SIGTERM', () => stop.abort(new Error('SIGTERM'))); // a second one changes nothing: the end is still to be reported
  process.on('SIGINT', () => undefined).on('SIGHUP', () => undefined); // meant for the terminal's other processes

  const end = await runRunner({
    client: createClient({ url: apiUrl, apiKey: token }),
    runId,
    commandId,
    runnerId,
    leaseMs: work.backend.leaseMs,
    heartbeatMs: Math.min(HEARTBEAT_MS_MAX, work.backend.leaseMs / 3),
    claimWaitMs: CLAIM_WAIT_MS,
    signal: stop.signal,
    work: processWork(work),
  });
  console.log(`run ${runId}: ${describe(end)}`);
  return EXIT_CODES[end.kind];
}

function describe(end: RunnerEnd): string {
  if (end.kind === 'finished') return end.run.status;
  if (end.kind === 'refused') return `the claim was refused: ${end.error.code}`;
  return end.kind === 'lost' ? end.reason.message : 'released';
}

/** The first line; undefined when the input ends without one. */
async function readLine(input: NodeJS.ReadStream): Promise<string | undefined> {
  let text = '';
  for await (const chunk of input.setEncoding('utf8') as AsyncIterable<string>) {
    text += chunk;
    const end = text.indexOf('\n');
    if (end >= 0) return text.slice(0, end); // leaving the loop closes the input
    if (text.length > JOB_BYTES_MAX) throw new Error('the job is too long');
  }
  return undefined;
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(error);
    process.exit(1);
  },
);
