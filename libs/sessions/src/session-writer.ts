import { randomBytes } from 'node:crypto';
import {
  AppendSessionEvents,
  isDomainError,
  parseInput,
  SESSION_LEASE_MS_DEFAULT,
  SessionLeaseLost,
  type AppendedSessionEvents,
  type NewSessionEvent,
} from '@runplane/contracts';
import { inTransaction, isLive, remainingSince, type Db } from '@runplane/database';
import {
  announceAppend,
  appendEvents,
  isUnknownOutcome,
  prepare,
  readForAppend,
  writeBatch,
  type Found,
  type WantedAppend,
} from './append-events';
import { assertMayAppend } from './append-permission';
import { loadsOf, touchedBy } from './fold-batch';
import { projectionsOf } from './projections';
import { isDecision } from './projections/requests';
import { storableSessionEvents, wantedSequence } from './session-event-input';
import { readHead, type HeadRow } from './session-head.sql';
import { acquireSessionLease, releaseSessionLease, renewSessionLease } from './session-lease';
import { sessionNotFound } from './session';
import type { SessionKey } from './session.sql';

export interface SessionWriterOptions extends SessionKey {
  /** One incarnation of the process; a new one per writer where it is left out. */
  readonly owner?: string | undefined;
  readonly leaseMs?: number | undefined;
  /** Told once when the lease is lost; the signal of the writer aborts with the same error. */
  readonly onLost?: ((error: SessionLeaseLost) => void) | undefined;
}

/** A session's log in the hands of one worker of this process. */
export interface SessionWriter {
  readonly sessionId: string;
  readonly owner: string;
  readonly epoch: number;
  /** Of the log, as far as this writer knows. */
  readonly lastSequence: number;
  /** How long the lease still runs by this process's monotonic clock; 0: it appends no more. */
  readonly remainingMs: number;
  /** Aborts when the lease is lost: whatever is done under it should stop. */
  readonly signal: AbortSignal;
  /**
   * Appends events; calls are carried out one after another. As a rule it is one statement: head and folds are held here, and read again when
   * somebody else has appended; decisions take a transaction. A lost answer is asked after by the append's own id, so that nothing is written twice.
   * Errors: SessionLeaseLost, and those of appendSessionEvents.
   */
  append(events: readonly NewSessionEvent[], options?: { expectedSequence?: number; appendId?: string }): Promise<AppendedSessionEvents>;
  /** Waits for the appends that are under way and gives the lease back. Repeat: safe. */
  close(): Promise<void>;
}

/** A renewal comes when so much of what is left of the lease is over: one that got lost, or waited for long, is followed the sooner. */
const RENEWALS = 3;
const RENEW_AFTER_MS_MIN = 100;
/** An append that gets no answer so often in a row is given up. */
const LOOKS_MAX = 6;
/** Lost races after which the head is locked before it is read: whoever appends without a lease does not keep the writer out. */
const RACES_MAX = 3;

/**
 * Takes the session lease and holds it, renewing in time, until it is closed or lost. Errors: SessionLeased, SessionNotFound, SessionDeleted.
 */
export async function openSessionWriter(db: Db, options: SessionWriterOptions): Promise<SessionWriter> {
  const { tenantId, sessionId, owner = `writer-${randomBytes(12).toString('hex')}`, leaseMs = SESSION_LEASE_MS_DEFAULT } = options;
  const askedAt = performance.now();
  const { epoch, remainingMs } = await acquireSessionLease(db, { tenantId, sessionId, owner, leaseMs });
  const writer = new Writer(db, { tenantId, sessionId, owner, leaseMs, epoch, onLost: options.onLost }, askedAt + remainingMs);
  try {
    await writer.begin();
  } catch (error) {
    await writer.close();
    throw error;
  }
  return writer;
}

interface Held extends SessionKey {
  readonly owner: string;
  readonly leaseMs: number;
  readonly epoch: number;
  readonly onLost: SessionWriterOptions['onLost'];
}

class Writer implements SessionWriter {
  readonly #db: Db;
  readonly #held: Held;
  /** By performance.now(): the lease may run longer by the database's clock, never shorter. */
  #deadline = 0;
  #deadlineTimer: NodeJS.Timeout | undefined;
  /** The head as this writer's last append left it; undefined: it must be read. */
  #head: HeadRow | undefined;
  /** When the head was read or written: the database's clock then is `#head.now`. */
  #headAt = 0;
  #lastSequence = -1;
  #tail: Promise<unknown> = Promise.resolve();
  #renewTimer: NodeJS.Timeout | undefined;
  #closing: Promise<void> | undefined;
  /** Given back: an answer to a renewal that comes now says nothing. */
  #isOver = false;
  readonly #lost = new AbortController();
  /** Of this writer's append ids; the session's life has no other writer with it. */
  readonly #nonce = randomBytes(6).toString('hex');
  #appends = 0;

