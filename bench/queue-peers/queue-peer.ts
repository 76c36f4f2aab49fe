/** So many jobs, put in or worked off by so many callers at a time, with so many a call. */
export interface Work {
  readonly jobs: number;
  readonly perCall: number;
  readonly callers: number;
}

/** A queue on PostgreSQL, each in a process of its own. */
export interface QueuePeer {
  /** Version and settings, one line. */
  readonly description: string;
  enqueue(work: Work): Promise<void>;
  /** Takes every job and ends it. Resolves with the milliseconds from the first job to the end of the last, as the database has it. */
  workOff(work: Work): Promise<number>;
  /** How many jobs are not ended, by the database. */
  waiting(): Promise<number>;
  close(): Promise<void>;
}

export interface PeerSetting {
  readonly url: string;
  /** The most callers there will be: a connection for each. */
  readonly callersMax: number;
}

/** What each job carries. */
export const PAYLOAD = { n: 1, of: 'bench' };

/** Keeps the callers busy until so many jobs are through; `call` gets how many jobs it is for. */
export async function inCalls({ jobs, perCall, callers }: Work, call: (jobs: number, caller: number) => Promise<unknown>): Promise<void> {
  let left = jobs;
  const work = async (_: unknown, caller: number): Promise<void> => {
    while (left > 0) {
      const now = Math.min(perCall, left);
      left -= now;
      await call(now, caller);
    }
  };
  await Promise.all(Array.from({ length: callers }, work));
}

/** Lets the callers take and end jobs until none is left; `step` takes and ends up to so many, and says how many it got. */
export async function untilEmpty({ jobs, perCall, callers }: Work, step: (limit: number) => Promise<number>): Promise<number> {
  const start = performance.now();
  let ended = 0;
  const work = async (): Promise<void> => {
    for (let got = -1; got !== 0; ended += got) got = ended < jobs ? await step(perCall) : 0;
  };
  await Promise.all(Array.from({ length: callers }, work));
  return performance.now() - start;
}

/** For queues whose own workers do the jobs: `onJob` is what a job does, `ended` resolves at the last one with the moment of the first. */
export function countJobs(jobs: number): { readonly onJob: () => void; readonly ended: Promise<number> } {
  let onJob = (): void => undefined;
  const ended = new Promise<number>((resolve) => {
    let done = 0;
    let first = 0;
    onJob = () => {
      if (done === 0) first = performance.now();
      done += 1;
      if (done === jobs) resolve(first);
    };
  });
  return { onJob, ended };
}
