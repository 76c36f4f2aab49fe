import {
  AcceptSubmission,
  IdempotencyConflict,
  isDomainError,
  newId,
  normalizeJson,
  parseInput,
  REFERENCE_BYTES_MAX,
  requireIdentifier,
  RevisionConflict,
  SequenceConflict,
  SUBMISSION_PAYLOAD_BYTES_MAX,
  type JsonObject,
  type JsonValue,
  type SubmissionReceipt,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { appendEvents } from './append-events';
import { submissionHash } from './projections/submission';
import { storableSessionEvents } from './session-event-input';
import { findSubmission, type SubmissionRow } from './submission-rows.sql';
import type { SessionKey } from './session.sql';
import { toReceipt } from './submission-shapes';

export interface AcceptSubmissionInput extends SessionKey {
  /** The caller's own, unique in the session: by it a repeat is told from a new wish. */
  readonly operationId: string;
  readonly submission: AcceptSubmission;
}

/**
 * Puts something before a session: durably, in order, to be worked on by whoever claims it. The answer does not say that it was begun.
 *
 * Input     operationId; kind, payload (any JSON, up to 956 KiB), source (up to 64 KiB); expectedRevision: the last sequence of the log.
 * Returns   the receipt: `accepted`, or `duplicate` when this operation was accepted before with the same content, with its place in the feed.
 * Locks     session head.   Writes: session_events, outbox, submissions, submission_heads (made with the first unfinished one), session_heads.
 * Errors    SessionNotFound, SessionDeleted, IdempotencyConflict (the operation has another content), RevisionConflict, SubmissionQueueFull;
 *           InvalidRequest, InvalidJson, InvalidIdentifier, PayloadTooLarge.
 * Emits     submission/accepted.
 * Repeat    safe; of concurrent twins one accepts, the other finds it accepted.
 * Keeps     LOG-1, LOG-2, FIFO-1, IDEM-1.   Source: the original's submission/accepted, and its look-up before it that two could pass.
 */
export async function acceptSubmission(
  at: At,
  { tenantId, sessionId, operationId: given, submission }: AcceptSubmissionInput,
): Promise<SubmissionReceipt> {
  const key = { tenantId, sessionId };
  const operationId = requireIdentifier(given, 'the operation id');
  const wanted = parseSubmission(submission);
  const { kind, payload, source, expectedRevision } = wanted;
  const submissionId = newId('sub');
  const data: JsonObject = {
    operation_id: operationId,
    submission_id: submissionId,
    kind,
    payload,
    source,
    ...(expectedRevision === undefined ? {} : { expected_revision: expectedRevision }),
  };
  try {
    const { events } = await appendEvents(at, {
      ...key,
      events: storableSessionEvents([{ type: 'submission/accepted', data }]),
      epoch: null,
      sequence: expectedRevision === undefined ? undefined : expectedRevision + 1,
      appendId: undefined,
    });
    const [event] = events;
    if (event === undefined) throw new Error('an accepted submission has no event');
    return {
      operationId,
      submissionId,
      sessionId,
      status: 'accepted',
      state: 'pending',
      acceptedSequence: event.sequence,
      durableCursor: event.cursor,
    };
  } catch (error) {
    const known = isRepeat(error) ? await findSubmission(executorOf(at), key, operationId) : undefined;
    if (known !== undefined) return duplicateOf(known, wanted);
    throw revisionConflict(error, key, expectedRevision) ?? error;
  }
}

/** The log has moved, or the operation is known: what was accepted before is looked for once more, since a twin may just have done it. */
const isRepeat = (error: unknown): boolean =>
  isDomainError(error) &&
  (error.code === 'submission_exists' || error.code === 'sequence_conflict' || error.code === 'submission_queue_full');

interface WantedSubmission {
  readonly kind: string;
  readonly payload: JsonValue;
  readonly source: JsonObject;
  readonly expectedRevision?: number | undefined;
}

function parseSubmission(input: AcceptSubmission): WantedSubmission {
  const parsed = parseInput(AcceptSubmission, input);
  return {
    ...parsed,
    payload: normalizeJson(parsed.payload, { bytesMax: SUBMISSION_PAYLOAD_BYTES_MAX }).value,
    source: normalizeJson(parsed.source, { bytesMax: REFERENCE_BYTES_MAX }).value,
  };
}

function duplicateOf(known: SubmissionRow, { kind, payload, source }: WantedSubmission): SubmissionReceipt {
  if (known.contentHash === submissionHash({ kind, payload, source })) return toReceipt(known, 'duplicate');
  throw new IdempotencyConflict(`Operation ${known.operationId} of session ${known.sessionId} was accepted before with another content.`, {
    resource: 'submission',
    id: known.submissionId,
  });
}

function revisionConflict(error: unknown, { sessionId }: SessionKey, expectedRevision: number | undefined): RevisionConflict | undefined {
  if (expectedRevision === undefined || !(error instanceof SequenceConflict)) return undefined;
  const lastSequence = error.data.actualSequence - 1;
  return new RevisionConflict(
    `Session ${sessionId} is at ${lastSequence}, not at ${expectedRevision}: read what is new, and decide again.`,
    {
      sessionId,
      expectedRevision,
      lastSequence,
    },
  );
}
