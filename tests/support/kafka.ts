import type { PublishRecord } from '@runplane/outbox';
import { startEmbeddedKafka, type ConsumedMessage, type EmbeddedKafka } from '@runplane/outbox/embedded-kafka';

/** A broker for the tests of a file. */
export function useKafka(options: Parameters<typeof startEmbeddedKafka>[0] = {}): { readonly broker: EmbeddedKafka } {
  let broker: EmbeddedKafka | undefined;
  beforeAll(async () => {
    broker = await startEmbeddedKafka(options);
  });
  afterAll(async () => await broker?.close());
  return {
    get broker() {
      if (broker === undefined) throw new Error('the broker runs from beforeAll on');
      return broker;
    },
  };
}

/** An event of a session's log as the relay hands it to a publisher. */
export function aRecord(over: Partial<PublishRecord> & { partitionKey: string; sequence: number }): PublishRecord {
  const sessionId = over.partitionKey.slice(over.partitionKey.indexOf('/') + 1);
  return {
    place: { tx: 1n, position: BigInt(over.sequence) },
    topic: 'events',
    stream: 'session',
    streamId: sessionId,
    eventId: `evt_${over.partitionKey}_${over.sequence}`,
    type: 'context/text',
    tenantId: 'acme',
    projectId: null,
    sessionId,
    runId: null,
    commandId: null,
    data: JSON.stringify({ text: `${over.sequence}` }),
    time: '2026-11-29T23:00:00.123Z',
    ...over,
  };
}

/** Per key, the sequences of its messages in the order of their first appearance, and how many came more than once. */
export function appearances(messages: readonly ConsumedMessage[]): { first: Map<string, number[]>; repeats: number } {
  const first = new Map<string, number[]>();
  let repeats = 0;
  for (const { key, headers } of messages) {
    const seen = first.get(key) ?? [];
    first.set(key, seen);
    const sequence = Number(headers['ce_sequence']);
    if (seen.includes(sequence)) repeats += 1;
    else seen.push(sequence);
  }
  return { first, repeats };
}
