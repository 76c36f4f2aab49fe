import { cloudEventAttributes } from '../cloud-event';
import type { PublishRecord } from '../publisher';

export interface KafkaMessage {
  readonly key: Buffer;
  readonly value: Buffer;
  /** In this order on the wire. */
  readonly headers: Readonly<Record<string, string>>;
  /** Milliseconds since 1970, as text: the time of the event, not of the try. */
  readonly timestamp: string;
}

/**
 * A record as the Kafka protocol binding of CloudEvents 1.0 has it in binary mode: the attributes as headers `ce_…`, `content-type` for
 * datacontenttype, the stored data as value, the partition key as key. The same bytes for the same record, always.
 */
export function kafkaMessageOf(record: PublishRecord, options: { sourceUri: string }): KafkaMessage {
  const headers = cloudEventAttributes(record, options).map(
    ([name, value]) => [name === 'datacontenttype' ? 'content-type' : `ce_${name}`, value] as const,
  );
  return {
    key: Buffer.from(record.partitionKey),
    value: Buffer.from(record.data),
    headers: Object.fromEntries(headers),
    timestamp: String(Date.parse(record.time)),
  };
}

/** What a message adds to a batch before compression, rounded up: lengths and deltas are variable-length numbers. */
export function bytesOf({ key, value, headers }: KafkaMessage): number {
  const perHeader = 10;
  const perMessage = 40;
  return Object.entries(headers).reduce(
    (sum, [name, text]) => sum + Buffer.byteLength(name) + Buffer.byteLength(text) + perHeader,
    perMessage + key.length + value.length,
  );
}
