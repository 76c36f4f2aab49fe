import { z } from 'zod';
import type { Publisher } from '../publisher';

/** Which events a sink gets; without any: all. Lists are alternatives, filters hold together. */
export const SinkFilter = z.strictObject({
  tenants: z.array(z.string().min(1)).min(1).optional(),
  streams: z
    .array(z.enum(['run', 'session']))
    .min(1)
    .optional(),
  /** Types by their name, or by its beginning: `approval/*`. */
  types: z
    .array(
      z
        .string()
        .regex(/^[a-z0-9_/-]*\*?$/)
        .min(1),
    )
    .min(1)
    .optional(),
});
export type SinkFilter = z.infer<typeof SinkFilter>;

export const SinkLimits = z.strictObject({
  /** Events of one shard in one pass. */
  batchEvents: z.int().min(1).max(5_000).default(500),
  /** Bytes of data of one shard in one pass; the event that passes it is the last. */
  batchBytes: z
    .int()
    .min(1)
    .max(64 * 1024 * 1024)
    .default(1024 * 1024),
  /** For one send; the rest of the lease bounds it too. */
  sendTimeoutMs: z.int().min(50).max(60_000).default(5_000),
  /** After how long without a sign of life the shards of a relay are anybody's. */
  leaseMs: z.int().min(300).max(120_000).default(10_000),
  /** An event refused so often, or for so long, is parked. */
  attemptsMax: z.int().min(1).max(1_000).default(10),
  parkAfterMs: z.int().min(0).max(86_400_000).default(600_000),
  backOffMs: z.int().min(1).max(60_000).default(1_000),
  backOffMaxMs: z.int().min(1).max(3_600_000).default(60_000),
});
export type SinkLimits = z.infer<typeof SinkLimits>;

/** What holds for a sink of any kind. */
export const SinkSettings = z.strictObject({
  /** `{tenant}` and `{stream}` are filled in. */
  topic: z.string().min(1).max(249),
  filter: SinkFilter.default({}),
  /** Where a sink that is new begins: `now`, `oldest`, or a cursor of the feed. */
  start: z.string().min(1).default('now'),
  limits: SinkLimits.prefault({}),
});
export type SinkSettings = z.infer<typeof SinkSettings>;

/** A sink as a relay serves it. */
export interface Sink extends SinkSettings {
  readonly name: string;
  /** `kafka`, `webhook`, … */
  readonly kind: string;
  readonly publisher: Publisher;
}

export function topicOf(template: string, { tenantId, stream }: { tenantId: string; stream: string }): string {
  return template.includes('{') ? template.replaceAll('{tenant}', tenantId).replaceAll('{stream}', stream) : template;
}

/** The types of a filter as patterns of LIKE. */
export function typePatterns(types: readonly string[] | undefined): string[] | null {
  return types === undefined ? null : types.map((type) => type.replaceAll(/[\\%_]/g, String.raw`\$&`).replace(/\*$/, '%'));
}
