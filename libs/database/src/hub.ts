import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { decodeHints, encodeHints, HINT_CHANNEL } from './hints';
import { Listener, type ListenerSettings } from './listener';
import { sql, type SqlExecutor } from './sql';
import { Subscriptions } from './subscriptions';

// The change hub: who waits for a stream is told soon after it has changed. A hint is only a hint: it is sent after COMMIT, may come twice,
// or without a change, or not at all; the reader looks at the tables, and the safety poll finds what a lost hint would have told.
// Subscribe first, then read, then wait: a change between the read and the wait is remembered by the subscription.
//
// NOTIFY is coalesced and outside of every transaction: a NOTIFY per commit makes all commits of a database wait for one lock. The first hint of a quiet
// time goes out at once, those behind it gather.

/** What can be waited for: `run:<tenant>/<run>`, `session:<tenant>/<session>`, `feed`; other kinds bring their own probe. */
export type Stream = `run:${string}` | `session:${string}` | 'feed' | 'dispatch' | `${string}:${string}`;

export type WaitResult = 'changed' | 'timeout' | 'aborted' | 'closed';

/** Asks the tables for the present versions of streams of one kind, in one statement; a stream that does not exist is left out. */
export interface StreamProbe {
  readonly kind: string;
  /** keys: the streams' names after `<kind>:`; the empty text for a kind that is itself the stream. */
  versionsOf(on: SqlExecutor, keys: readonly string[]): Promise<ReadonlyMap<string, string>>;
}

export interface Subscription {
  /** Answers at once with 'changed' when a change came since the last call. One call at a time. */
  next(options: { timeoutMs: number; signal?: AbortSignal | undefined }): Promise<WaitResult>;
  close(): void;
}

export interface HubStats {
  readonly subscriptions: number;
  readonly streams: number;
  readonly connected: boolean;
  readonly reconnects: number;
  readonly notificationsSent: number;
  readonly notificationsReceived: number;
  readonly notifyFailures: number;
  readonly polls: number;
  readonly pollFailures: number;
}

export interface ChangeHub {
  subscribe(stream: Stream): Subscription;
  /** Wakes the subscribers of this process at once and tells other processes soon. Never throws, never waits. */
  changed(streams: readonly Stream[]): void;
  addProbe(probe: StreamProbe): void;
  readonly stats: HubStats;
  /** Opens the LISTEN connection and starts the safety poll. A hub that is not started still wakes its own process and still sends hints. */
  start(): Promise<void>;
  /** Sends what is waiting, answers 'closed' to everybody. */
  close(): Promise<void>;
}

export interface HubSettings extends ListenerSettings {
  pollMs: number;
  /** How far apart notifications are at least; what comes in between is sent as one. */
  notifyEveryMs: number;
}

const DEFAULTS: HubSettings = {
  pollMs: 1_000,
  notifyEveryMs: 10,
  keepAliveMs: 15_000,
  keepAliveTimeoutMs: 5_000,
  reconnectMinMs: 100,
  reconnectMaxMs: 10_000,
};

/** While the database is away, hints beyond this many streams are left to the safety polls of others. */
const PENDING_HINTS_MAX = 10_000;

export interface HubParts {
  sql: SqlExecutor;
  listener: pg.ClientConfig;
  onError: (error: Error, where: string) => void;
  /** Runs after the listener has connected again: the server behind the URL may be another one now. */
  onReconnect: () => Promise<unknown>;
  settings?: Partial<HubSettings> | undefined;
}

export function createHub(parts: HubParts): ChangeHub {
  return new Hub(parts);
}

class Hub implements ChangeHub {
  readonly #sql: SqlExecutor;
  readonly #onError: HubParts['onError'];
  readonly #settings: HubSettings;
  readonly #listener: Listener;
  readonly #subscriptions = new Subscriptions();
  readonly #probes = new Map<string, StreamProbe>();
  readonly #versions = new Map<Stream, string>();
  /** Tells this process's own notifications from others'. */
  readonly #sender = randomUUID();
  readonly #pending = new Set<Stream>();
  readonly #counts = { reconnects: 0, notificationsSent: 0, notificationsReceived: 0, notifyFailures: 0, polls: 0, pollFailures: 0 };
  #starting: Promise<void> | undefined;
  #sending: Promise<void> | undefined;
  #sendTimer: NodeJS.Timeout | undefined;
  /** When hints were last sent. */
  #sentAt = Number.NEGATIVE_INFINITY;
  #polling: Promise<void> | undefined;
  #pollTimer: NodeJS.Timeout | undefined;
  #pollFailing = false;
  #closed = false;

