import { setTimeout as delay } from 'node:timers/promises';
import { SENT, SKIPPED } from '../publish-outcomes';
import { failed, refused, type PublishOutcome, type PublishRecord } from '../publisher';
import { TimeIsUp, type CallTime } from './call-time';
import { faultOf, faultText, type KafkaFault } from './kafka-faults';
import { bytesOf, kafkaMessageOf, type KafkaMessage } from './kafka-message';
import { secretsOf, type ResolvedKafkaOptions } from './kafka-options';
import { partitionOfKey } from './partition-of-key';

/** As long as the Java client goes without asking whether a topic has got more partitions; and whether it takes larger batches again. */
const METADATA_AGE_MS = 300_000;
/** The client's work grows with the square of a request's records: beyond this one costs more than another answer to wait for. */
const BATCH_RECORDS_MAX = 500;
const REPEAT_MS_MIN = 50;
const REPEAT_MS_MAX = 1_000;
/** A broker that has just started, or a topic that has just been made, may be unknown for a moment. */
const SECOND_LOOK_MS = 250;

interface Entry {
  readonly index: number;
  readonly key: string;
  readonly message: KafkaMessage;
  readonly bytes: number;
}

/** An idempotent producer for one topic, with connections of its own (TopicConnection); what has been destroyed sends nothing any more. */
export interface Connection {
  readonly destroyed: boolean;
  /** Of the topic; known once open. */
  readonly partitions: number;
  open(): Promise<void>;
  refreshPartitions(): Promise<void>;
  send(partition: number, messages: readonly KafkaMessage[], ackTimeoutMs: number): Promise<void>;
  destroy(): void;
}

interface Trouble {
  readonly fault: KafkaFault;
  readonly error: unknown;
}

/**
 * Publishes to one topic. A partition has one request in flight; a batch has records of one partition, so that a refusal is that batch's own,
 * and is halved until the records that are to blame stand alone.
 *
 * A batch without an answer is repeated as it is, on its connection, while there is time: the broker writes it once. When it is given up, its
 * connection goes with it, and the next batch finds a new producer (KafkaFault says why).
 */
export class TopicPublisher {
  readonly #options: ResolvedKafkaOptions;
  readonly #newConnection: () => Connection;
  #connection: Connection | undefined;
  #ready: Promise<Connection> | undefined;
  #checkedAt = 0;
  #batchBytesMax: number;
  /** Per partition, what ends with the last batch in line. */
  readonly #lanes = new Map<number, Promise<void>>();

  constructor(options: ResolvedKafkaOptions, newConnection: () => Connection) {
    this.#options = options;
    this.#newConnection = newConnection;
    this.#batchBytesMax = options.batchBytesMax;
  }

