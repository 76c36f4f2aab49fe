import {
  FAILURE_MESSAGE_CODE_POINTS_MAX,
  freeText,
  isDomainError,
  OutcomeUnknown,
  parseInput,
  RenewQueueTasks,
  SettleQueueTasks,
  TaskClaimLost,
  type ClaimVerdict,
  type RenewedQueueTask,
  type SettledQueueTask,
} from '@runplane/contracts';
import {
  coalescedBounds,
  coalescerOf,
  executorOf,
  inLockOrder,
  isTx,
  RestartTransaction,
  takingLock,
  type At,
  type Coalescer,
  type Db,
  type Verdict,
} from '@runplane/database';
import type { z } from 'zod';
import { ALWAYS_TOGETHER } from './always-together';
import { taskNotFound } from './require';
import { completeClaims, findEndedAttempts, settleClaims, writeLeases, type GivenSettlement, type VerdictRow } from './settle.sql';
import { announceQueue } from './streams';

/**
 * Prolongs claims from now on: each holder names task and epoch.
 *
 * Returns   a verdict for each, in the order of the call: `ok` with what remains, `claim_lost` (its lease has ended, or it was taken away: stop the
 *           work), `not_found`.
 * Locks     tasks by id. One statement.   Errors: InvalidRequest.   Repeat: safe.   Keeps: OWN-1, OWN-2.
 */
export async function renewQueueTasks(at: At, { tenantId, ...input }: { tenantId: string } & RenewQueueTasks): Promise<ClaimVerdict[]> {
  const { claims, leaseMs } = parseInput(RenewQueueTasks, input);
  const given = claims.map((claim) => ({ ...claim, tenantId }));
  if (isTx(at)) takingTasks(at, given);
  const found = await writeLeases(executorOf(at), { tenantId, claims, leaseMs });
  return inOrder(given, found).map((row) => verdictOf(row, row.isHeld ? 'ok' : undefined));
}

/** The same for one. Errors: TaskNotFound, TaskClaimLost. */
export async function renewQueueTask(
  at: At,
  { tenantId, taskId, epoch, leaseMs }: { tenantId: string; taskId: string; epoch: number; leaseMs?: number | undefined },
): Promise<RenewedQueueTask> {
  const [verdict] = await renewQueueTasks(at, { tenantId, claims: [{ taskId, epoch }], leaseMs });
  const { leaseRemainingMs } = requireOk(verdict, { taskId, epoch });
  return { taskId, leaseRemainingMs: leaseRemainingMs ?? 0 };
}

/**
 * Ends claims with their results, or gives them back.
 *
 * Input     outcome `completed`, `failed`, `blocked`: the task's state; failed and blocked name a failure kind. `released`: the task waits again,
 *           after delayMs; without a failure the try does not count, with one it does: back-off 1 s doubling to 5 min, and the last try fails the task.
 * Returns   a verdict for each, in the order of the call: `ok`; `replayed`, it was ended so under this epoch before; `claim_lost`; `not_found`.
 *           Verdicts are apart: what is lost of one does not take back another.
 * Locks     lanes that count the tasks → tasks by id → attempts. One statement for tasks that are completed and that no lane counts, one for the rest
 *           (docs/adr/0032); calls of one task each that arrive together share them (docs/adr/0019), and pass over lanes that cannot be had.
 *           Writes: queue_tasks, queue_attempts, queue_lanes.
 * Errors    InvalidRequest.
 * Repeat    safe.
 * Keeps     OWN-1, OWN-2.   Source: new; the original had no claim.
 */
export async function settleQueueTasks(at: At, { tenantId, ...input }: { tenantId: string } & SettleQueueTasks): Promise<ClaimVerdict[]> {
  const { settlements } = parseInput(SettleQueueTasks, input);
  const given = settlements.map((settlement) => toGiven(tenantId, settlement));
  const [only] = given;
  if (!isTx(at) && at.options.coalesce && given.length === 1 && only !== undefined) return [await settlementCoalescer(at).run(only)];
  return settleAlone(at, given);
}

async function settleAlone(at: At, given: readonly TenantSettlement[]): Promise<ClaimVerdict[]> {
  if (isTx(at)) takingTasks(at, given);
  // Completing without a look at lanes would lock tasks before them: not in a transaction, which goes on.
  const settled = isTx(at) ? await settleUntilFree(at, given) : await completeThenSettle(at, given);
  announceFreed(at, settled);
  return withReplays(at, given, inOrder(given, settled));
}

async function completeThenSettle(db: Db, given: readonly TenantSettlement[]): Promise<VerdictRow[]> {
  const { done, left } = await completePlain(db, given, { waits: true });
  try {
    return left.length === 0 ? done : [...done, ...(await settleUntilFree(db, left))];
  } catch (error) {
    const saysNothingWasWritten = isDomainError(error) && error.code === 'database_unavailable';
    throw saysNothingWasWritten && done.length > 0 ? new OutcomeUnknown(undefined, { cause: error }) : error;
  }
}

