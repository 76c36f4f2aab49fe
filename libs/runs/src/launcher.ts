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
}

export interface LaunchResult {
  /** `adopted`: an earlier try of this job is alive. */
  readonly outcome: 'created' | 'adopted';
  /** What an operator looks for: a process id, a Job's name. */
  readonly jobName: string;
  readonly result: JsonObject;
  /** Resolves, with words for people, when what was launched has ended, where this process can tell; rejects never. */
  readonly ended?: Promise<string> | undefined;
}

/**
 * The port through which runners come to life. Called outside any transaction, possibly more than once for one request (a dispatcher
 * may die between the launch and its record): an implementation must find its earlier try and answer `adopted`.
 */
export interface Launcher {
  readonly kind: string;
  launch(request: LaunchRequest): Promise<LaunchResult>;
}

/** `permanent`: no repeat can help (unknown profile, refused workspace); otherwise the intent is tried again after a back-off. */
export class LaunchFailed extends Error {
  readonly permanent: boolean;
  readonly failureKind: string;

  constructor(message: string, options: { permanent: boolean; failureKind?: string; cause?: unknown }) {
    super(message, { cause: options.cause });
    this.name = 'LaunchFailed';
    this.permanent = options.permanent;
    this.failureKind = options.failureKind ?? 'infra-failed';
  }
}