  constructor({ sql: executor, listener, onError, onReconnect, settings }: HubParts) {
    this.#sql = executor;
    this.#onError = onError;
    this.#settings = { ...DEFAULTS, ...settings };
    this.#listener = new Listener(listener, this.#settings, {
      onPayload: (payload) => {
        this.#receive(payload);
      },
      onReconnect: () => {
        this.#counts.reconnects += 1;
        this.#subscriptions.wakeAll();
        onReconnect().catch((error: unknown) => {
          onError(error as Error, 'check of the store after a reconnect');
        });
      },
      onError: (error) => {
        onError(error, 'listener');
      },
    });
  }

  get stats(): HubStats {
    const { count, streams } = this.#subscriptions;
    return { subscriptions: count, streams: streams.length, connected: this.#listener.connected, ...this.#counts };
  }

  subscribe(stream: Stream): Subscription {
    return this.#subscriptions.subscribe(stream);
  }

  addProbe(probe: StreamProbe): void {
    this.#probes.set(probe.kind, probe);
  }

  changed(streams: readonly Stream[]): void {
    for (const stream of streams) {
      this.#subscriptions.wake(stream);
      if (this.#pending.size < PENDING_HINTS_MAX) this.#pending.add(stream);
    }
    this.#sendSoon();
  }

  start(): Promise<void> {
    this.#starting ??= this.#listener.connect().then(
      () => {
        this.#pollLater();
      },
      (error: unknown) => {
        this.#starting = undefined;
        throw error;
      },
    );
    return this.#starting;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#sendTimer);
    clearTimeout(this.#pollTimer);
    this.#listener.close();
    this.#subscriptions.close();
    await this.#sending;
    await this.#send();
    await this.#polling;
  }

  #receive(payload: string): void {
    this.#counts.notificationsReceived += 1;
    const hints = decodeHints(payload);
    if (hints === undefined || hints.sender === this.#sender) return;
    for (const stream of hints.streams) this.#subscriptions.wake(stream);
  }

  #sendSoon(): void {
    if (this.#pending.size === 0 || this.#closed || this.#sendTimer !== undefined || this.#sending !== undefined) return;
    this.#sendTimer = setTimeout(() => {
      this.#sendTimer = undefined;
      this.#sending = this.#send().finally(() => {
        this.#sending = undefined;
        this.#sendSoon();
      });
    }, this.#quietMs()).unref();
  }

  /** How long nothing may be sent yet. None is a millisecond of the timer: what runs now tells its changes as well. */
  #quietMs(): number {
    return Math.max(0, this.#sentAt + this.#settings.notifyEveryMs - performance.now());
  }

  async #send(): Promise<void> {
    const payloads = encodeHints(this.#sender, this.#pending);
    this.#pending.clear();
    if (payloads.length === 0) return;
    this.#sentAt = performance.now();
    try {
      // A hint need not survive a crash: with nothing to wait for but its lock, it arrives earlier, and holds the horizon and other notifiers for less long.
      await this.#sql.query(
        sql`SELECT set_config('synchronous_commit', 'off', true) AS sent
          FROM unnest(${payloads}::text[]) AS hint(payload), LATERAL pg_notify(${HINT_CHANNEL}::text, hint.payload)`,
      );
      this.#counts.notificationsSent += payloads.length;
    } catch (error) {
      this.#counts.notifyFailures += 1;
      this.#onError(error as Error, 'hints');
    }
  }

  #pollLater(): void {
    if (this.#closed) return;
    this.#pollTimer = setTimeout(() => {
      this.#polling = this.#poll().finally(() => {
        this.#pollLater();
      });
    }, this.#settings.pollMs).unref();
  }

  async #poll(): Promise<void> {
    const streams = new Set(this.#subscriptions.streams);
    for (const stream of this.#versions.keys()) if (!streams.has(stream)) this.#versions.delete(stream);
    for (const probe of this.#probes.values()) {
      const ofKind = [...streams].filter((stream) => kindOf(stream) === probe.kind);
      if (ofKind.length > 0) await this.#pollKind(probe, ofKind);
    }
  }

  async #pollKind(probe: StreamProbe, streams: readonly Stream[]): Promise<void> {
    try {
      const versions = await probe.versionsOf(this.#sql, streams.map(keyOf));
      this.#counts.polls += 1;
      this.#pollFailing = false;
      for (const stream of streams) this.#sawVersion(stream, versions.get(keyOf(stream)) ?? '');
    } catch (error) {
      this.#counts.pollFailures += 1;
      if (!this.#pollFailing) this.#onError(error as Error, 'safety poll'); // once per outage
      this.#pollFailing = true;
    }
  }

  /** The first look at a stream wakes too: the change may have come between the reader's read and this look. */
  #sawVersion(stream: Stream, version: string): void {
    if (this.#versions.get(stream) === version) return;
    this.#versions.set(stream, version);
    this.#subscriptions.wake(stream);
  }
}

const kindOf = (stream: Stream): string => stream.split(':', 1)[0] ?? stream;
const keyOf = (stream: Stream): string => (stream.includes(':') ? stream.slice(stream.indexOf(':') + 1) : '');
