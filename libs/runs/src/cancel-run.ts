import { Cancel, CANCEL_GRACE_MS_DEFAULT, freeText, newId, parseInput, type CancelRequest, type Run } from '@runplane/contracts';
import { emptySql, requireTenant, sql, type Sql, type Tx } from '@runplane/database';
import { findCancelRequest, insertCancelRequest, writeCancelStage } from './cancel-request.sql';
import { closeRun } from './close-run';
import { requireLockedRun, requireRun } from './require';
import { appendServerEvents, type ServerEvent } from './run-event.sql';
import { lockRunLease } from './run-lease.sql';
import { decideCancel } from './run-decisions';
import type { RunKey, RunRow } from './run.sql';
import { cancelStageEvent } from './server-events';

/**
 * Asks a run to stop. Two phases: its holder learns of the request and may stop in its own way until the deadline; a run that nobody
 * holds, whose holder is dead, or that shall not wait (`immediate`) ends at once.
 *
 * Input     reason: up to 500 code points are kept; graceMs: 0 to 10 min, default 30 s or the tenant's; requestedBy: who asked.
 * Returns   the run, and the request that stands; `changed: false` when it has ended or was asked already.
 * Locks     run → run lease → commands → intents → session (closeRun).   Writes: runs, cancel_requests, run_events, outbox.
 * Errors    RunNotFound, InvalidRequest.
 * Emits     cancel-accepted, cancel-persisted; cancel-fenced where a holder is cut off; at the end what closeRun emits.
 * Repeat    safe; `immediate` after an ordinary request ends the run.
 * Keeps     END-1.   Source: the original's cancelRun, whose stages were fiction.
 */
export async function cancelRun(
  tx: Tx,
  { tenantId, runId, requestedBy, ...input }: RunKey & Cancel & { requestedBy?: string | undefined },
): Promise<{ run: Run; request: CancelRequest | null; changed: boolean }> {
  const { reason, graceMs, immediate } = parseInput(Cancel, input);
  const key = { tenantId, runId };
  const run = await requireLockedRun(tx, key);
  const lease = await lockRunLease(tx, key);
  const decision = decideCancel(run, lease, { immediate });
  if (decision.kind === 'keep') {
    const request = run.cancelRequestId === null ? undefined : await findCancelRequest(tx, { tenantId, requestId: run.cancelRequestId });
    return { run: await requireRun(tx, key), request: request ?? null, changed: false };
  }
  if (decision.kind === 'close' && run.status === 'cancelling') {
    await endCancelledRun(tx, run, { fenced: true, reason: immediate ? 'cancel-immediate' : 'runner-lost' });
    return answer(tx, run);
  }

  const request = await insertCancelRequest(tx, {
    ...key,
    requestId: newId('cancel'),
    targetKind: 'run',
    targetId: runId,
    commandId: null,
    sessionId: run.sessionId,
    reason: freeText(reason),
    requestedBy: requestedBy ?? null,
    epoch: run.cancelEpoch + 1,
  });
  const requested: RunRow = { ...run, cancelEpoch: request.epoch, cancelRequestId: request.id, cancelReason: request.reason };
  await writeCancelStage(tx, tenantId, [request.id], 'persisted');
  const stages = [cancelStageEvent(request, 'accepted'), cancelStageEvent(request, 'persisted')];
  const columns = sql`, cancel_epoch = ${request.epoch}::int, cancel_request_id = ${request.id}::text, cancel_requested_at = runplane.app_now(),
    cancel_reason = ${request.reason}::text`;
  if (decision.kind === 'request') {
    const grace = graceMs ?? (await requireTenant(tx, tenantId)).settings.cancelGraceMs ?? CANCEL_GRACE_MS_DEFAULT;
    await appendServerEvents(
      tx,
      key,
      stages,
      sql`${columns}, status = 'cancelling', updated_at = runplane.app_now(), cancel_deadline_at = runplane.app_now() + ${grace}::int * interval '1 millisecond'`,
    );
  } else {
    await endCancelledRun(tx, requested, {
      fenced: decision.fenced,
      reason: immediate ? 'cancel-immediate' : 'cancel-requested',
      before: stages,
      set: columns,
    });
  }
  return answer(tx, requested);
}

/**
 * Ends a run whose cancel has been requested. `fenced`: its holder did not, or could not, answer, and is cut off.
 * Input: run, locked, with its cancel columns. Locks and emits: as closeRun; cancel-fenced before.
 */
export async function endCancelledRun(
  tx: Tx,
  run: RunRow,
  { fenced, reason, before = [], set = emptySql }: { fenced: boolean; reason: string; before?: readonly ServerEvent[]; set?: Sql },
): Promise<void> {
  const { tenantId, cancelRequestId, cancelEpoch, cancelReason, claimedBy, claimEpoch } = run;
  if (cancelRequestId === null || cancelReason === null) throw new Error(`run ${run.id} has no cancel request to end by`);
  const stage = fenced ? await writeCancelStage(tx, tenantId, [cancelRequestId], 'fenced') : [];
  await closeRun(tx, run, {
    status: 'cancelled',
    failureKind: 'cancelled',
    failureMessage: cancelReason,
    reason,
    cancel: { requestId: cancelRequestId, epoch: cancelEpoch, reason: cancelReason },
    before: [...before, ...stage.map((request) => cancelStageEvent(request, 'fenced', { claimedBy, claimEpoch }))],
    set,
  });
}

async function answer(
  tx: Tx,
  { tenantId, id: runId, cancelRequestId }: RunRow,
): Promise<{ run: Run; request: CancelRequest | null; changed: boolean }> {
  const request = cancelRequestId === null ? undefined : await findCancelRequest(tx, { tenantId, requestId: cancelRequestId });
  return { run: await requireRun(tx, { tenantId, runId }), request: request ?? null, changed: true };
}