  constructor(db: Db, held: Held, deadline: number) {
    this.#db = db;
    this.#held = held;
    this.#holdUntil(deadline);
    this.#renewLater();
  }

  get sessionId(): string {
    return this.#held.sessionId;
  }
  get owner(): string {
    return this.#held.owner;
  }
  get epoch(): number {
    return this.#held.epoch;
  }
  get lastSequence(): number {
    return this.#lastSequence;
  }
  get remainingMs(): number {
    return this.signal.aborted ? 0 : Math.max(0, Math.floor(this.#deadline - performance.now()));
  }
  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  async begin(): Promise<void> {
    const askedAt = performance.now();
    const found = await readHead(this.#db.sql, this.#held);
    if (found === undefined) throw sessionNotFound(this.sessionId);
    this.#holdHead(found.head, askedAt);
  }

  async append(
    events: readonly NewSessionEvent[],
    options: { expectedSequence?: number; appendId?: string } = {},
  ): Promise<AppendedSessionEvents> {
    if (this.#closing !== undefined) throw new Error('this writer is closed');
    const { epoch } = this.#held;
    const input = parseInput(AppendSessionEvents, { ...options, events });
    const storable = storableSessionEvents(input.events);
    const wanted: WantedAppend = {
      tenantId: this.#held.tenantId,
      sessionId: this.sessionId,
      events: storable,
      epoch,
      sequence: wantedSequence(storable, input.expectedSequence),
      appendId: input.appendId ?? `${this.#nonce}.${(this.#appends += 1)}`,
    };
    // Queued before anything is waited for: whoever closes behind this call waits for it. An id that the caller gave may be one of another process: it is looked for before the first write.
    const turn = this.#tail.then(async () => {
      await assertMayAppend(this.#db.sql, this.#held, storable, epoch);
      return this.#append(wanted, input.appendId !== undefined);
    });
    this.#tail = turn.catch(() => undefined);
    return turn;
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    await this.#tail;
    this.#isOver = true;
    this.#stopTimers();
    const { tenantId, sessionId, owner, epoch } = this.#held;
    if (!this.signal.aborted) await releaseSessionLease(this.#db, { tenantId, sessionId, owner, epoch });
  }

  async #append(wanted: WantedAppend, mayBeKnown: boolean): Promise<AppendedSessionEvents> {
    let readFirst = mayBeKnown;
    // Whether the time of a request is over is judged behind the lock.
    let lockFirst = wanted.events.some(isDecision);
    for (let look = 1; ; look += 1) {
      this.#assertHeld();
      try {
        const answer = lockFirst ? await this.#appendLocked(wanted) : await this.#appendOnce(wanted, readFirst);
        if (answer !== undefined) return answer;
        lockFirst = look >= RACES_MAX;
      } catch (error) {
        this.#head = undefined; // whatever it was, what is held here may not be what is there
        if (isDomainError(error) && error.code === 'session_lease_lost') this.#lose(error as SessionLeaseLost);
        if (!isUnknownOutcome(error) || look === LOOKS_MAX) throw error;
      }
      readFirst = true;
    }
  }

  /** Undefined: somebody else has appended meanwhile. */
  async #appendOnce(wanted: WantedAppend, readFirst: boolean): Promise<AppendedSessionEvents | undefined> {
    const { sql: on } = this.#db;
    const askedAt = performance.now();
    const held = readFirst ? undefined : this.#heldState(wanted);
    const found = held ?? (await readForAppend(on, wanted, projectionsOf(this.#db)));
    const prepared = await prepare(on, wanted, found).catch((error: unknown) => {
      if (held === undefined) throw error;
      return undefined; // nothing is refused by what is held here: it may not be what is there
    });
    if (prepared === undefined) return undefined;
    if (prepared.kind === 'answer') {
      this.#holdHead(found.head, askedAt);
      return prepared.answer;
    }
    const written = await writeBatch(this.#db, wanted, found.head, prepared.batch);
    if (written === undefined) {
      this.#head = undefined;
      return undefined;
    }
    announceAppend(this.#db, wanted);
    const { answer, now } = written;
    this.#holdHead({ ...found.head, ...prepared.batch.head, now, lastSequence: answer.lastSequence }, performance.now());
    return answer;
  }

  /** With the head locked first: nobody comes in between. */
  async #appendLocked(wanted: WantedAppend): Promise<AppendedSessionEvents> {
    this.#head = undefined;
    const answer = await inTransaction(this.#db, (tx) => appendEvents(tx, wanted));
    this.#lastSequence = Math.max(this.#lastSequence, answer.lastSequence);
    return answer;
  }

  /**
   * What is held here, where it is all that the batch needs; the database's clock is what it was, and the time since. Without events only the
   * database can answer.
   */
  #heldState({ events }: WantedAppend): Found | undefined {
    if (this.#head === undefined || events.length === 0) return undefined;
    const touched = touchedBy(projectionsOf(this.#db), events);
    const loads = loadsOf(touched, events, this.#held);
    if (loads.some((load) => load !== undefined)) return undefined;
    const { owner, epoch } = this.#held;
    const now = this.#head.now + Math.floor(performance.now() - this.#headAt);
    const head: HeadRow = { ...this.#head, now, leaseOwner: owner, leaseEpoch: epoch, leaseInMs: this.remainingMs };
    return { head, touched, loaded: loads.map(() => undefined), appendedAt: null };
  }

  #holdHead(head: HeadRow, at: number): void {
    this.#head = head;
    this.#headAt = at;
    this.#lastSequence = head.lastSequence;
  }

  #holdUntil(deadline: number): void {
    this.#deadline = deadline;
    clearTimeout(this.#deadlineTimer);
    this.#deadlineTimer = setTimeout(() => this.#expire(), Math.max(0, deadline - performance.now()) + 1).unref();
  }

  #assertHeld(): void {
    if (this.signal.aborted) throw this.signal.reason;
    if (!isLive(this.#deadline - performance.now())) throw this.#lose(this.#endedLease());
  }

  #endedLease(): SessionLeaseLost {
    return new SessionLeaseLost(`The lease ${this.epoch} of session ${this.sessionId} has ended.`, {
      sessionId: this.sessionId,
      epoch: this.epoch,
      currentEpoch: this.epoch,
      reason: 'expired',
    });
  }

  #lose(error: SessionLeaseLost): SessionLeaseLost {
    if (this.signal.aborted) return error;
    this.#stopTimers();
    this.#lost.abort(error);
    try {
      this.#held.onLost?.(error);
    } catch (thrown) {
      // Out of a timer it would end the process, and out of an append stand for the loss.
      this.#db.options.onError(
        thrown instanceof Error ? thrown : new Error(String(thrown)),
        `onLost of the writer of session ${this.sessionId}`,
      );
    }
    return error;
  }

  #renewLater(): void {
    this.#renewTimer = setTimeout(() => void this.#renew(), Math.max(RENEW_AFTER_MS_MIN, this.remainingMs / RENEWALS)).unref();
  }

  /** Errors that may pass are waited out: the deadline stands, and the next renewal moves it. */
  async #renew(): Promise<void> {
    const { tenantId, sessionId, owner, epoch, leaseMs } = this.#held;
    const askedAt = performance.now();
    try {
      const { remainingMs } = await renewSessionLease(this.#db, { tenantId, sessionId, owner, epoch, leaseMs });
      if (!this.#isOver) this.#holdUntil(performance.now() + remainingSince(remainingMs, askedAt));
    } catch (error) {
      if (this.#isOver) return;
      if (isDomainError(error) && error.code === 'session_lease_lost') this.#lose(error as SessionLeaseLost);
      else if (isDomainError(error) && !error.retryable) this.#lose(this.#goneLease(error));
      else this.#db.options.onError(error as Error, `renewal of the lease of session ${sessionId}`);
    }
    if (this.signal.aborted || this.#isOver) return;
    this.#renewLater();
  }

  #expire(): void {
    if (isLive(this.#deadline - performance.now())) this.#holdUntil(this.#deadline);
    else this.#lose(this.#endedLease());
  }

  #stopTimers(): void {
    clearTimeout(this.#renewTimer);
    clearTimeout(this.#deadlineTimer);
  }

  /** The session itself is gone. */
  #goneLease(cause: Error): SessionLeaseLost {
    return new SessionLeaseLost(
      `Session ${this.sessionId} takes no more events.`,
      { sessionId: this.sessionId, epoch: this.epoch, currentEpoch: this.epoch, reason: 'other' },
      { cause },
    );
  }
}
