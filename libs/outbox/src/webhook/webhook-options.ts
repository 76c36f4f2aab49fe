import ipaddr from 'ipaddr.js';
import { z } from 'zod';
import { SECRET_PREFIX } from './webhook-message';

/** As the Standard Webhooks scheme writes them: `whsec_` and 24 to 64 bytes in base64. */
const Secret = z
  .string()
  .regex(/^whsec_[A-Za-z0-9+/]+={0,2}$/, 'must be whsec_ and base64')
  .refine((text) => {
    const { length } = Buffer.from(text.slice(SECRET_PREFIX.length), 'base64');
    return length >= 24 && length <= 64;
  }, 'must have 24 to 64 bytes');

const Range = z.string().refine((text) => {
  try {
    return ipaddr.parseCIDR(text) !== undefined;
  } catch {
    return false;
  }
}, 'must be an address range like 10.1.0.0/16');

/** An endpoint that events are posted to, and how. */
export const WebhookOptions = z
  .strictObject({
    url: z.url({ protocol: /^https?$/ }).refine((text) => {
      const { username, password, hash } = new URL(text);
      return username === '' && password === '' && hash === '';
    }, 'must have no user, password or fragment'),
    /** Each signs every message, so that a receiver may know the old or the new one while they change. */
    secrets: z.array(Secret).min(1).max(5),
    /** What CloudEvents name as their source, before `/tenants/<tenant>`: a URI without a slash at its end. */
    sourceUri: z
      .string()
      .regex(/^[^\s]*[^\s/]$/, 'must be a URI without a slash at its end')
      .default('urn:runplane'),
    /** http sends what events say in the clear. */
    allowHttp: z.boolean().default(false),
    /** Addresses that are not public and may be reached all the same. */
    allowedRanges: z.array(Range).default([]),
    /** Keys that are posted at the same time; the messages of one go one after another. */
    keysAtOnce: z.int().min(1).max(64).default(8),
    requestTimeoutMs: z.int().min(100).max(60_000).default(10_000),
  })
  .refine(({ url, allowHttp }) => allowHttp || url.startsWith('https:'), { path: ['url'], message: 'must be https, or allowHttp true' });
export type WebhookOptions = z.input<typeof WebhookOptions>;
export type ResolvedWebhookOptions = z.infer<typeof WebhookOptions>;
