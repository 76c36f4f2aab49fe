import {
  APPEND_BYTES_MAX,
  APPEND_EVENTS_MAX,
  checkRunnerEvent,
  type JsonObject,
  type NewRunEvent,
  normalizeJson,
  utf8Bytes,
} from '@runplane/contracts';

export interface EventWriterOptions {
  /** Stores a batch, however often it has to be sent; rejects when it never will be. */
  readonly append: (batch: { producerSequence: number; events: NewRunEvent[] }) => Promise<unknown>;
  /** The store refused a batch: nothing more can be written. */
  readonly onRefused: (error: unknown) => void;
  /** A batch waits so long for company. */
  readonly batchMs?: number | undefined;
  /** More than this in the queue makes `emit` wait. */
  readonly queueBytesMax?: number | undefined;
}

interface QueuedEvent {
  readonly event: NewRunEvent;
  readonly bytes: number;
}

const BATCH_MS = 20;
const QUEUE_BYTES_MAX = 2 * APPEND_BYTES_MAX;
/** Names, braces and commas of one event in the body of an append. */
const FRAME_BYTES = 64;

/**
 * The events of one epoch on their way to the store, in the order of the calls: one batch in flight, numbered 1, 2, 3 … (the producer
 * sequence), so that a batch sent again after a lost answer is stored once.
 */
export class EventWriter {
  private readonly options: EventWriterOptions;
  private readonly queue: QueuedEvent[] = [];
  private queuedBytes = 0;
  private producerSequence = 0;
  private timer: NodeJS.Timeout | undefined;
  private isSending = false;
  private refusal: { readonly error: unknown } | undefined;
  private waiters: { bytesMax: number; resolve: () => void; reject: (error: unknown) => void }[] = [];

  constructor(options: EventWriterOptions) {
    this.options = options;
  }

  /**
   * Takes one event; resolves when there is room for more. Rejects with InvalidRequest, InvalidJson, PayloadTooLarge or ReservedEventType
   * for an event that cannot be stored (the others go on), and with the reason once nothing can be written any more. Who does not wait
   * for the promise loses back-pressure and these errors, not the order.
   */
  emit(type: string, payload: JsonObject): Promise<void> {
    const accepted = this.accept(type, payload);
    accepted.catch(() => undefined);
    return accepted;
  }

  /** Resolves when everything emitted before is stored. */
  async flush(): Promise<void> {
    this.send();
    await this.untilQueued(0);
  }

  /** Nothing is taken any more, and what is queued is given up. */
  refuse(error: unknown): void {
    this.refusal ??= { error };
    this.queue.length = 0;
    clearTimeout(this.timer);
    this.settleWaiters((waiter) => (waiter.reject(error), true));
  }

  // `async` makes a promise of what it throws; up to the first await it runs at once, which keeps the order.
  private async accept(type: string, payload: JsonObject): Promise<void> {
    if (this.refusal !== undefined) throw this.refusal.error;
    const { value, text } = normalizeJson(payload);
    checkRunnerEvent(type, value);
    const bytes = utf8Bytes(text) + utf8Bytes(type) + FRAME_BYTES;
    this.queue.push({ event: { type, payload: value }, bytes });
    this.queuedBytes += bytes;
    if (this.queue.length >= APPEND_EVENTS_MAX || this.queuedBytes >= APPEND_BYTES_MAX) this.send();
    else this.timer ??= setTimeout(() => this.send(), this.options.batchMs ?? BATCH_MS);
    await this.untilQueued(this.options.queueBytesMax ?? QUEUE_BYTES_MAX);
  }

  private async untilQueued(bytesMax: number): Promise<void> {
    if (this.refusal !== undefined) throw this.refusal.error;
    if (this.queuedBytes <= bytesMax) return;
    await new Promise<void>((resolve, reject) => this.waiters.push({ bytesMax, resolve, reject }));
  }

  private send(): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    if (!this.isSending) void this.sendAll();
  }

  /** While a batch is under way the next one gathers; what has waited is not made to wait again. */
  private async sendAll(): Promise<void> {
    this.isSending = true;
    try {
      while (this.queue.length > 0) {
        const batch = this.queue.splice(0, batchLength(this.queue));
        this.producerSequence += 1;
        await this.options.append({ producerSequence: this.producerSequence, events: batch.map(({ event }) => event) });
        this.queuedBytes -= batch.reduce((sum, { bytes }) => sum + bytes, 0);
        this.settleWaiters((waiter) => {
          if (this.queuedBytes <= waiter.bytesMax) waiter.resolve();
          return this.queuedBytes <= waiter.bytesMax;
        });
      }
    } catch (error) {
      this.refuse(error);
      this.options.onRefused(error);
    } finally {
      this.isSending = false; // in the same turn as the last look at the queue: nothing can be left behind in between
    }
  }

  private settleWaiters(isSettled: (waiter: EventWriter['waiters'][number]) => boolean): void {
    this.waiters = this.waiters.filter((waiter) => !isSettled(waiter));
  }
}

/** How many events of the queue's head fit into one call; one always does. */
function batchLength(queue: readonly QueuedEvent[]): number {
  let bytes = 0;
  const first = queue.findIndex((queued, index) => {
    bytes += queued.bytes;
    return index > 0 && (index >= APPEND_EVENTS_MAX || bytes > APPEND_BYTES_MAX);
  });
  return first === -1 ? queue.length : first;
}

/** What the store would refuse is refused here, before it can hold up the others. */
