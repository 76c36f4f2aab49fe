import { z } from 'zod';
import { identifier } from './identifiers';
import { OUTBOX_SHARDS, RETRY_KEYS_MAX } from './limits';
import { JsonRecord } from './wire-json';

// Sinks of the relay as they cross the wire: the operator's, over all tenants.

const time = z.iso.datetime();

/** A name stands in the database, in metrics and in addresses. */
export const SinkName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,63}$/)
  .meta({ id: 'SinkName', description: 'Small letters, digits and hyphens' });

/** `<tenant>/<session id>`, or `<tenant>/<run id>` without a session. */
export const PartitionKey = z
  .string()
  .max(401)
  .refine(
    (key) => /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\//.test(key) && identifier.safeParse(key.slice(key.indexOf('/') + 1)).success,
    'must be <tenant>/<id>',
  )
  .meta({ description: '`<tenant>/<session id>`, or `<tenant>/<run id>` without a session' });
const feedCursor = z.string().min(1).max(500);

export const SinkStatus = z
  .strictObject({
    sink: SinkName,
    kind: z.string(),
    enabled: z.boolean(),
    relays: z.int().meta({ description: 'Relays that are alive for it' }),
    shardsHeld: z.int().meta({ description: `Of ${OUTBOX_SHARDS}; the others wait for a relay` }),
    shardsFailing: z.int().meta({ description: 'Shards at which the sink has failed last' }),
    backlogCount: z.int().meta({ description: 'Events that it has not got, held ones included' }),
    isExact: z
      .boolean()
      .meta({ description: 'False where the backlog is longer than was counted: the numbers are then estimates from below' }),
    heldCount: z.int().meta({ description: 'Of these, events that wait behind a blocked key' }),
    retryingCount: z.int().meta({ description: 'Blocked keys that are tried again by themselves' }),
    parkedCount: z.int().meta({ description: 'Blocked keys that wait for an operator' }),
    oldestParkedAt: time
      .nullable()
      .meta({ description: 'Since when the first of these waits; after the tenant’s `parkedDays` an event is given up' }),
    replayingShards: z.int().meta({ description: 'Shards of which a range is being sent again' }),
    oldestPendingAt: time.nullable(),
    lagMs: z.int().meta({ description: 'Age of the oldest event that it has not got' }),
    newestSentAt: time.nullable(),
    maxAttemptCount: z.int(),
    firstError: z.string().nullable().meta({ description: 'Of the oldest event that is held up and has one, else of a failing shard' }),
    valuesPrinted: z.literal(false),
  })
  .meta({ id: 'SinkStatus' });
export type SinkStatus = z.infer<typeof SinkStatus>;

export const SinkStatusList = z.strictObject({ sinks: z.array(SinkStatus) }).meta({ id: 'SinkStatusList' });
export type SinkStatusList = z.infer<typeof SinkStatusList>;

export const BLOCKED_KEY_STATES = ['parked', 'retrying'] as const;

export const BlockedKey = z
  .strictObject({
    key: z.string(),
    shard: z.int(),
    state: z.enum(BLOCKED_KEY_STATES),
    cursor: z.string().meta({ description: 'The event at which it is blocked; a skip names it' }),
    event: z
      .strictObject({ stream: z.enum(['run', 'session']), streamId: z.string(), sequence: z.int(), type: z.string(), eventId: z.string() })
      .nullable()
      .meta({ description: 'Null: it is no more, the next try passes over it' }),
    heldCount: z.int().meta({ description: 'Events that wait, with that one; 1,000 stands for more' }),
    attempts: z.int().meta({ description: 'Refusals of that event' }),
    failures: z.int().meta({ description: 'Failures of the sink in a row at that event' }),
    blockedAt: time,
    parkedAt: time.nullable(),
    nextTryInMs: z.int().nullable().meta({ description: 'Null for a parked key: it is not tried by itself' }),
    reason: z.string().nullable(),
    lastError: z.string().nullable(),
  })
  .meta({ id: 'BlockedKey' });
export type BlockedKey = z.infer<typeof BlockedKey>;

