import type { Client } from '@runplane/client';
import type { FeedEvent } from '@runplane/contracts';
import { followTopics, messageLine, startEmbeddedKafka, type ConsumedMessage, type EmbeddedKafka } from '@runplane/outbox/embedded-kafka';
import { DemoFailed } from './demo-failed';
import type { Timeline } from './timeline';

const TOPIC = 'runplane';
const SHOWN = 5;
const ARRIVAL_MS = 60_000;

/** A broker that goes down before the first turn, and comes back behind the last. */
export class DemoKafka {
  readonly #broker: EmbeddedKafka;
  readonly #timeline: Timeline;

  private constructor(broker: EmbeddedKafka, timeline: Timeline) {
    this.#broker = broker;
    this.#timeline = timeline;
  }

  static async start(timeline: Timeline): Promise<DemoKafka> {
    timeline.chapter('Apache Kafka starts');
    const broker = await startEmbeddedKafka();
    await broker.createTopic(TOPIC);
    timeline.check(`ready: ${broker.brokers.join(',')}, topic ${TOPIC}`);
    return new DemoKafka(broker, timeline);
  }

  get environment(): Record<string, string> {
    return { RUNPLANE_KAFKA_BROKERS: this.#broker.brokers.join(','), RUNPLANE_KAFKA_TOPIC: TOPIC };
  }

  async goDown(): Promise<void> {
    await this.#broker.stop();
    this.#timeline.say('Kafka goes down: turns go on, and their events wait in the outbox.');
  }

  /** Errors: DemoFailed, where an event of the feed does not arrive, or one comes before an earlier one of its key. */
  async comeBack(client: Client): Promise<void> {
    this.#timeline.chapter('Kafka comes back');
    await this.#broker.start();
    const wanted = await everythingInFeed(client);
    const messages = await this.#receive(wanted);
    this.#timeline.check(`${wanted.length} events of the feed have arrived, each key in its order; the last ones:`);
    for (const message of messages.slice(-SHOWN)) this.#timeline.say(messageLine(message));
  }

  async #receive(wanted: readonly FeedEvent[]): Promise<ConsumedMessage[]> {
    const missing = new Set(wanted.map(({ eventId }) => eventId));
    const received = new Map<string, ConsumedMessage>();
    const { promise, resolve, reject } = deferred();
    const late = setTimeout(() => reject(new DemoFailed(`${missing.size} events have not arrived in Kafka`)), ARRIVAL_MS);
    const following = await followTopics(this.#broker.brokers, [TOPIC], (message) => {
      const id = message.headers['ce_id'] ?? '';
      if (!received.has(id)) received.set(id, message); // what came again is a repeat of what was there
      missing.delete(id);
      if (missing.size === 0) resolve();
    });
    try {
      await promise;
    } finally {
      clearTimeout(late);
      await following.stop();
    }
    assertOrder([...received.values()], wanted);
    return [...received.values()];
  }

  close(): Promise<void> {
    return this.#broker.close();
  }
}

async function everythingInFeed(client: Client): Promise<FeedEvent[]> {
  const events: FeedEvent[] = [];
  for (let after = 'start'; ;) {
    const page = await client.readFeed({ after, limit: 200 });
    events.push(...page.events);
    after = page.cursor;
    if (!page.more) return events;
  }
}

function assertOrder(messages: readonly ConsumedMessage[], wanted: readonly FeedEvent[]): void {
  const places = new Map(wanted.map(({ eventId }, place) => [eventId, place]));
  const last = new Map<string, number>();
  for (const { key, headers } of messages) {
    const place = places.get(headers['ce_id'] ?? '');
    if (place === undefined) continue; // newer than the look at the feed
    if (place < (last.get(key) ?? -1)) throw new DemoFailed(`in Kafka an event of ${key} stands before an earlier one`);
    last.set(key, place);
  }
}

function deferred(): { promise: Promise<void>; resolve: () => void; reject: (error: Error) => void } {
  let [resolve, reject]: [() => void, (error: Error) => void] = [() => undefined, () => undefined];
  const promise = new Promise<void>((done, failed) => ([resolve, reject] = [done, failed]));
  return { promise, resolve, reject };
}
