import { createHmac } from 'node:crypto';
import { cloudEventAttributes } from '../cloud-event';
import type { PublishRecord } from '../publisher';

/** The body of a message: the event as a CloudEvent in JSON. The same record gives the same bytes, whenever it is sent. */
export function webhookBody(record: PublishRecord, { sourceUri }: { sourceUri: string }): string {
  const attributes = JSON.stringify(Object.fromEntries(cloudEventAttributes(record, { sourceUri })));
  return `${attributes.slice(0, -1)},"data":${record.data}}`; // `data` as it is stored: parsed and written anew it could differ
}

/**
 * The headers of the Standard Webhooks scheme. `webhook-id` stays the same over all tries; time and signature are the try's own, so that a receiver
 * can refuse what somebody else sends again later.
 */
export function webhookHeaders(
  id: string,
  body: string,
  { secrets, now }: { secrets: readonly string[]; now: Date },
): Record<string, string> {
  const time = Math.floor(now.getTime() / 1000);
  const sign = (secret: string): string =>
    createHmac('sha256', Buffer.from(secret.slice(SECRET_PREFIX.length), 'base64'))
      .update(`${id}.${time}.${body}`)
      .digest('base64');
  return {
    'content-type': 'application/cloudevents+json; charset=utf-8',
    'content-length': String(Buffer.byteLength(body)),
    'user-agent': 'runplane-webhooks',
    'webhook-id': id,
    'webhook-timestamp': String(time),
    'webhook-signature': secrets.map((secret) => `v1,${sign(secret)}`).join(' '),
  };
}

/** Of a secret as the scheme writes it; the key is behind it in base64. */
export const SECRET_PREFIX = 'whsec_';
