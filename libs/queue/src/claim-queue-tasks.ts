import { ClaimQueueTasks, parseInput, type ClaimedQueueTask } from '@runplane/contracts';
import { executorOf, isTx, takingLock, type At, type Db } from '@runplane/database';
import { claimCoalescer, placesOf, SHARED_CLAIM_MAX, type ScopedClaim } from './claim-coalescer';
import { claimOfLane, claimOfOpenLane, claimOfQueue, type ClaimPlace, type ClaimScope } from './claim.sql';
import { readyDueTasksOnce } from './ready-due-tasks';
import { settleQueueTasks } from './settle-queue-tasks';
import { allQueuesStream, queueStream } from './streams';
import { waitForClaims } from './wait-for-claims';

export interface ClaimTasksInput extends ClaimQueueTasks {
  /** Absent: tasks of all tenants, in turn. Only for the operator's own workers; no credential of a tenant leads here. */
  readonly tenantId?: string | undefined;
}

/** A claim over all tenants looks at no more tenants than this, unless it claims more. */
const TENANTS_MAX = 32;

/**
 * Claims ready tasks of a queue for a worker: each gets an attempt `running`, an epoch, and a lease that its holder renews.
 *
 * Of one lane: highest priority first, then oldest. Of all lanes of a queue: likewise, over the lanes that have room. Over all tenants: the tenants
 * take turns, whatever they have waiting, and each one's tasks come in that order.
 *
 * Input     limit: 1 to 100, default 1; leaseMs: 5 s to 10 min, default 30 s; owner: one process start.
 * Returns   the claimed tasks in the order in which they should be worked off; none: nothing is ready, or the lanes are full.
 * Locks     turn of the queue (over all tenants) → lanes with a limit → tasks, SKIP LOCKED. One statement, of a lane that turns out to have a limit
 *           two; shared by claims of few tasks that arrive together (docs/adr/0019).   Writes: queue_tasks, queue_lanes.
 * Errors    InvalidRequest.
 * Repeat    a repeat claims further tasks; a claim whose answer was lost ends with its lease.
 * Keeps     OWN-1, OWN-2; limits of lanes hold among claimers at the same time.   Source: new; the original had no claim.
 */
export async function claimQueueTasks(at: At, { tenantId, ...input }: ClaimTasksInput): Promise<ClaimedQueueTask[]> {
  const claim = parseInput(ClaimQueueTasks, input);
  const first = await claimOnce(at, { tenantId, claim });
  if (first.length === claim.limit || isTx(at)) return first;
  // Tasks whose time has come are made claimable by a loop each second; a claimer that found less than it wanted need not wait for it.
  try {
    if ((await readyDueTasksOnce(at)).changed === 0) return first;
    return [...first, ...(await claimOnce(at, { tenantId, claim: { ...claim, limit: claim.limit - first.length } }))];
  } catch (error) {
    if (first.length === 0) throw error;
    return first; // they are claimed: with the error for an answer nobody would work on them until their leases end
  }
}

/** A claim of few tasks shares its statement with others of the process that claim of the same lanes at the same time. */
function claimOnce(at: At, scoped: ScopedClaim): Promise<ClaimedQueueTask[]> {
  if (isTx(at) || !at.options.coalesce || scoped.claim.limit > SHARED_CLAIM_MAX) return claimFor(at, scoped, placesOf(scoped));
  return claimCoalescer(at, claimFor).run(scoped);
}

async function claimFor(
  at: At,
  { tenantId, claim: { queue, lane } }: ScopedClaim,
  places: readonly ClaimPlace[],
): Promise<ClaimedQueueTask[]> {
  const on = executorOf(at);
  if (isTx(at)) takingLock(at, 'lane', `${tenantId ?? ''}/${queue}/`); // stands for all lanes of the queue
  if (tenantId !== undefined && lane !== undefined) {
    const ofLane = { queue, places, tenantId, lane };
    return (await claimOfOpenLane(on, ofLane)) ?? claimOfLane(on, ofLane);
  }
  const scope: ClaimScope = tenantId === undefined ? { tenantsMax: Math.max(places.length, TENANTS_MAX) } : { tenantId };
  return claimOfQueue(on, { queue, places, scope, lane });
}

/**
 * Claims as soon as there is something, at the latest when the time is over: woken by whoever adds a task or gives one back, and by its own poll each
 * second. Holds no connection while it waits.
 */
export function waitForQueueTasks(
  db: Db,
  { waitMs, signal, ...input }: ClaimTasksInput & { waitMs: number; signal?: AbortSignal | undefined },
): Promise<ClaimedQueueTask[]> {
  return waitForClaims(db, {
    stream: input.tenantId === undefined ? allQueuesStream(input.queue) : queueStream(input.tenantId, input.queue),
    waitMs,
    signal,
    claim: () => claimQueueTasks(db, input),
    giveBack: (tenantId, own) =>
      settleQueueTasks(db, { tenantId, settlements: own.map(({ taskId, epoch }) => ({ taskId, epoch, outcome: 'released' as const })) }),
  });
}
