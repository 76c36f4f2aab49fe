import {
  EVENT_LIST_ROWS_DEFAULT,
  EVENT_LIST_ROWS_MAX,
  FeedFilter,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  ListEvents,
  ListSessionEvents,
  RegisterRunner,
  SinkName,
  WAIT_SECONDS_MAX,
  type DecidingActor,
} from '@runplane/contracts';
import { z } from 'zod';
import type { Credential } from '../access/api-key';

// Parts of requests and answers that only HTTP has. Resources and inputs themselves are libs/contracts'.

export const RunParams = z.strictObject({ runId: identifier });
export const CommandParams = z.strictObject({ commandId: identifier });
export const RunnerParams = z.strictObject({ runnerId: identifier });
export const RunJobParams = z.strictObject({ runId: identifier, jobId: identifier });
export const SinkParams = z.strictObject({ sink: SinkName });
export const BackendParams = z.strictObject({ profile: identifier });
export const RunCommandParams = z.strictObject({ runId: identifier, commandId: identifier });
export const TaskParams = z.strictObject({ taskId: identifier });
export const TaskAttemptParams = z.strictObject({ taskId: identifier, attemptId: identifier });
export const SessionParams = z.strictObject({ sessionId: identifier });
export const SubmissionParams = z.strictObject({ sessionId: identifier, operationId: identifier });
export const ApprovalParams = z.strictObject({ sessionId: identifier, approvalId: identifier });
export const InputRequestParams = z.strictObject({ sessionId: identifier, requestId: identifier });
export const RunApprovalParams = z.strictObject({ runId: identifier, approvalId: identifier });
export const RunInputParams = z.strictObject({ runId: identifier, requestId: identifier });

/** Whole numbers in a query are decimal digits, nothing else that Number() takes. */
export function queryInt(min: number, max: number) {
  return z.preprocess(
    (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.int().min(min).max(max),
  );
}

const typeList = z.preprocess((value) => wordsOf(value), FeedFilter.shape.types);

/** `a,b`, the parameter repeated, or both. */
function wordsOf(value: unknown): unknown {
  const values = Array.isArray(value) ? (value as unknown[]) : [value];
  return value === undefined ? undefined : values.flatMap((each) => (typeof each === 'string' ? each.split(',') : [each]));
}

/** The filter of the feed, as a query has it. */
export const feedFilter = {
  stream: FeedFilter.shape.stream,
  type: typeList.meta({ description: 'Types with commas, or the parameter repeated' }),
  sessionId: FeedFilter.shape.sessionId,
  runId: FeedFilter.shape.runId,
};
export function toFeedFilter({ type, ...filter }: Omit<FeedFilter, 'types'> & { type?: FeedFilter['types'] }): FeedFilter {
  return { ...filter, types: type };
}
export const feedStart = z
  .string()
  .max(2_000)
  .meta({ description: 'A cursor of an earlier page, `start` (the oldest event that is left), or `now`' });
export const FeedConsumerParams = z.strictObject({ name: identifier });

export const queryBool = z.preprocess((value) => (value === 'true' ? true : value === 'false' ? false : value), z.boolean()).default(false);

export function queryList<const Words extends readonly [string, ...string[]]>(words: Words) {
  return z.preprocess((value) => wordsOf(value), z.array(z.enum(words)).max(words.length));
}

export const wait = queryInt(0, WAIT_SECONDS_MAX).default(0).meta({ description: 'Seconds to wait for news before an answer without any' });

export const readerId = identifier.optional().meta({ description: 'Whose unread marks to show' });

export const queueName = identifier.optional().meta({ description: 'Absent: all queues' });

export const afterSeq = queryInt(0, Number.MAX_SAFE_INTEGER).default(0).meta({ description: 'The last sequence that the caller has' });

/** As pages of events and logs tell it. */
export const incarnation = identifier
  .optional()
  .meta({ description: 'Of the life of the session’s id that the place is in; of another one: 410 `other_incarnation`' });

/** The same in a session's log, which begins with 0. */
export const afterSequence = z
  .preprocess(
    (value) => (value === '-1' ? -1 : typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.int().min(-1),
  )
  .optional()
  .meta({ description: 'The last sequence that the caller has; -1: none' });

export const eventLimit = queryInt(1, EVENT_LIST_ROWS_MAX).default(EVENT_LIST_ROWS_DEFAULT);

export const PendingQuery = z.strictObject({
  sessionId: identifier.optional().meta({ description: 'Of this session alone' }),
  cursor: z.string().optional().meta({ description: 'Of the page before; it belongs to the filter it was made with' }),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

/** A decision with whoever decides: as the caller names them, else the key itself. */
export function deciding<Decision extends { actor?: DecidingActor | undefined }>(decision: Decision, { keyId }: Pick<Credential, 'keyId'>) {
  return { ...decision, actor: decision.actor ?? ({ type: 'service', id: keyId } as const) };
}

export const EventPageQuery = ListEvents.extend({ limit: eventLimit });
export const SessionEventPageQuery = z.strictObject({ ...ListSessionEvents.shape, limit: eventLimit });

export const CursorPageQuery = z.strictObject({
  cursor: z.string().max(2_000).optional(),
  limit: queryInt(1, LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT),
});

/** Header values are bytes, which Node reads as Latin-1; a client sends the UTF-8 of an identifier. */
const utf8Header = z.preprocess((value) => (typeof value === 'string' ? Buffer.from(value, 'latin1').toString('utf8') : value), identifier);

const IDEMPOTENCY_KEY = 'Makes a repeated call return what the first one made';
export const IdempotencyHeaders = z.object({ 'idempotency-key': utf8Header.optional().meta({ description: IDEMPOTENCY_KEY }) });
/** Of a call that makes something, and may be repeated with its key: 201, then 200. */
export const keyed = <Answer extends z.ZodType>(answer: Answer) => ({
  headers: IdempotencyHeaders,
  response: { 200: answer, 201: answer },
});

/** With an id of the caller's own a repeat registers the same runner. */
export const NewRunner = RegisterRunner.extend({ runnerId: identifier.optional() }).meta({ id: 'NewRunner' });

/** A resumed stream says with it where it stood. */
export const LastEventIdHeaders = z.object({
  'last-event-id': z.string().max(800).optional().meta({ description: 'The id of the last frame; wins over `after`' }),
});

/** The same of the feed, whose ids are cursors. */
export const LastCursorHeaders = z.object({
  'last-event-id': z.string().max(2_000).optional().meta({ description: 'The id of the last frame; wins over `after`' }),
});