/** Completes what needs no more than that (`completeClaims`). `left`: what is to be settled, in most calls nothing. */
async function completePlain(
  db: Db,
  given: readonly TenantSettlement[],
  { waits }: { waits: boolean },
): Promise<{ done: VerdictRow[]; left: readonly TenantSettlement[] }> {
  const completions = given.filter(({ outcome }) => outcome === 'completed');
  if (completions.length === 0) return { done: [], left: given };
  const completed = await completeClaims(db.sql, completions, { waits });
  const done = completions.filter((_, place) => completed.has(place));
  const left = done.length === given.length ? [] : given.filter((settlement) => !done.includes(settlement));
  return { done: done.map(completedRow), left };
}

const completedRow = ({ tenantId, taskId, epoch }: TenantSettlement): VerdictRow => ({
  tenantId,
  taskId,
  exists: true,
  isHeld: true,
  isBusy: false,
  state: 'completed',
  currentEpoch: epoch,
  leaseRemainingMs: null,
  queue: null,
  isDue: false,
});

/** A task that waits again may be claimed. */
function announceFreed(at: At, settled: readonly VerdictRow[]): void {
  const freed = new Map(
    settled.flatMap(({ isDue, tenantId, queue }) => (isDue && queue !== null ? [[`${tenantId}/${queue}`, { tenantId, queue }]] : [])),
  );
  for (const { tenantId, queue } of freed.values()) announceQueue(at, tenantId, queue);
}

/** Where the ends of single claims of one process meet: workers report one by one, and share a statement when many do. */
const settlementCoalescer = (db: Db): Coalescer<TenantSettlement, ClaimVerdict> =>
  coalescerOf(db, 'queue-settle', () => {
    const settle = settlingOf(db);
    return {
      describe: ({ tenantId, taskId, failureMessage }) => ({
        lane: `${tenantId}/${taskId}`,
        single: 'settle',
        last: false,
        rows: 1,
        bytes: taskId.length + (failureMessage?.length ?? 0),
      }),
      together: (given) => settleTogether(db, given, settle),
      alone: async (given) => required(await settleAlone(db, [given])),
      isRepeatable: () => true,
      ...coalescedBounds(db),
      sideBySideMax: ALWAYS_TOGETHER,
    };
  });

/** How long lanes are passed over once one could not be had: as long as a transaction that does nothing may hold it. */
const PASS_OVER_LANES_MS = 60_000;

/**
 * Settles what goes together. Lanes that count are waited for: each is held for a moment, and those who end its tasks would miss each other. One that
 * somebody holds for long must not be to the harm of all others: then, and for a while, it is passed over, and its tasks are ended each alone.
 */
function settlingOf(db: Db): (given: readonly TenantSettlement[]) => Promise<VerdictRow[]> {
  let passOverUntil = Number.NEGATIVE_INFINITY;
  return async (given) => {
    if (performance.now() >= passOverUntil) {
      try {
        return await settleClaims(db.sql, given, { wait: 'lanes' });
      } catch (error) {
        if (!isDomainError(error) || error.code !== 'lock_timeout') throw error;
        passOverUntil = performance.now() + PASS_OVER_LANES_MS;
      }
    }
    return settleClaims(db.sql, given, { wait: 'none' });
  };
}

async function settleTogether(
  db: Db,
  given: readonly TenantSettlement[],
  settle: (given: readonly TenantSettlement[]) => Promise<VerdictRow[]>,
): Promise<Verdict<ClaimVerdict>[]> {
  const { done, left } = await completePlain(db, given, { waits: false });
  const settled = new Map(done.map((row) => [taskOf(row), row]));
  let otherwise: Verdict<ClaimVerdict> = { kind: 'busy' };
  try {
    const found = left.length === 0 ? [] : await settle(left);
    announceFreed(db, found);
    for (const row of found) settled.set(taskOf(row), row);
  } catch (error) {
    if (done.length === 0) throw error;
    // What is completed is told so. The rest is told what it would have been without it: each is tried by itself where PostgreSQL has refused them.
    if (isDomainError(error) && error.code !== 'transaction_conflict') otherwise = { kind: 'refused', refusal: error };
  }
  return given.map((settlement): Verdict<ClaimVerdict> => {
    const row = settled.get(taskOf(settlement));
    if (row === undefined || row.isBusy) return otherwise;
    return { kind: 'answer', answer: row.isHeld ? verdictOf(row, 'ok') : withReplays(db, [settlement], [row]).then(required) };
  });
}

function required<T>(of: readonly T[]): T {
  const [first] = of;
  if (first === undefined) throw new Error('a settlement has no verdict');
  return first;
}

type OneSettlement = { readonly tenantId: string } & SettleQueueTasks['settlements'][number];

/** The same for one. Errors: TaskNotFound, TaskClaimLost, InvalidRequest. */
export async function settleQueueTask(at: At, { tenantId, ...settlement }: OneSettlement): Promise<SettledQueueTask> {
  const [verdict] = await settleQueueTasks(at, { tenantId, settlements: [settlement] });
  const { taskId, state, verdict: word } = requireOk(verdict, settlement);
  if (state === null) throw new Error(`queue task ${taskId} is held and has no state`);
  return { taskId, state, replayed: word === 'replayed' };
}

