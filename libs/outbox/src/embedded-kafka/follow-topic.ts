import { randomUUID } from 'node:crypto';
import { cutText } from '@runplane/contracts';
import { Kafka, logLevel } from 'kafkajs';

/** A message as a consumer finds it. */
export interface ConsumedMessage {
  readonly topic: string;
  readonly partition: number;
  readonly offset: string;
  readonly key: string;
  readonly value: string;
  /** In the order of the wire. */
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds since 1970, as text. */
  readonly timestamp: string;
}

const LINE_VALUE_CODE_POINTS = 100;

/** A message as one line for people: where it lies, its key, its place in its log, its type, how its data begins. */
export function messageLine({ topic, partition, offset, key, headers, value }: ConsumedMessage): string {
  const sequence = Number(headers['ce_sequence']);
  return `${topic}-${partition}@${offset}  ${key}  #${sequence}  ${headers['ce_type'] ?? ''}  ${cutText(value, LINE_VALUE_CODE_POINTS)}`;
}

/** Gives every message of a topic from its beginning on, in order per partition, until stopped; several topics at a time. */
export async function followTopics(
  brokers: readonly string[],
  topics: readonly string[],
  onMessage: (message: ConsumedMessage) => void,
): Promise<{ stop(): Promise<void> }> {
  const consumer = new Kafka({ brokers: [...brokers], clientId: 'follow-topics', logLevel: logLevel.NOTHING }).consumer({
    groupId: `follow-${randomUUID()}`,
    maxWaitTimeInMs: 100,
    allowAutoTopicCreation: false,
  });
  await consumer.connect();
  await consumer.subscribe({ topics: [...topics], fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      const headers = Object.entries(message.headers ?? {}).map(([name, value]) => [name, String(value)] as const);
      onMessage({
        topic,
        partition,
        offset: message.offset,
        key: message.key?.toString() ?? '',
        value: message.value?.toString() ?? '',
        headers: Object.fromEntries(headers),
        timestamp: message.timestamp,
      });
    },
  });
  return { stop: () => consumer.disconnect() };
}

/** What is in a topic now: everything below the ends of its partitions, in order per partition. */
export async function readTopic(brokers: readonly string[], topic: string): Promise<ConsumedMessage[]> {
  const admin = new Kafka({ brokers: [...brokers], clientId: 'read-topic', logLevel: logLevel.NOTHING }).admin();
  await admin.connect();
  const offsets = await admin.fetchTopicOffsets(topic).finally(() => admin.disconnect());
  const left = new Map(offsets.filter(({ low, high }) => low !== high).map(({ partition, high }) => [partition, BigInt(high)]));
  const found: ConsumedMessage[] = [];
  if (left.size === 0) return found;

  let complete: () => void = () => undefined;
  const all = new Promise<void>((resolve) => (complete = resolve));
  const following = await followTopics(brokers, [topic], (message) => {
    const end = left.get(message.partition);
    if (end === undefined) return;
    found.push(message);
    if (BigInt(message.offset) + 1n >= end) left.delete(message.partition);
    if (left.size === 0) complete();
  });
  await all;
  await following.stop();
  return found;
}