export const BlockedKeyPage = z
  .strictObject({ keys: z.array(BlockedKey), cursor: z.string().nullable().meta({ description: 'Of the next page; null at the end' }) })
  .meta({ id: 'BlockedKeyPage' });
export type BlockedKeyPage = z.infer<typeof BlockedKeyPage>;

export const SkipEvent = z
  .strictObject({ key: PartitionKey, cursor: feedCursor.meta({ description: 'Of the event, as the list of blocked keys shows it' }) })
  .meta({ id: 'SkipEvent' });
export type SkipEvent = z.infer<typeof SkipEvent>;
export const SkippedEvent = z
  .strictObject({
    key: z.string(),
    skipped: z.string().meta({ description: 'Cursor of the event that will not be sent' }),
    heldCount: z.int(),
  })
  .meta({ id: 'SkippedEvent' });
export type SkippedEvent = z.infer<typeof SkippedEvent>;

export const RetryKeys = z
  .strictObject({
    key: PartitionKey.optional().meta({ description: 'Absent: the parked keys of the sink, those first that wait longest' }),
    before: time
      .refine((given) => !given.startsWith('0000'), 'must lie in the years 1 to 9999')
      .optional()
      .meta({ description: 'Of the answer before: only keys that were parked by then, so that what is parked anew is not tried for ever' }),
  })
  .meta({ id: 'RetryKeys' });
export type RetryKeys = z.infer<typeof RetryKeys>;
export const RetriedKeys = z
  .strictObject({
    keyCount: z.int(),
    more: z.boolean().meta({ description: `True after ${RETRY_KEYS_MAX} keys: call again with \`before\` for the rest` }),
    before: time,
  })
  .meta({ id: 'RetriedKeys' });
export type RetriedKeys = z.infer<typeof RetriedKeys>;

export const Republish = z
  .strictObject({
    from: feedCursor.meta({ description: 'A cursor of the feed, behind which it begins, or `oldest`' }),
    to: feedCursor.default('now').meta({ description: 'The last event of the range, or `now`: all that the sink has got' }),
  })
  .meta({ id: 'Republish' });
export type Republish = z.input<typeof Republish>;
export const Republishing = z
  .strictObject({
    sink: z.string(),
    shards: z.int().meta({ description: 'Shards of which something is sent again' }),
    from: z.string(),
    to: z.string(),
  })
  .meta({ id: 'Republishing' });
export type Republishing = z.infer<typeof Republishing>;

export const EnableSink = z
  .strictObject({
    start: feedCursor.optional().meta({
      description: '`now`, `oldest` or a cursor: what lies before is not sent, what was held is forgotten. Absent: it goes on where it was',
    }),
  })
  .meta({ id: 'EnableSink' });
export type EnableSink = z.infer<typeof EnableSink>;
export const ChangedSink = z
  .strictObject({
    sink: z.string(),
    enabled: z.boolean(),
    changed: z.boolean(),
    more: z.boolean().meta({
      description: 'A part of what was held is forgotten; the sink is disabled until the rest is: make the same call again',
    }),
  })
  .meta({ id: 'ChangedSink' });
export type ChangedSink = z.infer<typeof ChangedSink>;

/** Each has its sentence in libs/outbox/src/relay/explanation.ts and a test that makes it. */
export const RELAY_CAUSES = [
  'disabled',
  'parked',
  'refused-will-retry',
  'sink-fails-at-key',
  'no-relay',
  'relay-lost',
  'sink-failing',
  'held-back-by-writer',
  'catching-up',
  'up-to-date',
] as const;
export type RelayCause = (typeof RELAY_CAUSES)[number];

export const RelayExplanation = z
  .strictObject({
    sink: z.string(),
    shard: z.int(),
    key: z.string().nullable(),
    cause: z.enum(RELAY_CAUSES),
    isMoving: z.boolean().meta({ description: 'False where somebody or something has to be looked at' }),
    sentence: z.string(),
    nextChangeInMs: z.int().nullable().meta({ description: 'When the relay acts by itself if nothing else happens; null: it does not' }),
    facts: JsonRecord,
  })
  .meta({ id: 'RelayExplanation' });
export type RelayExplanation = z.infer<typeof RelayExplanation>;