/**
 * How often a statement is repeated whose task got into the count of a lane in between, or whose attempt was written out or has just begun: each time
 * somebody has set a limit, or done something about this very task.
 */
const LOOKS_MAX = 5;

async function settleUntilFree(at: At, given: readonly TenantSettlement[]): Promise<VerdictRow[]> {
  const done: VerdictRow[] = [];
  let left = given;
  for (let look = 0; left.length > 0; look += 1) {
    const found = await settleClaims(executorOf(at), left, { wait: 'all' });
    const busy = new Set(found.filter(({ isBusy }) => isBusy).map(({ taskId }) => taskId));
    done.push(...found.filter(({ taskId }) => !busy.has(taskId)));
    left = left.filter(({ taskId }) => busy.has(taskId));
    if (left.length > 0 && (isTx(at) || look === LOOKS_MAX))
      throw new RestartTransaction('a lane has got a limit, or an attempt a row, while their tasks were being locked');
  }
  return done;
}

/** A claim that is over may have been ended by this very call before: its attempt tells. A second statement sees what the first one waited for. */
async function withReplays(at: At, given: readonly TenantSettlement[], found: readonly VerdictRow[]): Promise<ClaimVerdict[]> {
  const lost = given.filter((_, place) => found[place]?.exists === true && !found[place].isHeld);
  const ended = lost.length === 0 ? [] : await findEndedAttempts(executorOf(at), lost);
  return given.map((settlement, place) => {
    const row = found[place];
    if (row === undefined) throw new Error('a settlement has no verdict');
    const before = ended.find(({ taskId, epoch }) => taskId === settlement.taskId && epoch === settlement.epoch);
    const same = before !== undefined && before.state === attemptStateOf(settlement) && before.failureKind === failureKindOf(settlement);
    return verdictOf(row, row.isHeld ? 'ok' : same ? 'replayed' : undefined);
  });
}

const attemptStateOf = ({ outcome, failureKind }: GivenSettlement): string =>
  outcome !== 'released' ? outcome : failureKind === null ? 'cancelled' : 'failed';
const failureKindOf = ({ outcome, failureKind }: GivenSettlement): string | null =>
  failureKind ?? (outcome === 'released' ? 'released' : null);

type TenantSettlement = GivenSettlement & { readonly tenantId: string };

function toGiven(
  tenantId: string,
  { taskId, epoch, outcome, failureKind, failureMessage, delayMs }: z.output<typeof SettleQueueTasks>['settlements'][number],
): TenantSettlement {
  return {
    tenantId,
    taskId,
    epoch,
    outcome,
    failureKind: failureKind ?? null,
    failureMessage: failureMessage == null ? null : freeText(failureMessage, FAILURE_MESSAGE_CODE_POINTS_MAX),
    delayMs: delayMs ?? null,
  };
}

function takingTasks(tx: Parameters<typeof takingLock>[0], claims: readonly { tenantId: string; taskId: string }[]): void {
  for (const tenantId of new Set(claims.map((claim) => claim.tenantId))) takingLock(tx, 'lane', `${tenantId}/`); // stands for the lanes that count them
  takingLock(tx, 'queueTask', ...inLockOrder(claims.map(({ tenantId, taskId }) => `${tenantId}/${taskId}`)));
}

const taskOf = ({ tenantId, taskId }: { tenantId: string; taskId: string }): string => `${tenantId}/${taskId}`;

function inOrder(claims: readonly { tenantId: string; taskId: string }[], found: readonly VerdictRow[]): VerdictRow[] {
  const byTask = new Map(found.map((row) => [taskOf(row), row]));
  return claims.map(({ tenantId, taskId }) => {
    const row = byTask.get(taskOf({ tenantId, taskId }));
    if (row === undefined) throw new Error(`a statement over claims told nothing of ${taskId}`);
    return row;
  });
}

const verdictOf = (row: VerdictRow, held: 'ok' | 'replayed' | undefined): ClaimVerdict => ({
  taskId: row.taskId,
  verdict: held ?? (row.exists ? 'claim_lost' : 'not_found'),
  state: row.state,
  currentEpoch: row.currentEpoch,
  leaseRemainingMs: row.leaseRemainingMs,
});

function requireOk(verdict: ClaimVerdict | undefined, { taskId, epoch }: { taskId: string; epoch: number }): ClaimVerdict {
  if (verdict === undefined || verdict.verdict === 'not_found') throw taskNotFound(taskId);
  if (verdict.verdict === 'claim_lost') {
    const { currentEpoch, state } = verdict;
    throw new TaskClaimLost(`Queue task ${taskId} is no longer held under epoch ${epoch}.`, {
      taskId,
      epoch,
      currentEpoch: currentEpoch ?? 0,
      state: state ?? 'pending',
    });
  }
  return verdict;
}
