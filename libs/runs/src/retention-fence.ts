import {
  CapacityReached,
  CommandNotOfRun,
  freeText,
  identifier,
  isFinalCommand,
  isFinalRun,
  newId,
  parseInput,
  REASON_CODE_POINTS_MAX,
  RESERVATION_LEASE_MS_DEFAULT,
  RESERVATION_LEASE_MS_MAX,
  RESERVATION_LEASE_MS_MIN,
  RunClaimed,
  type Command,
  type JsonObject,
  type Run,
} from '@runplane/contracts';
import { inTransaction, isLive, remainingSince, sql, type Db, type Tx } from '@runplane/database';
import { z } from 'zod';
import { closeRun } from './close-run';
import { lockCommand, lockOpenCommands, toCommand, type CommandRow } from './command.sql';
import { lockOpenIntents } from './dispatch-intent.sql';
import { requireLockedRun, requireRun } from './require';
import { listEndedReservations, type Reservation } from './reservation.sql';
import { confirmReservation, releaseReservation, reserve } from './reservations';
import { findRetentionFacts, type RetentionFacts } from './retention-fence.sql';
import { appendServerEvents, phase } from './run-event.sql';
import { deleteRunLease, lockRunLease, type RunLease } from './run-lease.sql';
import { lockRun, type RunKey, type RunRow } from './run.sql';
import { keepHeld } from './runner-slots';
import { claimLostEvent } from './server-events';

// The retention fence: before something outside is removed for good (a Job, a workspace), the store decides what becomes of its run, and holds others
// off while the outside is asked. Reserve → act → confirm: the decision is a transaction of its own and stands whatever becomes of the act; an act that
// fails, or dies with its process, leaves a reservation that ends, and resumeRetentionFences brings it to its end.

const Fence = z.strictObject({
  commandId: identifier,
  /** End the run, if it is open, as failed: pending, or its runner's lease has ended. */
  terminalizeStalePending: z.boolean().default(false),
  /** Take the claim away, if the run or the command has ended and nothing else of the run is open. */
  releaseRunnerClaim: z.boolean().default(false),
  reason: z
    .string()
    .min(1)
    .max(REASON_CODE_POINTS_MAX * 4),
  leaseMs: z.int().min(RESERVATION_LEASE_MS_MIN).max(RESERVATION_LEASE_MS_MAX).default(RESERVATION_LEASE_MS_DEFAULT),
});
export type RetentionFence = z.input<typeof Fence>;

/** How everything stood before the fence changed it, and what it has changed. */
export interface FencedRun extends RetentionFacts {
  readonly run: Run;
  readonly command: Command;
  readonly terminalized: boolean;
  readonly released: boolean;
  readonly resumed: boolean;
}

/** Removes something outside; called with no connection held, and again where it was not confirmed: it must find what it has done. */
export type RetentionAct<T> = (fenced: FencedRun, context: { readonly signal: AbortSignal }) => Promise<T>;

/**
 * Decides about a run, removes something of it outside, and confirms.
 *
 * Input     commandId: of the run; terminalizeStalePending, releaseRunnerClaim: see above; reason: 1–500 characters.
 * Returns   what `act` returns.
 * Locks     run → run lease → command → intents → session (closeRun) → reservation, none of them while `act` works.
 * Errors    RunNotFound, CommandNotOfRun, RunClaimed (to be ended, but its runner lives), CapacityReached (another retention works on the run),
 *           ReservationLost (act was called, its signal said so), InvalidRequest, what `act` throws.
 * Emits     retention-terminalized and the run's ending, with `retentionFence: true`; retention-released, claim-lost.
 * Repeat    safe if act is.   Keeps: END-1, OWN-1, OWN-3.   Source: the original's withRunnerRetentionFence.
 */
export async function withRunnerRetentionFence<T>(
  db: Db,
  { tenantId, runId, ...input }: RunKey & RetentionFence,
  act: RetentionAct<T>,
): Promise<T> {
  const fence = parseInput(Fence, input);
  const askedAt = performance.now();
  const taken = await inTransaction(db, (tx) => fenceRun(tx, { tenantId, runId }, fence));
  return actUnderHold(db, { ...taken, askedAt, leaseMs: fence.leaseMs }, act);
}

/**
 * Brings retention fences to their end whose act failed, or died with its process: one bounded pass, one after another. `act` is asked with how the
 * run stands now.
 */
export async function resumeRetentionFences(
  db: Db,
  act: RetentionAct<unknown>,
  { limit = 100 }: { limit?: number | undefined } = {},
): Promise<{ changed: number; failed: number }> {
  const ended = await listEndedReservations(db.sql, { kind: 'retention', act: FENCE_ACT, limit });
  const passed = { changed: 0, failed: 0 };
  for (const { tenantId, key: runId, data, ...left } of ended) {
    const { commandId } = data;
    if (tenantId === null || typeof commandId !== 'string') continue;
    try {
      const askedAt = performance.now();
      const taken = await inTransaction(db, (tx) => resumeFence(tx, { tenantId, runId }, { commandId, data }));
      if (taken === undefined)
        await releaseReservation(db, { ...left, tenantId, key: runId, slot: 1 }); // nothing is left to remove
      else await actUnderHold(db, { ...taken, askedAt, leaseMs: RESERVATION_LEASE_MS_DEFAULT }, act);
      passed.changed += 1;
    } catch (error) {
      passed.failed += 1;
      db.options.onError(error instanceof Error ? error : new Error(String(error)), `the retention fence of run ${runId}`);
    }
  }
  return passed;
}

