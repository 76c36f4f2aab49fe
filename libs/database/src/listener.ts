import pg from 'pg';
import { backOffMs } from './claims';
import { HINT_CHANNEL } from './hints';

export interface ListenerSettings {
  /** How often the connection is asked for a sign of life, and how long the answer may take. */
  keepAliveMs: number;
  keepAliveTimeoutMs: number;
  reconnectMinMs: number;
  reconnectMaxMs: number;
}

export interface ListenerEvents {
  onPayload(payload: string): void;
  /** The channel is being listened to again; whatever was sent in between is lost. */
  onReconnect(): void;
  onError(error: Error): void;
}

/** The server's side of a connection that a network has swallowed ends within two minutes. */
const SERVER_KEEP_ALIVE = '-c tcp_keepalives_idle=60 -c tcp_keepalives_interval=20 -c tcp_keepalives_count=3';

/**
 * The one connection of a process that LISTENs. A network can drop it without a sign (no error, no end), so it is asked regularly, thrown
 * away when it does not answer, and made anew with back-off for as long as it takes. At most one connection at a time.
 */
export class Listener {
  readonly #config: pg.ClientConfig;
  readonly #settings: ListenerSettings;
  readonly #events: ListenerEvents;
  #client: pg.Client | undefined;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(config: pg.ClientConfig, settings: ListenerSettings, events: ListenerEvents) {
    this.#config = { ...config, options: [config.options, SERVER_KEEP_ALIVE].filter(Boolean).join(' ') };
    this.#settings = settings;
    this.#events = events;
  }

  get connected(): boolean {
    return this.#client !== undefined;
  }

  /** Connects and listens. A failure is the caller's; once connected, losses are met by connecting again. */
  async connect(): Promise<void> {
    const client = new pg.Client({ ...this.#config, query_timeout: this.#settings.keepAliveTimeoutMs });
    client.on('error', (error) => {
      this.#lost(client, error);
    });
    client.on('end', () => {
      this.#lost(client, new Error('the connection that listens has ended'));
    });
    client.on('notification', ({ payload }) => {
      this.#events.onPayload(payload ?? '');
    });
    try {
      await client.connect();
      await client.query(`LISTEN ${HINT_CHANNEL}`);
    } catch (error) {
      destroy(client);
      throw error;
    }
    if (this.#closed) {
      destroy(client);
      return;
    }
    this.#client = client;
    this.#later(this.#settings.keepAliveMs, () => this.#askForLife(client));
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    const client = this.#client;
    this.#client = undefined;
    if (client !== undefined) destroy(client);
  }

  async #askForLife(client: pg.Client): Promise<void> {
    try {
      await client.query('SELECT 1');
      if (client === this.#client) this.#later(this.#settings.keepAliveMs, () => this.#askForLife(client));
    } catch (error) {
      this.#lost(client, error as Error);
    }
  }

  #lost(client: pg.Client, error: Error): void {
    if (client !== this.#client) return; // thrown away before, or never in use: whoever connects hears of it
    this.#client = undefined;
    destroy(client);
    this.#events.onError(error);
    this.#reconnectAfterFailures(1);
  }

  #reconnectAfterFailures(failures: number): void {
    const { reconnectMinMs: baseMs, reconnectMaxMs: maxMs } = this.#settings;
    this.#later(backOffMs(failures, { baseMs, maxMs }), async () => {
      try {
        await this.connect();
        if (this.connected) this.#events.onReconnect();
      } catch (error) {
        if (this.#closed) return;
        this.#events.onError(error as Error);
        this.#reconnectAfterFailures(failures + 1);
      }
    });
  }

  #later(delayMs: number, run: () => Promise<void>): void {
    clearTimeout(this.#timer);
    if (this.#closed) return;
    this.#timer = setTimeout(() => void run(), delayMs).unref();
  }
}

/** A polite end waits for the server's answer, which a dead connection never gives. */
function destroy(client: pg.Client): void {
  void client.end().catch(() => undefined);
  (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
}
