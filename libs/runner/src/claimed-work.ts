import { type Client, isProblem } from '@runplane/client';
import {
  type ClaimedRun,
  type Command,
  cutText,
  FAILURE_MESSAGE_CODE_POINTS_MAX,
  type HeartbeatAnswer,
  type Outcome,
  type Run,
} from '@runplane/contracts';
import { CommandQueue } from './command-queue';
import { watchCommands } from './command-watch';
import { EventWriter } from './event-writer';
import { Lease } from './lease';
import { People } from './people';
import type { RunnerEnd, RunnerOptions } from './run-runner';
import { CancelRequested, RunLost, RunnerStopping, TimeOver } from './stop-reasons';

export interface Claim extends ClaimedRun {
  /** performance.now() before the claim was sent. */
  readonly claimedAt: number;
  readonly leaseMs: number;
}

/** Calls that must get through are repeated until the lease is lost. */
const FOREVER = { attemptsMax: Infinity, elapsedMsMax: Infinity };
/** The report of a cancelled run should arrive before the server's own deadline ends it. */
const CANCEL_REPORT_MS = 500;
/** For work to put its tools down when everything is lost. */
const LOST_GRACE_MS = 5_000;

const CANCELLED: Outcome = { terminalStatus: 'cancelled' };
const TIMED_OUT: Outcome = { terminalStatus: 'cancelled', failureKind: 'timeout', failureMessage: 'timeout' };

/** The work on one claim, from its answer to the report of the end (see runRunner). */
export class ClaimedWork {
  private readonly client: Client;
  private readonly options: RunnerOptions;
  private readonly claim: Claim;
  private readonly turn: Command | undefined;
  private readonly abort = new AbortController();
  private readonly lease: Lease;
  private readonly writer: EventWriter;
  private readonly commands: CommandQueue;
  private readonly people: People;
  /** The acknowledgements of each cancel, by its request or command. */
  private readonly cancels = new Map<string, Promise<unknown>>();

  constructor(client: Client, options: RunnerOptions, claim: Claim) {
    this.client = client;
    this.options = options;
    this.claim = claim;
    const { runId, commandId } = options;
    const { epoch, leaseMs, claimedAt, leaseRemainingMs } = claim;
    this.turn = claim.commands.find(({ id, type }) => (commandId === undefined ? type === 'turn' : id === commandId));
    this.commands = new CommandQueue({
      ack: (id) => this.write((o) => client.ackCommand(runId, id, epoch, o)),
      finish: (id, outcome) => this.write((o) => client.finishCommand(runId, id, { epoch, outcome }, o)),
    });
    this.writer = new EventWriter({
      append: (batch) => this.write((o) => client.appendEvents(runId, { epoch, ...batch }, o)),
      onRefused: (error) => this.stop(error),
    });
    this.lease = new Lease({
      client,
      runId,
      epoch,
      leaseMs,
      claimedAt,
      leaseRemainingMs,
      heartbeatMs: options.heartbeatMs ?? leaseMs / 3,
      commandsAfterSeq: () => this.commands.lastSeq,
      onAnswer: (answer) => this.onHeartbeat(answer),
    });
    this.people = new People({
      client,
      runId,
      epoch,
      signal: this.abort.signal,
      write: (call) => this.write(call),
      lookAtRun: () => this.lease.beatNow(),
    });
  }

  async end(): Promise<RunnerEnd> {
    const { signal, commandId } = this.options;
    const onLost = () => {
      this.writer.refuse(this.lease.lost.reason);
      this.stop(this.lease.lost.reason);
    };
    const onStopRequest = () => this.stop(new RunnerStopping());
    const timeOver = this.timeOver();
    this.lease.lost.addEventListener('abort', onLost, { once: true });
    signal?.addEventListener('abort', onStopRequest, { once: true });
    if (signal?.aborted === true) onStopRequest();
    void watchCommands({
      client: this.client,
      runId: this.options.runId,
      signal: this.lease.lost, // which comes at the latest with the end of this work
      afterSeq: () => this.commands.lastSeq,
      onNews: async () => ((await this.lease.beatNow())?.runStatus ?? 'claimed') === 'claimed',
    });
    try {
      // A turn that was cancelled before the claim is closed by now: there is nothing to do for its run.
      const outcome = commandId !== undefined && this.turn === undefined ? CANCELLED : await this.work();
      if (outcome !== 'release') return { kind: 'finished', run: await this.report(outcome) };
      await this.writer.flush();
      return { kind: 'released' };
    } finally {
      clearTimeout(timeOver);
      signal?.removeEventListener('abort', onStopRequest);
      this.lease.lose(new RunLost('the runner has ended its work on this run')); // work that outlives its grace writes nothing any more
    }
  }

  private async work(): Promise<Outcome | 'release'> {
    const over = new AbortController();
    const graceOver = this.graceOver(over.signal);
    try {
      this.commands.push(this.claim.commands);
      return await Promise.race([this.options.work(this.context()), graceOver]);
    } catch (error) {
      this.lease.lost.throwIfAborted();
      return this.outcomeOf(error);
    } finally {
      over.abort();
    }
  }

