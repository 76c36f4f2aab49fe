// A Kafka broker for machines that have none: tests, benchmarks, the demo. Needs Java and, once, Maven.

export { startEmbeddedKafka, type EmbeddedKafka } from './embedded-kafka';
export { followTopics, messageLine, readTopic, type ConsumedMessage } from './follow-topic';
export { EmbeddedKafkaError, ensureKafkaJars, KAFKA_VERSION, missingForKafka } from './kafka-jars';
export type { SecureAccess } from './secure-listener';
