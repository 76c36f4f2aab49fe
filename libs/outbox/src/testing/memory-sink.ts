import { setTimeout as sleep } from 'node:timers/promises';
import { inKeyOrder, SENT } from '../publish-outcomes';
import { failed, type Publisher, type PublishOutcome, type PublishRecord } from '../publisher';

/** What happens to a call of `publish`. */
export interface CallFault {
  /** The answer takes so long; beyond the call's time it is a time-out. */
  readonly latencyMs?: number | undefined;
  /** Only so many records of the call arrive; for the rest the connection is lost. */
  readonly arriving?: number | undefined;
  /** What arrives is not acknowledged. */
  readonly unanswered?: boolean | undefined;
  /** What was given up arrives so long afterwards all the same, as a zombie's request does. */
  readonly lateMs?: number | undefined;
}

export interface MemorySinkOptions {
  /** Of a record that is at fault: its refusal, or the failure that it provokes. */
  readonly answer?: ((record: PublishRecord) => PublishOutcome | undefined) | undefined;
  /** Of a whole call. */
  readonly fault?: ((records: readonly PublishRecord[]) => CallFault | undefined) | undefined;
}

export interface MemorySink {
  /** Everything that has arrived, in the order of arrival, repeats included. */
  readonly arrived: readonly PublishRecord[];
  options: MemorySinkOptions;
  /** A publisher of its own, as each relay has one. */
  publisher(): Publisher;
}

/** A sink in memory whose publishers follow the port to the letter: order, outcomes, time-outs, late arrivals. */
export function createMemorySink(options: MemorySinkOptions = {}): MemorySink {
  const arrived: PublishRecord[] = [];
  const sink: MemorySink = { arrived, options, publisher: () => new MemoryPublisher(sink, arrived) };
  return sink;
}

class MemoryPublisher implements Publisher {
  readonly #sink: MemorySink;
  readonly #arrived: PublishRecord[];
  readonly #closed = new AbortController();

  constructor(sink: MemorySink, arrived: PublishRecord[]) {
    this.#sink = sink;
    this.#arrived = arrived;
  }

  async publish(
    records: readonly PublishRecord[],
    { timeoutMs, signal }: { timeoutMs: number; signal?: AbortSignal | undefined },
  ): Promise<readonly PublishOutcome[]> {
    const { answer = () => undefined, fault = () => undefined } = this.#sink.options;
    const { latencyMs = 0, arriving = records.length, unanswered = false, lateMs } = fault(records) ?? {};
    const stopped = AbortSignal.any([this.#closed.signal, ...(signal === undefined ? [] : [signal])]);
    const inTime = latencyMs <= timeoutMs;
    if (latencyMs > 0) await sleep(Math.min(latencyMs, timeoutMs), undefined, { signal: stopped }).catch(() => undefined);

    const outcomes = inKeyOrder(
      records,
      records.map((record, place) => (place < arriving ? (answer(record) ?? SENT) : failed('unavailable', 'the connection was lost'))),
    );
    const reaching = records.filter((_, place) => outcomes[place]?.kind === 'sent');
    if (stopped.aborted || !inTime) {
      if (lateMs !== undefined) setTimeout(() => this.#arrived.push(...reaching), lateMs);
      const reason = stopped.aborted ? 'stopped' : 'timed_out';
      return inKeyOrder(
        records,
        records.map(() => failed(reason, 'no answer in time')),
      );
    }
    this.#arrived.push(...reaching);
    if (!unanswered) return outcomes;
    return inKeyOrder(
      records,
      records.map(() => failed('timed_out', 'no answer in time')),
    );
  }

  async close(): Promise<void> {
    this.#closed.abort();
  }
}
