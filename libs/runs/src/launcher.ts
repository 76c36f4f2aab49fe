import type { JsonObject } from '@runplane/contracts';

/** What a launcher needs to start one runner. `runnerJobId` and `runnerId` are planned with the intent, so that a repeat finds its first try. */
export interface LaunchRequest {
  readonly tenantId: string;
  readonly runId: string;
  readonly commandId: string;
  readonly intentId: string;
  readonly runnerJobId: string;
  readonly runnerId: string;
  readonly backendProfile: string;
  readonly workspaceRef: JsonObject;
  readonly input: JsonObject;
  readonly executionPolicy: JsonObject;
  /** From the claim on; the server ends the run then. Absent or null: no limit. */
  readonly maxDurationMs?: number | null | undefined;
}

/** Where a job runs, for people who look for it. */
export interface JobPlace {
  readonly runnerId?: string | undefined;
  readonly namespace?: string | undefined;
  readonly image?: string | undefined;
  readonly serviceAccountName?: string | undefined;
}

export interface LaunchResult {
  /** `adopted`: an earlier try of this job is alive. */
  readonly outcome: 'created' | 'adopted';
  /** Which launcher did it, where the port stands for several; otherwise its own kind. */
  readonly launcher?: string | undefined;
  /** What an operator looks for: a process id, a Job's name. */
  readonly jobName: string;
  readonly result: JsonObject;
  /** What the record shows besides; absent is unknown. */
  readonly place?: JobPlace | undefined;
  /** Resolves, with words for people, when what was launched has ended, where this process can tell; rejects never. */
  readonly ended?: Promise<string> | undefined;
}

/** A job as the store has recorded it. */
export interface RecordedJob {
  readonly tenantId: string;
  readonly runId: string;
  readonly runnerJobId: string;
  readonly launcher: string;
  readonly jobName: string;
  readonly result: JsonObject;
}

/**
 * `active`: it runs or waits to. `succeeded`, `failed`: it has ended. `gone`: there is no such job any more. `unknown`: this launcher cannot
 * tell, as for a process of another machine.
 */
export type JobState = 'active' | 'succeeded' | 'failed' | 'gone' | 'unknown';

export interface ObservedJob {
  readonly state: JobState;
  /** The outside's word for why it ended, and its sentence; redacted where they are stored. */
  readonly reason?: string | undefined;
  readonly message?: string | undefined;
}

/** A job that a launcher found outside, whether the store knows it or not. */
export interface ListedJob extends ObservedJob {
  readonly tenantId: string;
  readonly runId: string;
  readonly runnerJobId: string;
  readonly launcher: string;
  readonly jobName: string;
  /** By the clock of this process: good for grace times, not for decisions about ownership. */
  readonly ageMs: number;
  /** The launcher's own handle: which object, in which version. */
  readonly version: unknown;
}

export interface LaunchOptions {
  /** Aborted when the place in the backend's capacity is lost: what has not been started by then had better not be. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * The port through which runners come to life. Called outside any transaction, possibly more than once for one request (a dispatcher
 * may die between the launch and its record): an implementation must find its earlier try and answer `adopted`.
 *
 * What it launches it can also be asked about, for reconciliation; a launcher without these methods is believed to know nothing.
 */
export interface Launcher {
  readonly kind: string;
  /** The launchers that it stands for: whoever asks about jobs asks them. */
  readonly parts?: readonly Launcher[] | undefined;
  launch(request: LaunchRequest, options?: LaunchOptions): Promise<LaunchResult>;
  /** What has become of a recorded job. Errors: JobHidden; any other says that nobody answers. */
  find?(job: RecordedJob): Promise<ObservedJob>;
  /**
   * All jobs of this store that can be seen from here, recorded or not; absent where nothing can outlive its record. `onFailure` is told of a
   * place that cannot be listed, the others are. Errors: where no place can; without `onFailure`, where one cannot.
   */
  list?(options?: { onFailure?: (what: string, error: unknown) => void }): Promise<readonly ListedJob[]>;
  /** Ends a listed job, if it is still the one that was listed and has not ended. False: it was left alone, or gone already. */
  remove?(job: ListedJob): Promise<boolean>;
}

/** This job may not be looked at from here; others may. */
export class JobHidden extends Error {}

/** `permanent`: no repeat can help (unknown profile, refused workspace); otherwise the intent is tried again after a back-off. */
export class LaunchFailed extends Error {
  readonly permanent: boolean;
  readonly failureKind: string;
  /** The outside asks for this pause; the next try comes no sooner. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, options: { permanent: boolean; failureKind?: string; retryAfterMs?: number | undefined; cause?: unknown }) {
    super(message, { cause: options.cause });
    this.name = 'LaunchFailed';
    this.permanent = options.permanent;
    this.failureKind = options.failureKind ?? 'infra-failed';
    this.retryAfterMs = options.retryAfterMs;
  }
}
