import {
  Cancel,
  CANCEL_GRACE_MS_DEFAULT,
  freeText,
  newId,
  parseInput,
  type CancelRequest,
  type CancelTargetKind,
  type Run,
} from '@runplane/contracts';
import { emptySql, requireTenant, sql, type Sql, type Tx } from '@runplane/database';
import { findCancelRequest, insertCancelRequest, writeCancelStage } from './cancel-request.sql';
import { closeRun } from './close-run';
import { requireLockedRun, requireRun } from './require';
import { appendServerEvents, type ServerEvent } from './run-event.sql';
import { lockRunLease } from './run-lease.sql';
import { decideCancel, type LeaseFacts } from './run-decisions';
import { commandStream, type RunKey, type RunRow } from './run.sql';
import { cancelStageEvent, fencedEvents } from './server-events';

export interface CancelledRun {
  readonly run: Run;
  readonly request: CancelRequest | null;
  readonly changed: boolean;
}

/**
 * Asks a run to stop. Two phases: its holder learns of the request and may stop in its own way until the deadline; a run that nobody
 * holds, whose holder is dead, or that shall not wait (`immediate`) ends at once.
 *
 * Input     reason: up to 500 code points are kept; graceMs: 0 to 10 min, default 30 s or the tenant's; requestedBy: who asked; taskId: the queue
 *           task for whose sake, which is then the request's target.
 * Returns   the run, and the request that stands; `changed: false` when it has ended or was asked already: the first deadline stands.
 * Locks     run → run lease → commands → intents → session (closeRun).   Writes: runs, cancel_requests, run_events, outbox.
 * Errors    RunNotFound, InvalidRequest.
 * Emits     cancel-accepted, cancel-persisted; cancel-fenced where a holder is cut off; at the end what closeRun emits.
 * Repeat    safe; `immediate` after an ordinary request ends the run.
 * Keeps     END-1.   Source: the original's cancelRun, whose stages were fiction.
 */
export async function cancelRun(
  tx: Tx,
  { tenantId, runId, requestedBy, taskId, ...input }: RunKey & Cancel & { requestedBy?: string | undefined; taskId?: string | undefined },
): Promise<CancelledRun> {
  const cancel = parseInput(Cancel, input);
  const key = { tenantId, runId };
  const run = await requireLockedRun(tx, key);
  const lease = await lockRunLease(tx, key);
  const target = taskId === undefined ? ({ kind: 'run', id: runId } as const) : ({ kind: 'task', id: taskId } as const);
  return cancelLockedRun(tx, run, lease, { ...cancel, target, requestedBy });
}

export interface RunCancel {
  readonly target: { readonly kind: CancelTargetKind; readonly id: string };
  readonly reason: string;
  readonly graceMs?: number | undefined;
  readonly immediate?: boolean;
  readonly requestedBy?: string | undefined;
  /** What the run fails with if it ends as cancelled. */
  readonly failureKind?: 'cancelled' | 'timeout';
  /** The machine's word where it ends at once. */
  readonly word?: string | undefined;
  /** Events that tell what led here. */
  readonly before?: readonly ServerEvent[];
}

/** The same for a run and lease that are locked already, whoever or whatever asks. */
export async function cancelLockedRun(
  tx: Tx,
  run: RunRow,
  lease: LeaseFacts,
  { target, reason, graceMs, immediate = false, requestedBy, failureKind = 'cancelled', word, before = [] }: RunCancel,
): Promise<CancelledRun> {
  const { tenantId, id: runId, sessionId } = run;
  const key = { tenantId, runId };
  const decision = decideCancel(run, lease, { immediate });
  if (decision.kind === 'keep') return answer(tx, run, false);
  const at = word ?? (immediate ? 'cancel-immediate' : undefined);
  if (decision.kind === 'close' && run.status === 'cancelling') {
    await endCancelledRun(tx, run, { fenced: true, reason: at ?? 'runner-lost', before });
    return answer(tx, run, true);
  }

  const request = await insertCancelRequest(tx, {
    ...key,
    requestId: newId('cancel'),
    targetKind: target.kind,
    targetId: target.id,
    commandId: null,
    sessionId,
    taskId: target.kind === 'task' ? target.id : null,
    reason: freeText(reason),
    requestedBy: requestedBy ?? null,
    epoch: run.cancelEpoch + 1,
  });
  await writeCancelStage(tx, tenantId, [request.id], 'persisted');
  const requested: RunRow = {
    ...run,
    cancelEpoch: request.epoch,
    cancelRequestId: request.id,
    cancelReason: request.reason,
    cancelFailureKind: failureKind,
  };
  const columns = sql`, cancel_epoch = ${request.epoch}::int, cancel_request_id = ${request.id}::text, cancel_requested_at = runplane.app_now(),
    cancel_reason = ${request.reason}::text, cancel_failure_kind = ${failureKind}::text`;
  if (decision.kind === 'request') {
    tx.changed(commandStream(key));
    const grace = graceMs ?? (await requireTenant(tx, tenantId)).settings.cancelGraceMs ?? CANCEL_GRACE_MS_DEFAULT;
    await appendServerEvents(
      tx,
      key,
      [...before, cancelStageEvent(request, 'accepted'), cancelStageEvent(request, 'persisted', { graceMs: grace })],
      sql`${columns}, status = 'cancelling', updated_at = runplane.app_now(), cancel_deadline_at = runplane.app_now() + ${grace}::int * interval '1 millisecond'`,
    );
  } else {
    await endCancelledRun(tx, requested, {
      fenced: decision.fenced,
      reason: at ?? 'cancel-requested',
      before: [...before, cancelStageEvent(request, 'accepted'), cancelStageEvent(request, 'persisted')],
      set: columns,
    });
  }
  return answer(tx, requested, true);
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
  const { tenantId, cancelRequestId, cancelEpoch, cancelReason, cancelFailureKind } = run;
  if (cancelRequestId === null || cancelReason === null) throw new Error(`run ${run.id} has no cancel request to end by`);
  const lease = fenced ? await lockRunLease(tx, { tenantId, runId: run.id }) : undefined;
  const stage = fenced ? await writeCancelStage(tx, tenantId, [cancelRequestId], 'fenced') : [];
  await closeRun(tx, run, {
    status: 'cancelled',
    failureKind: cancelFailureKind ?? 'cancelled',
    failureMessage: cancelReason,
    reason,
    cancel: { requestId: cancelRequestId, epoch: cancelEpoch, reason: cancelReason },
    before: [...before, ...fencedEvents(stage, run, lease)],
    set,
  });
}

async function answer(tx: Tx, { tenantId, id: runId, cancelRequestId }: RunRow, changed: boolean): Promise<CancelledRun> {
  const request = cancelRequestId === null ? undefined : await findCancelRequest(tx, { tenantId, requestId: cancelRequestId });
  return { run: await requireRun(tx, { tenantId, runId }), request: request ?? null, changed };
}
