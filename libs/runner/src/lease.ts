import { type Client, isPassing, ProblemError } from '@runplane/client';
import type { HeartbeatAnswer } from '@runplane/contracts';
import { RunLost } from './stop-reasons';

export interface LeaseOptions {
  readonly client: Client;
  readonly runId: string;
  readonly epoch: number;
  readonly leaseMs: number;
  readonly heartbeatMs: number;
  /** performance.now() before the claim was sent, and what its answer said was left. */
  readonly claimedAt: number;
  readonly leaseRemainingMs: number;
  readonly commandsAfterSeq: () => number;
  readonly onAnswer: (answer: HeartbeatAnswer) => void;
}

/** A failed heartbeat is tried again soon: the lease has room for several. */
const REPEAT_MS = 500;

/**
 * Keeps the claim on a run by heartbeats, on timers of its own. OWN-2 from the runner's side: the server's remaining milliseconds count
 * from before the request was sent, on the monotonic clock, so the local deadline is never later than the server's. When it passes
 * (no network, a frozen process), or when the server says so, `lost` aborts; that happens once and for good.
 */
export class Lease {
  private readonly options: LeaseOptions;
  private readonly controller = new AbortController();
  private deadline = 0;
  private deadlineTimer: NodeJS.Timeout | undefined;
  private beatTimer: NodeJS.Timeout | undefined;
  private beating: Promise<HeartbeatAnswer | undefined> | undefined;
  private isReleased = false;
  private isFinishing = false;

  constructor(options: LeaseOptions) {
    this.options = options;
    this.extend(options.claimedAt, options.leaseRemainingMs);
    this.beatIn(options.heartbeatMs);
  }

  get lost(): AbortSignal {
    return this.controller.signal;
  }

  /** Throws RunLost; a process that was frozen past its deadline must not write before its timers run. */
  assertHeld(): void {
    if (performance.now() >= this.deadline) this.lose(new RunLost('the lease ended without a heartbeat that got through'));
    this.lost.throwIfAborted();
  }

  lose(reason: RunLost): void {
    this.release();
    this.controller.abort(reason);
  }

  /** From here on an ended run is no surprise: a heartbeat that sees the finish before its answer has arrived must not call it lost. */
  finishing(): void {
    this.isFinishing = true;
  }

  /** Ends the heartbeats. */
  release(): void {
    this.isReleased = true;
    clearTimeout(this.deadlineTimer);
    clearTimeout(this.beatTimer);
  }

  private end(reason: RunLost): void {
    if (this.isFinishing) this.release();
    else this.lose(reason);
  }

  private extend(sentAt: number, remainingMs: number): void {
    this.deadline = sentAt + remainingMs;
    clearTimeout(this.deadlineTimer);
    this.deadlineTimer = setTimeout(() => this.checkDeadline(), this.deadline - performance.now());
  }

  /** Timers may fire a little early. */
  private checkDeadline(): void {
    if (performance.now() < this.deadline) this.deadlineTimer = setTimeout(() => this.checkDeadline(), 1);
    else this.lose(new RunLost('the lease ended without a heartbeat that got through'));
  }

  /** A heartbeat out of turn, to learn what is new; undefined when it did not get through. */
  async beatNow(): Promise<HeartbeatAnswer | undefined> {
    await this.beating; // one that is under way may have looked before the news
    if (this.isReleased) return undefined;
    clearTimeout(this.beatTimer);
    return this.startBeat();
  }

  private beatIn(ms: number): void {
    if (!this.isReleased) this.beatTimer = setTimeout(() => void this.startBeat(), ms);
  }

  private startBeat(): Promise<HeartbeatAnswer | undefined> {
    this.beating = this.beat();
    return this.beating;
  }

  private async beat(): Promise<HeartbeatAnswer | undefined> {
    const { client, runId, epoch, leaseMs, heartbeatMs, commandsAfterSeq, onAnswer } = this.options;
    const sentAt = performance.now();
    try {
      const answer = await client.heartbeat(
        runId,
        { epoch, leaseMs, commandsAfterSeq: commandsAfterSeq() },
        { signal: this.lost, timeoutMs: Math.max(1_000, leaseMs / 3), retry: { attemptsMax: 1 } },
      );
      if (this.isReleased) return undefined;
      if (answer.stop) {
        this.end(new RunLost(`the run is ${answer.runStatus}`));
        return answer;
      }
      this.extend(sentAt, answer.leaseRemainingMs);
      onAnswer(answer);
      this.beatIn(heartbeatMs);
      return answer;
    } catch (error) {
      if (this.isReleased) return undefined;
      if (error instanceof ProblemError && !isPassing(error))
        this.end(new RunLost(`the heartbeat was refused: ${error.code}`, { cause: error }));
      else this.beatIn(Math.min(REPEAT_MS, heartbeatMs));
      return undefined;
    }
  }
}