  /** One outcome per record, in their order; of a key more than one may be refused or failed (inKeyOrder). Rejects never. */
  async publish(records: readonly PublishRecord[], time: CallTime): Promise<PublishOutcome[]> {
    const outcomes: (PublishOutcome | undefined)[] = records.map(() => undefined);
    const answer = (entry: Entry, outcome: PublishOutcome) => (outcomes[entry.index] = outcome);
    try {
      const { partitions } = await time.within(() => this.#connect());
      const parts = this.#partsOf(records, partitions);
      await time.within(() =>
        Promise.all([...parts].map(([partition, part]) => this.#inLine(partition, () => this.#sendPart(partition, part, time, answer)))),
      );
      return outcomes.map((outcome) => outcome ?? SKIPPED);
    } catch (error) {
      const rest = this.#outcomeOf({ fault: faultOf(error), error });
      return outcomes.map((outcome) => outcome ?? rest);
    }
  }

  /** What is under way ends with an error, at once. */
  destroy(): void {
    this.#connection?.destroy();
  }

  #partsOf(records: readonly PublishRecord[], partitions: number): Map<number, Entry[]> {
    const parts = new Map<number, Entry[]>();
    for (const [index, record] of records.entries()) {
      const message = kafkaMessageOf(record, this.#options);
      const partition = partitionOfKey(message.key, partitions);
      const part = parts.get(partition) ?? [];
      parts.set(partition, part);
      part.push({ index, key: record.partitionKey, message, bytes: bytesOf(message) });
    }
    return parts;
  }

  /** Work for a partition, when all work for it that was in line before has ended. */
  #inLine(partition: number, work: () => Promise<void>): Promise<void> {
    const turn = (this.#lanes.get(partition) ?? Promise.resolve()).then(work);
    const end = turn.catch(() => undefined);
    this.#lanes.set(partition, end);
    void end.then(() => {
      if (this.#lanes.get(partition) === end) this.#lanes.delete(partition);
    });
    return turn;
  }

  async #sendPart(
    partition: number,
    part: readonly Entry[],
    time: CallTime,
    answer: (entry: Entry, outcome: PublishOutcome) => void,
  ): Promise<void> {
    const stopped = new Set<string>();
    const batches = inBatches(part, this.#batchBytesMax);
    for (let batch = batches.shift(); batch !== undefined; batch = batches.shift()) {
      const open = batch.filter(({ key }) => !stopped.has(key));
      const [first] = open;
      if (first === undefined) continue;

      const trouble = await this.#send(partition, open, time);
      if (trouble === undefined) {
        for (const entry of open) answer(entry, SENT);
      } else if (trouble.fault.of !== 'record') {
        const outcome = this.#outcomeOf(trouble);
        for (const entry of [...open, ...batches.flat()]) if (!stopped.has(entry.key)) answer(entry, outcome);
        return;
      } else if (open.length === 1) {
        answer(first, this.#outcomeOf(trouble));
        stopped.add(first.key);
      } else {
        if (trouble.fault.reason === 'too_large') this.#batchBytesMax = Math.ceil(sumOfBytes(open) / 2);
        const middle = Math.ceil(open.length / 2);
        batches.unshift(open.slice(0, middle), open.slice(middle));
      }
    }
  }

  /** Sends one batch, until it is written or refused, or its time is over. */
  async #send(partition: number, batch: readonly Entry[], time: CallTime): Promise<Trouble | undefined> {
    const messages = batch.map(({ message }) => message);
    let connection: Connection | undefined;
    for (let pauseMs = REPEAT_MS_MIN; ; pauseMs = Math.min(pauseMs * 2, REPEAT_MS_MAX)) {
      try {
        const on = (connection ??= await time.within(() => this.#connect()));
        await time.within(() => on.send(partition, messages, Math.ceil(time.remainingMs)));
        return undefined;
      } catch (error) {
        const fault = faultOf(error);
        if (fault.of === 'record') return { fault, error };
        const repeat = fault.of === 'sink' && fault.repeat && connection?.destroyed === false;
        const paused = repeat && (await time.within(() => delay(pauseMs, true)).catch(() => false));
        if (paused) continue;
        connection?.destroy();
        return { fault, error };
      }
    }
  }

  /** The connection in use, or a new one where it has been given up. Errors: those of the client. */
  #connect(): Promise<Connection> {
    const now = performance.now();
    if (this.#ready !== undefined && this.#connection?.destroyed === false) {
      if (now - this.#checkedAt > METADATA_AGE_MS) {
        this.#checkedAt = now;
        this.#batchBytesMax = this.#options.batchBytesMax;
        void this.#connection.refreshPartitions().catch(() => undefined); // the numbers that are known serve on
      }
      return this.#ready;
    }
    const connection = this.#newConnection();
    this.#connection = connection;
    this.#checkedAt = now;
    this.#ready = open(connection);
    return this.#ready;
  }

  #outcomeOf({ fault, error }: Trouble): PublishOutcome {
    const text = faultText(error, secretsOf(this.#options));
    if (error instanceof TimeIsUp) return failed(error.reason, text);
    return fault.of === 'sink' ? failed(fault.reason, text) : refused(fault.reason, text);
  }
}

async function open(connection: Connection): Promise<Connection> {
  try {
    await connection.open().catch(async (error: unknown) => {
      const fault = faultOf(error);
      if (fault.of !== 'topic' || fault.reason !== 'unknown_topic') throw error;
      await delay(SECOND_LOOK_MS);
      await connection.open();
    });
    return connection;
  } catch (error) {
    connection.destroy();
    throw error;
  }
}

/** In order, each as large as a batch may be; what is larger stands alone. */
function inBatches(entries: readonly Entry[], bytesMax: number): Entry[][] {
  const batches: Entry[][] = [];
  let bytes = 0;
  for (const entry of entries) {
    const last = batches.at(-1);
    if (last === undefined || bytes + entry.bytes > bytesMax || last.length === BATCH_RECORDS_MAX) {
      batches.push([entry]);
      bytes = entry.bytes;
    } else {
      last.push(entry);
      bytes += entry.bytes;
    }
  }
  return batches;
}

const sumOfBytes = (entries: readonly Entry[]): number => entries.reduce((sum, { bytes }) => sum + bytes, 0);