  private context() {
    return {
      run: this.claim.run,
      epoch: this.claim.epoch,
      signal: this.abort.signal,
      lost: this.lease.lost,
      commands: this.commands,
      emit: this.writer.emit.bind(this.writer),
      flush: this.writer.flush.bind(this.writer),
      approve: this.people.approve.bind(this.people),
      ask: this.people.ask.bind(this.people),
    };
  }

  /** What an error of the work says depends on whether the work had to stop. */
  private outcomeOf(error: unknown): Outcome | 'release' {
    const reason: unknown = this.abort.signal.reason;
    if (reason instanceof CancelRequested) return CANCELLED;
    if (reason instanceof TimeOver) return TIMED_OUT;
    if (reason instanceof RunnerStopping) return this.claim.run.onRunnerLost === 'requeue' ? 'release' : failed('runner-lost', reason);
    return this.abort.signal.aborted ? failed('infra-failed', reason) : failed('backend-failed', error);
  }

  /** Stores what is left and ends the run, while the heartbeats go on. */
  private async report(outcome: Outcome): Promise<Run> {
    const refusal = await this.writer.flush().then(
      () => undefined,
      (error: unknown) => failed('infra-failed', error),
    );
    this.lease.lost.throwIfAborted();
    await Promise.all(this.cancels.values());
    this.lease.finishing();
    return this.finish(outcome.terminalStatus === 'completed' ? (refusal ?? outcome) : outcome);
  }

  private async finish(outcome: Outcome): Promise<Run> {
    const { runId } = this.options;
    const { epoch } = this.claim;
    const finish = (commandId?: string) => this.write((o) => this.client.finishRun(runId, { epoch, outcome, commandId }, o));
    try {
      return await finish(this.turn?.id);
    } catch (error) {
      if (isProblem(error, 'command_closed')) return finish(); // somebody else has ended the turn; the run ends all the same
      throw error;
    }
  }

  /** Stops by itself when the run's time is over, counted as the lease is; the server asks a moment later, and its word then stands. */
  private timeOver(): NodeJS.Timeout | undefined {
    const { durationRemainingMs, claimedAt } = this.claim;
    if (durationRemainingMs === null) return undefined;
    return setTimeout(() => this.stop(new TimeOver()), Math.max(0, claimedAt + durationRemainingMs - performance.now()));
  }

  private stop(reason: unknown): void {
    this.abort.abort(reason);
    this.commands.close(reason);
  }

  /** Every write of this epoch: none after the local deadline, and the end of everything when the server says that the run is gone. */
  private async write<T>(call: (options: { signal: AbortSignal; retry: typeof FOREVER }) => Promise<T>): Promise<T> {
    this.lease.assertHeld();
    try {
      return await call({ signal: this.lease.lost, retry: FOREVER });
    } catch (error) {
      if (!isProblem(error, 'lease_lost', 'lease_expired', 'run_closed', 'unauthenticated', 'forbidden')) throw error;
      this.lease.lose(new RunLost(`a write was refused: ${error.code}`, { cause: error }));
      throw this.lease.lost.reason;
    }
  }

  private onHeartbeat({ cancel, cancelledCommands, commands }: HeartbeatAnswer): void {
    this.commands.push(commands);
    if (cancel !== null) this.onCancel(cancel.requestId, new CancelRequested(cancel.reason, cancel.deadlineRemainingMs));
    for (const commandId of cancelledCommands) this.onCancel(commandId, new CancelRequested('the command was cancelled', null), commandId);
  }

  /** The stages are acknowledged in order, beside the abort, which does not wait for them. */
  private onCancel(key: string, reason: CancelRequested, commandId?: string): void {
    if (this.cancels.has(key)) return;
    const { epoch } = this.claim;
    const acknowledge = (stage: 'delivered' | 'aborting') =>
      this.write((o) => this.client.acknowledgeCancel(this.options.runId, { epoch, stage, commandId }, o));
    const acknowledged = acknowledge('delivered').then(() => acknowledge('aborting'));
    this.cancels.set(
      key,
      acknowledged.catch(() => undefined),
    ); // the end of the run says the rest
    if (commandId === undefined || commandId === this.turn?.id) this.stop(reason);
    else this.commands.cancel(commandId, reason);
  }

  /** Rejects when stopped work has had its time: near the deadline of a cancel, or soon after everything is lost. */
  private graceOver(over: AbortSignal): Promise<never> {
    const { signal } = this.abort;
    const { lost } = this.lease;
    return new Promise((_, reject) => {
      const rejectIn = (ms: number, reason: Error) => {
        if (over.aborted) return;
        const timer = setTimeout(() => reject(reason), ms);
        over.addEventListener('abort', () => clearTimeout(timer), { once: true });
      };
      signal.addEventListener('abort', () => {
        const reason: unknown = signal.reason;
        const remainingMs = reason instanceof CancelRequested ? reason.remainingMs() : undefined;
        if (remainingMs !== undefined) rejectIn(Math.max(0, remainingMs - CANCEL_REPORT_MS), reason as CancelRequested);
      });
      lost.addEventListener('abort', () => rejectIn(LOST_GRACE_MS, lost.reason as RunLost));
    });
  }
}

function failed(failureKind: string, error: unknown): Outcome {
  const message = error instanceof Error ? error.message : String(error);
  return { terminalStatus: 'failed', failureKind, failureMessage: cutText(message, FAILURE_MESSAGE_CODE_POINTS_MAX) };
}
