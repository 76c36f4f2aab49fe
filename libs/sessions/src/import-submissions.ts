import {
  freeText,
  HASH_VERSION,
  IdempotencyConflict,
  IMPORTED_SUBMISSIONS_MAX,
  ImportedSubmission,
  normalizeJson,
  parseInput,
  REFERENCE_BYTES_MAX,
  SUBMISSION_ERROR_CODE_POINTS_MAX,
  SUBMISSION_PAYLOAD_BYTES_MAX,
  SubmissionExists,
  TURN_SUBMISSION_KINDS,
} from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { z } from 'zod';
import { submissionHash } from './projections/submission';
import { requireLockedHead } from './require-head';
import type { SessionKey } from './session.sql';
import { insertImportedSubmissions, listTakenSubmissions, lockQueueHead, type NewImportedSubmission } from './submission-rows.sql';

/** Each id once: the ids of one call are compared with those of the session, and not with each other. */
const Submissions = z
  .array(ImportedSubmission)
  .min(1)
  .max(IMPORTED_SUBMISSIONS_MAX)
  .refine((all) => [all.map((each) => each.operationId), all.map((each) => each.submissionId)].every(isDistinct), 'names an id twice');
const isDistinct = (ids: readonly string[]): boolean => new Set(ids).size === ids.length;

/**
 * Brings submissions of an older store that no event of the log stands behind ("recovery" rows of a migration): before everything that the session
 * has, in the order given, marked as such. A rebuild keeps them. Events may end them as any other.
 *
 * Input     up to 500. Ids must be new in the session.
 * Returns   how many were brought; those of a repeated call count as brought.
 * Locks     session head → submission head.   Writes: submissions, submission_heads, session_heads.   Emits: nothing.
 * Errors    SessionNotFound, SessionDeleted, SubmissionExists (also where the session has unfinished ones: nothing is put before what somebody
 *           may be working on), IdempotencyConflict, InvalidRequest, InvalidJson, PayloadTooLarge.
 * Repeat    safe: a call that was carried out changes nothing.   Keeps: FIFO-1.
 */
export async function importSubmissions(
  tx: Tx,
  { tenantId, sessionId, submissions: input }: SessionKey & { submissions: readonly ImportedSubmission[] },
): Promise<{ imported: number; replayed: boolean }> {
  const key = { tenantId, sessionId };
  const submissions = parseInput(Submissions, input).map(toNew);
  const head = await requireLockedHead(tx, key);
  const taken = await listTakenSubmissions(tx, key, submissions);
  if (taken.length > 0) {
    assertSame(key, taken, submissions);
    return { imported: submissions.length, replayed: true };
  }
  const queue = await lockQueueHead(tx, key);
  if (queue !== undefined || head.openSubmissions > 0) {
    throw new SubmissionExists(`Session ${sessionId} has unfinished submissions: nothing is put before them.`, {
      sessionId,
      operationId: queue?.operationId ?? '',
      submissionId: '',
    });
  }
  await insertImportedSubmissions(tx, key, { submissions, turnKinds: TURN_SUBMISSION_KINDS });
  return { imported: submissions.length, replayed: false };
}

function toNew(given: z.output<typeof ImportedSubmission>): NewImportedSubmission {
  const payload = normalizeJson(given.payload, { bytesMax: SUBMISSION_PAYLOAD_BYTES_MAX });
  const source = normalizeJson(given.source, { bytesMax: REFERENCE_BYTES_MAX });
  return {
    operationId: given.operationId,
    submissionId: given.submissionId,
    kind: given.kind,
    state: given.state,
    payloadText: payload.text,
    sourceText: source.text,
    contentHash: submissionHash({ kind: given.kind, payload: payload.value, source: source.value }),
    hashVersion: HASH_VERSION,
    expectedRevision: given.expectedRevision ?? null,
    attempts: given.attempts,
    lastError: given.lastError == null ? null : freeText(given.lastError, SUBMISSION_ERROR_CODE_POINTS_MAX),
    createdAt: given.createdAt ?? null,
  };
}

type Taken = Awaited<ReturnType<typeof listTakenSubmissions>>;

/** The same call again, and nothing but it. */
function assertSame({ sessionId }: SessionKey, taken: Taken, wanted: readonly NewImportedSubmission[]): void {
  const known = new Map(taken.map((each) => [each.operationId, each]));
  for (const { operationId, submissionId, contentHash } of wanted) {
    const before = known.get(operationId);
    if (before?.submissionId === submissionId && before.contentHash === contentHash) continue;
    throw new IdempotencyConflict(`Session ${sessionId} has some of these submissions, or ids of them, in another form.`, {
      resource: 'submission',
      id: submissionId,
    });
  }
}