/** In a reservation's data: whose it is. */
const FENCE_ACT = 'fence';

interface Taken {
  readonly fenced: FencedRun;
  readonly hold: Reservation;
  readonly remainingMs: number;
}

async function actUnderHold<T>(
  db: Db,
  { fenced, hold, remainingMs, askedAt, leaseMs }: Taken & { askedAt: number; leaseMs: number },
  act: RetentionAct<T>,
): Promise<T> {
  const keeper = keepHeld(db, hold, { leaseMs, remainingMs: remainingSince(remainingMs, askedAt) });
  try {
    const done = await act(fenced, { signal: keeper.lost });
    await keeper.stop();
    await inTransaction(db, (tx) => confirmReservation(tx, hold));
    return done;
  } finally {
    await keeper.stop(); // of an act that failed the reservation stays: it ends, and is resumed
  }
}

async function fenceRun(tx: Tx, key: RunKey, fence: z.output<typeof Fence>): Promise<Taken> {
  const run = await requireLockedRun(tx, key);
  const lease = await lockRunLease(tx, key);
  const command = await lockCommand(tx, key, fence.commandId);
  if (command === undefined)
    throw new CommandNotOfRun(`Command ${fence.commandId} does not belong to run ${key.runId}.`, { commandId: fence.commandId });
  const before = { ...(await findRetentionFacts(tx, key)), run: await requireRun(tx, key), command: toCommand(command), resumed: false };
  const terminalized = fence.terminalizeStalePending && !isFinalRun(run.status);
  if (terminalized) await terminalize(tx, run, lease, fence);
  const released = !terminalized && fence.releaseRunnerClaim && (await release(tx, run, command));
  const data = { act: FENCE_ACT, commandId: fence.commandId, reason: freeText(fence.reason) };
  return { fenced: { ...before, terminalized, released }, ...(await hold(tx, key, { leaseMs: fence.leaseMs, data })) };
}

async function resumeFence(tx: Tx, key: RunKey, { commandId, data }: { commandId: string; data: JsonObject }): Promise<Taken | undefined> {
  if ((await lockRun(tx, key)) === undefined) return undefined;
  const command = await lockCommand(tx, key, commandId);
  if (command === undefined) return undefined;
  const fenced = {
    ...(await findRetentionFacts(tx, key)),
    run: await requireRun(tx, key),
    command: toCommand(command),
    terminalized: false,
    released: false,
    resumed: true,
  };
  return { fenced, ...(await hold(tx, key, { leaseMs: RESERVATION_LEASE_MS_DEFAULT, data })) };
}

async function hold(
  tx: Tx,
  { tenantId, runId }: RunKey,
  { leaseMs, data }: { leaseMs: number; data: JsonObject },
): Promise<{ hold: Reservation; remainingMs: number }> {
  const outcome = await reserve(tx, { kind: 'retention', tenantId, key: runId, owner: newId('fence'), leaseMs, data });
  if (outcome.kind === 'reserved') return { hold: outcome.reservation, remainingMs: outcome.remainingMs };
  const { live, reserved, retryInMs } = outcome;
  throw new CapacityReached(`Another retention works on run ${runId}.`, { key: runId, limit: 1, live, reserved, retryInMs });
}

/** A run whose runner lives is not stale. */
async function terminalize(tx: Tx, run: RunRow, lease: RunLease | undefined, { commandId, reason }: z.output<typeof Fence>): Promise<void> {
  if (lease !== undefined && isLive(lease.expiresInMs)) {
    const facts = { runId: run.id, claimedBy: lease.runnerId, leaseRemainingMs: lease.expiresInMs };
    throw new RunClaimed(`Run ${run.id} is not stale: its runner renews its lease.`, facts);
  }
  await closeRun(tx, run, {
    status: 'failed',
    failureKind: 'infra-failed',
    failureMessage: reason,
    reason: 'retention-fence',
    facts: { retentionFence: true },
    before: [phase('retention-terminalized', { commandId, reason: freeText(reason), retentionFence: true })],
  });
}

/** An ended run has no claim any more (END-1); of an open one it goes when the command has ended and nothing else is open. The epoch fences the holder. */
async function release(tx: Tx, run: RunRow, command: CommandRow): Promise<boolean> {
  const key = { tenantId: run.tenantId, runId: run.id };
  if (run.status !== 'claimed' || !isFinalCommand(command.state)) return false;
  if ((await lockOpenCommands(tx, key)).length > 0 || (await lockOpenIntents(tx, key)).isAnyOpen) return false;
  await deleteRunLease(tx, key);
  await appendServerEvents(
    tx,
    key,
    [
      phase('retention-released', { commandId: command.id, retentionFence: true }),
      claimLostEvent({ runnerId: run.claimedBy, epoch: run.claimEpoch, reason: 'retention-fence' }),
    ],
    sql`, status = 'pending', claimed_by = NULL, claim_epoch = claim_epoch + 1, last_producer_seq = 0, launched_at = NULL, updated_at = runplane.app_now()`,
  );
  return true;
}
