// A door of its own: whoever does not relay to Kafka loads no Kafka client.

export { KAFKA_COMPRESSIONS, KafkaOptions, SASL_MECHANISMS } from './kafka-options';
export { openKafkaPublisher } from './kafka-publisher';
export { kafkaMessageOf, type KafkaMessage } from './kafka-message';
export { partitionOfKey } from './partition-of-key';
