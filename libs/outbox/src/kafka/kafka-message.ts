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
  const headers: Record<string, string> = {};
  for (const [name, value] of cloudEventAttributes(record, options)) headers[headerOf(name)] = value;
  return {
    key: Buffer.from(record.partitionKey),
    value: Buffer.from(record.data),
    headers,
    timestamp: String(Date.parse(record.time)),
  };
}

/** Made once for each attribute: a name that is put together anew for every message is the dearest part of it. */
const headerNames = new Map([['datacontenttype', 'content-type']]);
function headerOf(attribute: string): string {
  const known = headerNames.get(attribute);
  if (known !== undefined) return known;
  const name = `ce_${attribute}`;
  headerNames.set(attribute, name);
  return name;
}

/** What a message adds to a batch before compression, rounded up: lengths and deltas are variable-length numbers. */
export function bytesOf({ key, value, headers }: KafkaMessage): number {
  const perHeader = 10;
  const perMessage = 40;
  let bytes = perMessage + key.length + value.length;
  for (const name in headers) bytes += name.length + Buffer.byteLength(headers[name] ?? '') + perHeader;
  return bytes;
}
