import type { PublishRecord } from './publisher';

/** Digits of the greatest bigint: as text, sequences of a stream sort as they count. */
const SEQUENCE_DIGITS = 19;

/**
 * The attributes of a record as a CloudEvent 1.0, in a fixed order, values as text; absent ones are left out. `id` is unique within `source`,
 * and so are `sequence` within `source`, `subject` and the first two parts of `type`. Equal records have equal attributes, whenever and by
 * whomever they are sent.
 *
 * `sourceUri` is what the operator calls this installation, without a slash at its end.
 */
export function cloudEventAttributes(record: PublishRecord, { sourceUri }: { sourceUri: string }): readonly (readonly [string, string])[] {
  const attributes: (readonly [string, string | null])[] = [
    ['specversion', '1.0'],
    ['id', record.eventId],
    ['source', `${sourceUri}/tenants/${encodeURIComponent(record.tenantId)}`],
    ['type', `runplane.${record.stream}.${record.type}`],
    ['subject', record.streamId],
    ['time', record.time],
    ['datacontenttype', 'application/json'],
    ['partitionkey', record.partitionKey],
    ['sequence', String(record.sequence).padStart(SEQUENCE_DIGITS, '0')],
    ['tenantid', record.tenantId],
    ['projectid', record.projectId],
    ['sessionid', record.sessionId],
    ['runid', record.runId],
    ['commandid', record.commandId],
  ];
  return attributes.filter((attribute): attribute is readonly [string, string] => attribute[1] !== null);
}
