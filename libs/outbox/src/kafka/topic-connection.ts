import net from 'node:net';
import tls from 'node:tls';
import { CompressionTypes, Kafka, logLevel, type Producer, type SASLOptions } from 'kafkajs';
import type { KafkaMessage } from './kafka-message';
import type { ResolvedKafkaOptions } from './kafka-options';
import type { Connection } from './topic-publisher';

const CONNECT_TIMEOUT_MS = 5_000;
/** Above every publish time-out: who waits decides when it has been long enough. */
const REQUEST_TIMEOUT_MS = 120_000;
/** The client's own repeats only step over a leader that has moved; the publisher repeats with its own clock. */
const CLIENT_RETRY = { retries: 1, initialRetryTime: 50, maxRetryTime: 100 };
const KEEP_ALIVE_MS = 60_000;
const COMPRESSION = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP };

/**
 * One idempotent producer for one topic, with connections of its own. A connection that has been destroyed sends nothing any more, not even
 * what waits in the client's queues, and a new one is a new producer for the broker.
 *
 * One topic, since the client asks for the metadata of all topics it knows at once: one that is deleted would fail the others.
 */
export class TopicConnection implements Connection {
  readonly #topic: string;
  readonly #options: ResolvedKafkaOptions;
  readonly #producer: Producer;
  readonly #kafka: Kafka;
  readonly #sockets = new Set<net.Socket>();
  #destroyed = false;
  #partitions = 0;

  constructor(topic: string, options: ResolvedKafkaOptions) {
    this.#topic = topic;
    this.#options = options;
    const { brokers, clientId, sasl } = options;
    this.#kafka = new Kafka({
      brokers: [...brokers],
      clientId,
      ssl: options.tls === false ? false : options.tls === true ? {} : options.tls,
      ...(sasl === undefined ? {} : { sasl: sasl as SASLOptions }),
      connectionTimeout: CONNECT_TIMEOUT_MS,
      authenticationTimeout: CONNECT_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      retry: CLIENT_RETRY,
      // What goes wrong is in the outcomes; the client's own lines would repeat it, with addresses and without redaction.
      logLevel: logLevel.NOTHING,
      socketFactory: (request) => this.#openSocket(request),
    });
    this.#producer = this.#kafka.producer({
      idempotent: true,
      maxInFlightRequests: 1,
      allowAutoTopicCreation: false,
      // Every message comes with its partition.
      createPartitioner:
        () =>
        ({ message }) =>
          message.partition ?? 0,
    });
  }

  get destroyed(): boolean {
    return this.#destroyed;
  }

  /** Known once open. */
  get partitions(): number {
    return this.#partitions;
  }

  /** Errors: those of the client; the connection is no use then. */
  async open(): Promise<void> {
    await this.refreshPartitions();
    await this.#producer.connect();
  }

  /** Asks how many partitions the topic has now, over a connection that is closed again. */
  async refreshPartitions(): Promise<void> {
    const admin = this.#kafka.admin();
    try {
      await admin.connect();
      const { topics } = await admin.fetchTopicMetadata({ topics: [this.#topic] });
      this.#partitions = topics.find(({ name }) => name === this.#topic)?.partitions.length ?? this.#partitions;
    } finally {
      await admin.disconnect().catch(() => undefined);
    }
  }

  /** Resolves when all replicas in sync have the batch. Errors: those of the client (faultOf). */
  async send(partition: number, messages: readonly KafkaMessage[], ackTimeoutMs: number): Promise<void> {
    await this.#producer.send({
      topic: this.#topic,
      acks: -1,
      timeout: ackTimeoutMs,
      compression: COMPRESSION[this.#options.compression],
      messages: messages.map(({ key, value, headers, timestamp }) => ({ key, value, headers, timestamp, partition })),
    });
  }

  /** Ends everything under way, with an error, at once. Repeat: safe. */
  destroy(): void {
    if (this.#destroyed) return;
    this.#destroyed = true;
    // An error and not an end: the client rejects what waits for an answer only then.
    for (const socket of this.#sockets) socket.destroy(new Error('the connection was given up'));
    this.#producer.disconnect().catch(() => undefined);
  }

  #openSocket({
    host,
    port,
    ssl,
    onConnect,
  }: {
    host: string;
    port: number;
    ssl: tls.ConnectionOptions;
    onConnect: () => void;
  }): net.Socket {
    if (this.#destroyed) throw new Error('the connection was given up');
    const name = net.isIP(host) === 0 ? { servername: host } : {};
    // The client passes what it was given as `ssl`, also when that is false.
    const socket =
      this.#options.tls === false ? net.connect({ host, port }, onConnect) : tls.connect({ host, port, ...name, ...ssl }, onConnect);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    socket.setNoDelay(true);
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    return socket;
  }
}
