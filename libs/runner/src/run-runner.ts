import { type Client, createClient, isPassing, isProblem, ProblemError } from '@runplane/client';
import {
  type Approval,
  CLAIM_LEASE_MS_DEFAULT,
  type InputRequest,
  type JsonObject,
  newId,
  type Outcome,
  type Run,
} from '@runplane/contracts';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Claim, ClaimedWork } from './claimed-work';
import type { ReceivedCommand } from './command-queue';
import type { AskedCall, AskedQuestion } from './people';
import { RunLost } from './stop-reasons';

export interface RunnerOptions {
  /** A client, or where and with which token to make one. */
  readonly client: Client | { url: string; token: string };
  readonly runId: string;
  /** One incarnation of a runner: a new one for each process start; made when absent. */
  readonly runnerId?: string | undefined;
  /** The command to work on; the first open turn when absent. It is finished together with the run. */
  readonly commandId?: string | undefined;
  readonly leaseMs?: number | undefined;
  /** How soon news are noticed that do not come at once; a third of the lease when absent. */
  readonly heartbeatMs?: number | undefined;
  /** How long to wait for the end of another runner's lease. */
  readonly claimWaitMs?: number | undefined;
  /** Stops the runner: its work is aborted; the run fails, or waits for the next runner where it says `requeue`. */
  readonly signal?: AbortSignal | undefined;
  readonly work: (context: RunnerContext) => Promise<Outcome>;
}

export interface RunnerContext {
  readonly run: Run;
  readonly epoch: number;
  /** Aborts when the work has to stop; the reason is CancelRequested, TimeOver, RunnerStopping, RunLost, or the refusal of an event. */
  readonly signal: AbortSignal;
  /** Aborts when nothing can be written any more: no time is left for a friendly end. */
  readonly lost: AbortSignal;
  /** The turn first, then steers and other commands as they arrive. */
  readonly commands: AsyncIterableIterator<ReceivedCommand, undefined>;
  /** Adds an event; resolves when there is room for more (see EventWriter.emit). */
  readonly emit: (type: string, payload: JsonObject) => Promise<void>;
  /** Resolves when everything emitted so far is stored. */
  readonly flush: () => Promise<void>;
  /** Asks people to approve a call and waits for the resolution (see People.approve). */
  readonly approve: (call: AskedCall) => Promise<Approval>;
  /** Asks people a question and waits for the answer (see People.ask). */
  readonly ask: (question: AskedQuestion) => Promise<InputRequest>;
}

export type RunnerEnd =
  /** The run has ended as reported. */
  | { kind: 'finished'; run: Run }
  /** The claim was refused (another runner's, closed, being cancelled), or the report of the end was. */
  | { kind: 'refused'; error: ProblemError }
  /** Nothing more could be written. */
  | { kind: 'lost'; reason: RunLost }
  /** Stopped; the run is requeued when the lease ends. */
  | { kind: 'released' };

/** A run whose API does not come up again for so long is somebody else's. */
const CLAIM_PATIENCE_MS = 300_000;

/**
 * Claims a run, works on it and reports its end, once.
 *
 *   claim → work, with heartbeats beside it → all events stored → finish (run and turn in one call)
 *
 * Heartbeats go on until the finish is accepted. A cancel is acknowledged (`delivered`, `aborting`), aborts `context.signal` and leaves
 * the work its grace; what the work returns is reported, what it throws becomes `cancelled`. A lost lease aborts both signals, and
 * nothing is written from then on. Rejects only for errors that are no answer of the API to this run (network, wrong URL, a bug).
 */
export async function runRunner(options: RunnerOptions): Promise<RunnerEnd> {
  const client = 'token' in options.client ? createClient({ url: options.client.url, apiKey: options.client.token }) : options.client;
  try {
    const claim = await claimRun(client, options);
    return await new ClaimedWork(client, options, claim).end();
  } catch (error) {
    if (error instanceof RunLost) return { kind: 'lost', reason: error };
    if (options.signal?.aborted === true && error === options.signal.reason) return { kind: 'released' }; // before the claim
    if (error instanceof ProblemError && !isPassing(error)) return { kind: 'refused', error };
    throw error;
  }
}

async function claimRun(client: Client, options: RunnerOptions): Promise<Claim> {
  const { runId, runnerId = newId('runner'), leaseMs = CLAIM_LEASE_MS_DEFAULT, claimWaitMs = 0 } = options;
  const startedAt = performance.now();
  for (;;) {
    const claimedAt = performance.now();
    try {
      const retry = { attemptsMax: Infinity, elapsedMsMax: CLAIM_PATIENCE_MS };
      const claimed = await client.claimRun(runId, { runnerId, leaseMs }, { retry, signal: options.signal });
      return { ...claimed, claimedAt, leaseMs };
    } catch (error) {
      const pauseMs = isProblem(error, 'run_claimed') ? Math.min(Math.max(error.retryAfterMs ?? 0, 200), 2_000) : Infinity;
      if (performance.now() - startedAt + pauseMs > claimWaitMs) throw error;
      await sleep(pauseMs);
    }
  }
}
