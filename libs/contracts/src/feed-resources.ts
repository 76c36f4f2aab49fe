import { z } from 'zod';
import { identifier } from './identifiers';
import { FEED_TYPES_MAX } from './limits';
import { FeedEvent } from './resources';
import { JsonRecord } from './wire-json';

// The feed beyond its pages: what a reader asks for, readers that the store remembers, and how the feed is doing.

const time = z.iso.datetime();
const cursor = z.string().min(1).max(2_000);
const start = cursor.meta({ description: 'A cursor, `start` (the oldest event that is left), or `now`' });

/** Which events a reader wants. The cursor moves over the others. */
export const FeedFilter = z.strictObject({
  stream: FeedEvent.shape.stream.optional().meta({ description: 'Events of runs, or of logs of sessions' }),
  types: z.array(identifier).min(1).max(FEED_TYPES_MAX).optional().meta({ description: 'Events of one of these types' }),
  sessionId: identifier.optional().meta({ description: 'Events of this session’s log and of its runs' }),
  runId: identifier.optional().meta({ description: 'Events of this run, also those in its session’s log' }),
});
export type FeedFilter = z.infer<typeof FeedFilter>;

export const FeedLag = z
  .object({
    events: z.int().meta({ description: 'Behind the cursor and below the horizon, of the consumer’s tenant' }),
    isExact: z.boolean().meta({ description: 'False where there are more than were counted' }),
    ms: z.int().meta({ description: 'The age of the oldest of them; 0: none' }),
  })
  .meta({ id: 'FeedLag' });
export type FeedLag = z.infer<typeof FeedLag>;

export const FeedConsumer = z
  .object({
    name: z.string(),
    tenantId: z.string().nullable().meta({ description: 'null: the operator’s own, which reads the events of all tenants' }),
    cursor: z.string().meta({ description: 'Where it goes on: everything up to here has been worked on' }),
    lag: FeedLag,
    registeredAt: time,
    seenAt: time.meta({ description: 'Of its last commit, also of one that moves nothing' }),
    seenForMs: z.int().meta({ description: 'Since then' }),
    movedAt: time.meta({ description: 'When its cursor moved last' }),
    holdsFloor: z.boolean().meta({ description: 'False where it has been silent for so long that retention waits for it no longer' }),
    isExpired: z.boolean().meta({ description: 'Its cursor lies below what is left: events that it has not read are gone. Rewind it' }),
  })
  .meta({ id: 'FeedConsumer' });
export type FeedConsumer = z.infer<typeof FeedConsumer>;

export const FeedConsumerList = z.object({ consumers: z.array(FeedConsumer) }).meta({ id: 'FeedConsumerList' });
export type FeedConsumerList = z.infer<typeof FeedConsumerList>;

export const RegisterFeedConsumer = z.strictObject({ after: start.default('start') }).meta({ id: 'RegisterFeedConsumer' });
export type RegisterFeedConsumer = z.input<typeof RegisterFeedConsumer>;

export const RegisteredFeedConsumer = z
  .object({ consumer: FeedConsumer, created: z.boolean().meta({ description: 'False: it was there, and is as it was' }) })
  .meta({ id: 'RegisteredFeedConsumer' });
export type RegisteredFeedConsumer = z.infer<typeof RegisteredFeedConsumer>;

/** A compare-and-set: from where the caller began to where it has come. The same place twice says that it is alive. */
export const CommitFeedConsumer = z.strictObject({ from: cursor, to: cursor }).meta({ id: 'CommitFeedConsumer' });
export type CommitFeedConsumer = z.infer<typeof CommitFeedConsumer>;

export const CommittedFeedConsumer = z
  .object({ cursor: z.string(), replayed: z.boolean().meta({ description: 'It stood at `to` already' }) })
  .meta({ id: 'CommittedFeedConsumer' });
export type CommittedFeedConsumer = z.infer<typeof CommittedFeedConsumer>;

export const RewindFeedConsumer = z.strictObject({ to: start }).meta({ id: 'RewindFeedConsumer' });
export type RewindFeedConsumer = z.infer<typeof RewindFeedConsumer>;

export const DeletedFeedConsumer = z
  .object({ name: z.string(), cursor: z.string().meta({ description: 'Where it stood' }) })
  .meta({ id: 'DeletedFeedConsumer' });
export type DeletedFeedConsumer = z.infer<typeof DeletedFeedConsumer>;

/** What keeps the horizon where it is: the oldest transaction of the PostgreSQL server that may still write. */
export const FeedHoldup = z
  .object({
    kind: z.enum(['transaction', 'prepared-transaction', 'unknown']),
    forMs: z.int().meta({ description: 'How long it has been open' }),
    pid: z.int().nullable(),
    application: z.string().nullable(),
    database: z.string().nullable(),
    state: z.string().nullable().meta({ description: '`active`, `idle in transaction` …; of a prepared transaction its name' }),
    waitsFor: z.string().nullable(),
    query: z.string().nullable().meta({ description: 'Its last statement, redacted and cut' }),
  })
  .meta({ id: 'FeedHoldup' });
export type FeedHoldup = z.infer<typeof FeedHoldup>;

export const FeedStatus = z
  .object({
    head: z.string().meta({ description: 'The last place that readers can see' }),
    oldestCursor: z.string().meta({ description: 'The floor: what lies at or below it is gone' }),
    held: z
      .object({
        events: z.int(),
        isExact: z.boolean(),
        oldestMs: z.int(),
      })
      .meta({
        description:
          'Events of the caller’s tenant (of all, for an operator) that are committed, and that no reader sees before the horizon has passed them',
      }),
    heldBackMs: z.int().meta({ description: 'How long the oldest transaction that may still write has been open; 0: there is none' }),
    heldBackBy: FeedHoldup.nullable().meta({ description: 'Told to operators alone' }),
    rebaseNeeded: z
      .boolean()
      .meta({ description: 'The store stands in another cluster than the one that it remembers: runplane feed rebase' }),
    rows: z.int().nullable().meta({ description: 'Of the outbox, as PostgreSQL estimates; told to operators alone' }),
    bytes: z.int().nullable(),
    floorHeldBy: z
      .string()
      .nullable()
      .meta({ description: 'Who stands lowest of those that retention waits for; told to operators alone' }),
    consumers: z.array(FeedConsumer),
  })
  .meta({ id: 'FeedStatus' });
export type FeedStatus = z.infer<typeof FeedStatus>;

/** Each has its sentence in libs/outbox/src/feed-explanation.ts and a test that makes it. */
export const FEED_CAUSES = [
  'rebase-needed',
  'held-back',
  'consumer-expired',
  'consumer-silent',
  'consumer-behind',
  'consumer-up-to-date',
  'flowing',
] as const;
export type FeedCause = (typeof FEED_CAUSES)[number];

export const FeedExplanation = z
  .strictObject({
    consumer: z.string().nullable(),
    cause: z.enum(FEED_CAUSES),
    isMoving: z.boolean().meta({ description: 'False where somebody or something has to be looked at' }),
    sentence: z.string(),
    facts: JsonRecord,
  })
  .meta({ id: 'FeedExplanation' });
export type FeedExplanation = z.infer<typeof FeedExplanation>;
