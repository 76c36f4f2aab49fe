import { parseInput } from '@runplane/contracts';
import { inKeyOrder, SKIPPED } from '../publish-outcomes';
import { failed, type Publisher, type PublishOptions, type PublishOutcome, type PublishRecord } from '../publisher';
import { CallTime } from './call-time';
import { KafkaOptions } from './kafka-options';
import { TopicConnection } from './topic-connection';
import { TopicPublisher } from './topic-publisher';

/**
 * A publisher that writes to Kafka: an idempotent producer per topic, acknowledged by all replicas in sync, one request in flight per partition,
 * keys where the Java client would put them. Connects with the first record of a topic; topics fail for themselves.
 *
 * Errors    InvalidRequest for options that are not valid. What goes wrong later is in the outcomes, without password and key.
 * Source    docs/kafka.md
 */
export function openKafkaPublisher(given: KafkaOptions): Publisher {
  const options = parseInput(KafkaOptions, given);
  const topics = new Map<string, TopicPublisher>();
  const closing = new AbortController();
  const underWay = new Set<Promise<unknown>>();

  const topicOf = (topic: string): TopicPublisher => {
    const publisher = topics.get(topic) ?? new TopicPublisher(options, () => new TopicConnection(topic, options));
    topics.set(topic, publisher);
    return publisher;
  };

  async function publishAll(records: readonly PublishRecord[], { timeoutMs, signal }: PublishOptions): Promise<PublishOutcome[]> {
    const time = new CallTime({ timeoutMs, signals: [signal, closing.signal] });
    try {
      const outcomes = records.map(() => SKIPPED);
      const perTopic = [...placesByTopic(records)].map(async ([topic, places]) => {
        const answers = await topicOf(topic).publish(
          places.flatMap((place) => records[place] ?? []),
          time,
        );
        for (const [index, place] of places.entries()) outcomes[place] = answers[index] ?? SKIPPED;
      });
      await Promise.all(perTopic);
      return inKeyOrder(records, outcomes);
    } finally {
      time.end();
    }
  }

  return {
    async publish(records, callOptions) {
      if (closing.signal.aborted)
        return inKeyOrder(
          records,
          records.map(() => failed('stopped', 'the publisher is closed')),
        );
      const call = publishAll(records, callOptions);
      underWay.add(call);
      return await call.finally(() => underWay.delete(call));
    },
    async close() {
      closing.abort();
      await Promise.allSettled(underWay);
      for (const topic of topics.values()) topic.destroy();
    },
  };
}

function placesByTopic(records: readonly PublishRecord[]): Map<string, number[]> {
  const places = new Map<string, number[]>();
  for (const [place, { topic }] of records.entries()) {
    const ofTopic = places.get(topic);
    if (ofTopic === undefined) places.set(topic, [place]);
    else ofTopic.push(place);
  }
  return places;
}
