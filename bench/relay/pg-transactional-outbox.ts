import { setTimeout as delay } from 'node:timers/promises';
import { kafkaMessageOf, partitionOfKey } from '@runplane/outbox/kafka';
import { CompressionTypes, Kafka, logLevel } from 'kafkajs';
import { DatabaseSetup, getDisabledLogger, initializePollingMessageListener } from 'pg-transactional-outbox';
import type { Drain, DrainSetting } from './drain';
import { DATA, recordsOf, someRuns, TENANT, TOPIC } from './events';

// The peer as its documentation sets it up: its table, function and indexes, its polling listener with a handler that sends to Kafka. It hands out
// one message of a segment (our key) at a time, to keep their order, and marks each in a transaction of its own. Protection against poisonous
// messages, which costs it more statements, is off.

const SCHEMA = 'peer';
const TABLE = 'outbox';
const NEXT = 'next_outbox_messages';
const POLL_MS = 5;
const CONNECTIONS = 10;

export async function preparePgTransactionalOutbox({ store, kafka, compression }: DrainSetting, batch: number): Promise<Drain> {
  const setup = {
    outboxOrInbox: 'outbox' as const,
    database: 'runplane',
    schema: SCHEMA,
    table: TABLE,
    listenerRole: 'postgres',
    nextMessagesSchema: SCHEMA,
    nextMessagesName: NEXT,
  };
  await store.admin.query(DatabaseSetup.dropAndCreateTable(setup));
  await store.admin.query(DatabaseSetup.createPollingFunction(setup));
  await store.admin.query(DatabaseSetup.setupPollingIndexes(setup));

  const producer = new Kafka({ brokers: [...kafka.brokers], clientId: 'peer', logLevel: logLevel.NOTHING }).producer({
    idempotent: true,
    allowAutoTopicCreation: false,
    createPartitioner:
      () =>
      ({ message, partitionMetadata }) =>
        partitionOfKey(message.key as Buffer, partitionMetadata.length),
  });
  await producer.connect();
  const runs = someRuns();
  let handled = 0;

  const dbConfig = { connectionString: store.url, max: CONNECTIONS };
  const [shutdown] = initializePollingMessageListener(
    {
      outboxOrInbox: 'outbox',
      dbListenerConfig: dbConfig,
      dbHandlerConfig: dbConfig,
      settings: {
        dbSchema: SCHEMA,
        dbTable: TABLE,
        nextMessagesFunctionSchema: SCHEMA,
        nextMessagesFunctionName: NEXT,
        nextMessagesBatchSize: batch,
        nextMessagesPollingIntervalInMs: POLL_MS,
        enableMaxAttemptsProtection: false,
        enablePoisonousMessageProtection: false,
      },
    },
    {
      async handle(message) {
        const [record] = recordsOf([{ runId: message.aggregateId, partitionKey: `${TENANT}/${message.aggregateId}`, shard: 0 }], 1);
        if (record === undefined) return;
        const sent = kafkaMessageOf(
          { ...record, eventId: message.id, data: JSON.stringify(message.payload) },
          { sourceUri: 'urn:runplane' },
        );
        const codec = compression === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None;
        await producer.send({ topic: TOPIC, acks: -1, compression: codec, messages: [sent] });
        handled += 1;
      },
    },
    getDisabledLogger(),
    // From the first call on; its own strategy starts with single messages.
    { batchSizeStrategy: async () => batch },
  );

  return {
    async run(count) {
      const used = runs.slice(0, count);
      const each = Math.ceil(count / used.length);
      const goal = handled + each * used.length;
      await store.admin.query(FILL, [used.map((run) => run.runId), each, DATA]);
      const started = performance.now();
      while (handled < goal) await delay(2);
      return performance.now() - started;
    },
    close: async () => {
      await shutdown();
      await producer.disconnect();
    },
  };
}

const FILL = `
  INSERT INTO ${SCHEMA}.${TABLE} (id, aggregate_type, aggregate_id, message_type, segment, payload)
  SELECT gen_random_uuid(), 'run', r.run, 'assistant_message', r.run, $3::jsonb
  FROM generate_series(1, $2::int) AS s (n), unnest($1::text[]) AS r (run)
  ORDER BY s.n, r.run`;
