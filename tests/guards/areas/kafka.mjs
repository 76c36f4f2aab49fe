// What leaves for Kafka: order per key, and no batch that passes for another.
const KAFKA = 'libs/outbox/src/kafka';
const topic = (name) => ({ file: `${KAFKA}/topic-publisher.spec.ts`, name });

export const kafkaGuards = [
  {
    name: 'a key stops at its first record that was not sent',
    file: 'libs/outbox/src/publish-outcomes.ts',
    text: "if (outcome.kind !== 'sent') stopped.add(key);",
    replacement: '',
    test: { file: 'libs/outbox/src/publish-outcomes.spec.ts', name: 'a later record that got through is sent again' },
  },
  {
    name: 'a stopped key is in no later batch',
    file: `${KAFKA}/topic-publisher.ts`,
    text: 'const open = batch.filter(({ key }) => !stopped.has(key));',
    replacement: 'const open = batch;',
    test: topic('its key stops, the others go on'),
  },
  {
    name: 'a batch in doubt is repeated on its own connection',
    file: `${KAFKA}/topic-publisher.ts`,
    text: "const repeat = fault.of === 'sink' && fault.repeat && connection?.destroyed === false;",
    replacement: 'const repeat = false;',
    test: topic('a batch whose answer got lost is repeated as it is'),
  },
  {
    name: 'a batch that is given up takes its connection with it',
    file: `${KAFKA}/topic-publisher.ts`,
    text: 'connection?.destroy(); return { fault, error };',
    replacement: 'return { fault, error };',
    test: topic('a batch that is given up takes its connection with it'),
  },
  {
    name: 'a producer whose numbers do not fit is not used again',
    file: `${KAFKA}/kafka-faults.ts`,
    text: "const PRODUCER_LOST: KafkaFault = { of: 'sink', reason: 'unavailable', repeat: false };",
    replacement: "const PRODUCER_LOST: KafkaFault = { of: 'sink', reason: 'unavailable', repeat: true };",
    test: topic('OUT_OF_ORDER_SEQUENCE_NUMBER fails the call'),
  },
  {
    name: 'a batch has a bound of records',
    file: `${KAFKA}/topic-publisher.ts`,
    text: ' || last.length === BATCH_RECORDS_MAX',
    replacement: '',
    test: topic('a batch has at most 500 records'),
  },
  {
    name: 'a partition has one request in flight',
    file: `${KAFKA}/topic-publisher.ts`,
    text: '(this.#lanes.get(partition) ?? Promise.resolve()).then(work)',
    replacement: 'Promise.resolve().then(work)',
    test: topic('a partition has one request in flight'),
  },
  {
    name: 'no secret is in an error',
    file: `${KAFKA}/kafka-faults.ts`,
    text: "secrets.filter((secret) => secret !== '').reduce((said, secret) => said.replaceAll(secret, REDACTED), text)",
    replacement: 'text',
    test: { file: `${KAFKA}/kafka-faults.spec.ts`, name: 'without secrets' },
  },
  {
    name: 'keys go where the Java client puts them',
    file: `${KAFKA}/partition-of-key.ts`,
    text: '(murmur2(key) & 0x7fffffff) % partitions',
    replacement: 'Math.abs(murmur2(key)) % partitions',
    test: { file: `${KAFKA}/partition-of-key.spec.ts`, name: 'goes where the Java client puts it' },
  },
];
