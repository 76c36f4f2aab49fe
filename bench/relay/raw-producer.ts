import { kafkaMessageOf, partitionOfKey } from '@runplane/outbox/kafka';
import { CompressionTypes, Kafka, logLevel } from 'kafkajs';
import type { Drain, DrainSetting } from './drain';
import { recordsOf, someRuns, TOPIC } from './events';

// The same client as the publisher's, as a program would use it that only wants to be fast: idempotent, acknowledged by all, messages ready in
// memory with the same headers, one request for all partitions, the next when it is answered. (More than one in flight, the client's idempotent
// producer serves one after the other.)

export async function prepareRawProducer({ kafka, compression }: DrainSetting, batch: number): Promise<Drain> {
  const client = new Kafka({ brokers: [...kafka.brokers], clientId: 'raw', logLevel: logLevel.NOTHING });
  const producer = client.producer({
    idempotent: true,
    allowAutoTopicCreation: false,
    createPartitioner:
      () =>
      ({ message, partitionMetadata }) =>
        partitionOfKey(message.key as Buffer, partitionMetadata.length),
  });
  await producer.connect();
  const runs = someRuns();
  return {
    async run(count) {
      const messages = recordsOf(runs, count).map((record) => kafkaMessageOf(record, { sourceUri: 'urn:runplane' }));
      const started = performance.now();
      for (let from = 0; from < count; from += batch) {
        await producer.send({
          topic: TOPIC,
          acks: -1,
          compression: compression === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
          messages: messages.slice(from, from + batch),
        });
      }
      return performance.now() - started;
    },
    close: () => producer.disconnect(),
  };
}
