import { parseInput, RenewSubmissions, type RenewedSubmission, type RenewSubmission, type SubmissionVerdict } from '@runplane/contracts';
import { backOffMs, isLive, isTx, type At, type Db, type Tx } from '@runplane/database';
import type { SubmissionKey } from '@runplane/sessions';
import { setTimeout as sleep } from 'node:timers/promises';
import { renewHeads, type HoldRow, type NamedClaim } from './submission-hold.sql';
import { inOrder, lostOrNone, requireOk, takingHeads, verdictOf } from './submission-verdicts';

/**
 * Prolongs claims from now on: each holder names session, operation and epoch. Called alone it runs on the connection of the renewals, and never waits
 * there for a head that somebody holds: it looks again, and tells of one that is held for long what remains, so that the others hear of theirs.
 *
 * Returns   a verdict for each, in the order of the call: `ok` with what remains, `claim_lost` (its time has come, or it was taken away: stop the
 *           work), `not_found`.
 * Locks     submission heads by session. One statement.   Errors: InvalidRequest; in a transaction LockTimeout.   Repeat: safe.   Keeps: OWN-1, OWN-2.
 */
export async function renewSubmissions(
  at: At,
  { tenantId, ...input }: { tenantId: string } & RenewSubmissions,
): Promise<SubmissionVerdict[]> {
  const { claims, leaseMs } = parseInput(RenewSubmissions, input);
  const found = isTx(at) ? await renewInTx(at, { tenantId, claims, leaseMs }) : await renewOnLane(at, { tenantId, claims, leaseMs });
  return inOrder(claims, found).map(([claim, row]) => verdictOf(claim, row, row.isHeld ? 'ok' : lostOrNone(row)));
}

interface Renewal {
  readonly tenantId: string;
  readonly claims: readonly NamedClaim[];
  readonly leaseMs: number;
}

function renewInTx(tx: Tx, renewal: Renewal): Promise<HoldRow[]> {
  takingHeads(tx, renewal.tenantId, renewal.claims);
  return renewHeads(tx, { ...renewal, wait: true });
}

/** How soon a renewal looks again at heads that somebody holds. */
const LOOK_AGAIN = { baseMs: 10, maxMs: 100 };

async function renewOnLane(db: Db, { claims, ...renewal }: Renewal): Promise<HoldRow[]> {
  const deadline = performance.now() + db.options.lockTimeoutMs;
  const done: HoldRow[] = [];
  for (let look = 1, left = claims; ; look += 1) {
    const found = await renewHeads(db.lane, { ...renewal, claims: left, wait: false });
    done.push(...found.filter(({ isBusy }) => !isBusy));
    const busy = new Set(found.filter(({ isBusy }) => isBusy).map(({ sessionId }) => sessionId));
    if (busy.size === 0) return done;
    if (performance.now() > deadline) return [...done, ...found.filter(({ isBusy }) => isBusy).map(asItStands)];
    left = left.filter(({ sessionId }) => busy.has(sessionId));
    await sleep(backOffMs(look, LOOK_AGAIN));
  }
}

/** Not prolonged: whoever has the head has not committed yet, and the claim is what it was before. */
function asItStands({ busyRemainingMs, ...row }: HoldRow): HoldRow {
  const isHeld = busyRemainingMs !== null && isLive(busyRemainingMs);
  return { ...row, busyRemainingMs, isHeld, claimRemainingMs: isHeld ? busyRemainingMs : null };
}

/** The same for one. Errors: SubmissionNotFound, ClaimLost, LockTimeout, InvalidRequest. */
export async function renewSubmission(
  at: At,
  { tenantId, sessionId, operationId, ...renewal }: SubmissionKey & RenewSubmission,
): Promise<RenewedSubmission> {
  const claim = { sessionId, operationId, epoch: renewal.epoch };
  const [verdict] = await renewSubmissions(at, { tenantId, claims: [claim], leaseMs: renewal.leaseMs });
  const { claimRemainingMs } = requireOk(verdict, claim);
  return { operationId, claimRemainingMs: claimRemainingMs ?? 0 };
}
