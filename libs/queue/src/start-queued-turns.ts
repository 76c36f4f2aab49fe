import {
  CLAIM_LEASE_MS_MIN,
  isDomainError,
  parseInput,
  QUEUED_TURN_KIND,
  QueuedTurnPayload,
  redactError,
  SessionBusy,
  ShuttingDown,
  StorageEvicting,
  type ClaimedSubmission,
  type QueuedTurnPayload as QueuedTurnInput,
} from '@runplane/contracts';
import { backOffMs, inTransaction, type Db, type Tx } from '@runplane/database';
import { admitTurn } from '@runplane/runs';
import { holdBackQueuedTurn, markSubmissionEnded } from '@runplane/sessions';
import { claimSubmissions } from './claim-submissions';
import { setTimeout as sleep } from 'node:timers/promises';
import { eachBounded } from './each-bounded';
import { releaseSubmission, settleSubmissions } from './settle-submissions';
import { decideStartFailure, type StartFailure } from './start-decisions';
import { releaseHeads } from './submission-hold.sql';

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
  /** Something went wrong with them; the try counts, and comes again after a back-off. */
  readonly failed: number;
  /** The database, or this process, could not: they come again, and the try does not count. */
  readonly putOff: number;
}

export interface StartTurns {
  readonly owner: string;
  readonly limit?: number | undefined;
  readonly onError?: ((error: unknown) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Starts turns that wait in the queues of their sessions: claims submissions of the kind `turn` at the head of a queue, then, in a second transaction each,
 * admits the turn under the submission's operation id as its key and completes the submission with the run's id. Whoever dies between the two has
 * admitted nothing; what was admitted, its key finds.
 *
 * Input     owner: this start of the process; limit: of one pass; signal: the process stops, and does not wait for a database that is away.
 * Returns   what became of the claimed ones.
 * Locks     submission heads, SKIP LOCKED; then for each what admitTurn locks → session head → submission head, where the claim's epoch is checked.
 * Emits     what admitTurn emits; submission/completed with `run_id`, or submission/failed with the refusal's code and message.
 * Repeat    safe, also by several processes.   Keeps: FIFO-1, TURN-1, IDEM-1, OWN-1 to OWN-3, LOG-2.
 */
export async function startQueuedTurnsOnce(db: Db, { owner, limit = TURNS_MAX, onError, signal }: StartTurns): Promise<StartedTurns> {
  const held = { deadline: performance.now() + LEASE_MS, signal };
  const claimed = await claimSubmissions(db, { kind: QUEUED_TURN_KIND, owner, limit, leaseMs: LEASE_MS });
  const ends = await eachBounded(claimed, AT_A_TIME, (submission) => startOrSettle(db, submission, { held, onError }));
  const count = (end: StartEnd): number => ends.filter((each) => each === end).length;
  return {
    started: count('started'),
    heldBack: count('held-back'),
    refused: count('refused'),
    failed: count('failed'),
    putOff: count('put-off'),
  };
}

type StartEnd = 'started' | 'held-back' | StartFailure;

/** How long the claims of a pass last, by this process's clock, and whether it still has the time to give them back. */
interface Held {
  readonly deadline: number;
  readonly signal: AbortSignal | undefined;
}

async function startOrSettle(
  db: Db,
  claimed: ClaimedSubmission,
  { held, onError }: { held: Held; onError: StartTurns['onError'] },
): Promise<StartEnd> {
  try {
    return await inTransaction(db, (tx) => startQueuedTurn(tx, claimed));
  } catch (error) {
    const end = decideStartFailure(error);
    if (end === 'failed' || end === 'put-off') onError?.(error);
    await settleUnstarted(db, claimed, { end, error, held });
    return end;
  }
}

async function settleUnstarted(
  db: Db,
  claimed: ClaimedSubmission,
  { end, error, held }: { end: StartFailure; error: unknown; held: Held },
): Promise<void> {
  const { tenantId, sessionId, operationId, epoch } = claimed;
  const settlement = { sessionId, operationId, epoch };
  switch (end) {
    case 'gone':
      return;
    case 'put-off':
      return putOff(db, claimed, held);
    case 'refused':
    case 'failed': {
      const reason = isDomainError(error) ? `${error.code}: ${redactError(error)}` : redactError(error);
      const outcome = end === 'refused' ? 'failed' : 'released';
      await settleSubmissions(db, { tenantId, settlements: [{ ...settlement, outcome, error: reason }] });
    }
  }
}

/** One that was put off comes again so soon: it has no back-off that doubles, since nothing is counted. */
const PUT_OFF_MS = 5_000;
/** How soon it is tried again to give one back. */
const GIVE_BACK_AGAIN = { baseMs: 50, maxMs: 1_000 };

/**
 * Gives a turn back without the try, on the connection of the renewals, which no other call of this process can take; again and again while the
 * database is away, as long as the claim lasts; once where the process stops. One that does not come to say so has its try counted, as one that has died.
 */
async function putOff(db: Db, { tenantId, sessionId, operationId, epoch }: ClaimedSubmission, { deadline, signal }: Held): Promise<void> {
  const releases = [{ sessionId, operationId, epoch, error: null, delayMs: PUT_OFF_MS }];
  for (let look = 1; ; look += 1) {
    try {
      const [row] = await releaseHeads(db.lane, { tenantId, releases, wait: false });
      if (row?.isBusy !== true) return;
    } catch (error) {
      if (decideStartFailure(error) !== 'put-off' || error instanceof ShuttingDown) throw error;
    }
    if (performance.now() >= deadline || signal?.aborted === true) return;
    await sleep(backOffMs(look, GIVE_BACK_AGAIN), undefined, { signal }).catch(() => undefined);
  }
}

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
