import {
  CLAIM_LEASE_MS_MIN,
  isDomainError,
  parseInput,
  QUEUED_TURN_KIND,
  QueuedTurnPayload,
  redactError,
  SessionBusy,
  StorageEvicting,
  type ClaimedSubmission,
  type QueuedTurnPayload as QueuedTurnInput,
} from '@runplane/contracts';
import { inTransaction, type Db, type Tx } from '@runplane/database';
import { admitTurn } from '@runplane/runs';
import { holdBackQueuedTurn, markSubmissionEnded } from '@runplane/sessions';
import { claimSubmissions } from './claim-submissions';
import { eachBounded } from './each-bounded';
import { releaseSubmission, settleSubmissions } from './settle-submissions';

/** Of one pass: what can be admitted well within a claim. */
const TURNS_MAX = 10;
const AT_A_TIME = 4;
/** An admission is one transaction; a process that dies in its middle leaves the turn to the next one for no longer than this. */
const LEASE_MS = 2 * CLAIM_LEASE_MS_MIN;

export interface StartedTurns {
  readonly started: number;
  /** Their sessions were busy: they are looked at again when the open turn ends. The try does not count. */
  readonly heldBack: number;
  /** They can never be admitted, and have failed with the reason. */
  readonly refused: number;
  /** Something went wrong on the way; the try counts, and comes again after a back-off. */
  readonly failed: number;
}

/**
 * Starts turns that wait in the queues of their sessions: claims submissions of the kind `turn` at the head of a queue, then, in a second transaction each,
 * admits the turn under the submission's operation id as its key and completes the submission with the run's id. Whoever dies between the two has
 * admitted nothing; what was admitted, its key finds.
 *
 * Input     owner: this start of the process; limit: of one pass.
 * Returns   what became of the claimed ones.
 * Locks     submission heads, SKIP LOCKED; then for each what admitTurn locks → session head → submission head, where the claim's epoch is checked.
 * Emits     what admitTurn emits; submission/completed with `run_id`, or submission/failed with the refusal's code and message.
 * Repeat    safe, also by several processes.   Keeps: FIFO-1, TURN-1, IDEM-1, OWN-1 to OWN-3, LOG-2.
 */
export async function startQueuedTurnsOnce(
  db: Db,
  { owner, limit = TURNS_MAX, onError }: { owner: string; limit?: number | undefined; onError?: ((error: unknown) => void) | undefined },
): Promise<StartedTurns> {
  const claimed = await claimSubmissions(db, { kind: QUEUED_TURN_KIND, owner, limit, leaseMs: LEASE_MS });
  const ends = await eachBounded(claimed, AT_A_TIME, (submission) => startOrSettle(db, submission, onError));
  const count = (end: StartEnd): number => ends.filter((each) => each === end).length;
  return { started: count('started'), heldBack: count('held-back'), refused: count('refused'), failed: count('failed') };
}

/** `gone`: the claim was over, or the session; nothing was written. */
type StartEnd = 'started' | 'held-back' | 'refused' | 'failed' | 'gone';

async function startOrSettle(db: Db, claimed: ClaimedSubmission, onError: ((error: unknown) => void) | undefined): Promise<StartEnd> {
  try {
    return await inTransaction(db, (tx) => startQueuedTurn(tx, claimed));
  } catch (error) {
    if (isDomainError(error) && GONE.has(error.code)) return 'gone';
    const { tenantId, sessionId, operationId, epoch } = claimed;
    const isForGood = isDomainError(error) && !error.retryable;
    const outcome = isForGood ? 'failed' : 'released';
    const reason = isForGood ? `${error.code}: ${error.message}` : redactError(error);
    if (!isForGood) onError?.(error);
    await settleSubmissions(db, { tenantId, settlements: [{ sessionId, operationId, epoch, outcome, error: reason }] });
    return isForGood ? 'refused' : 'failed';
  }
}

const GONE: ReadonlySet<string> = new Set([
  'claim_lost',
  'submission_closed',
  'submission_not_found',
  'session_deleted',
  'session_not_found',
]);

async function startQueuedTurn(tx: Tx, { tenantId, sessionId, operationId, epoch, payload }: ClaimedSubmission): Promise<StartEnd> {
  const key = { tenantId, sessionId };
  const turn = parseInput(QueuedTurnPayload, payload as QueuedTurnInput);
  try {
    const { run, disposition } = await admitTurn(tx, { ...key, turn, idempotencyKey: operationId });
    await markSubmissionEnded(tx, { ...key, operationId, end: { state: 'completed', claimEpoch: epoch }, runId: run.id });
    // The session is busy with this turn from now on; one that was admitted before may have ended already.
    if (disposition === 'created') await holdBackQueuedTurn(tx, key);
    return 'started';
  } catch (error) {
    if (!(error instanceof SessionBusy || error instanceof StorageEvicting)) throw error;
    // Nothing was admitted, and the session is locked: the end of its turn comes after this.
    await releaseSubmission(tx, { ...key, operationId, epoch });
    await holdBackQueuedTurn(tx, key, error instanceof SessionBusy ? error.data.staleInMs : error.data.leaseRemainingMs);
    return 'held-back';
  }
}
