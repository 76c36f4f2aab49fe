import {
  Cancel,
  CANCEL_GRACE_MS_DEFAULT,
  freeText,
  isFinalCommand,
  newId,
  parseInput,
  type CancelRequest,
  type Command,
} from '@runplane/contracts';
import { isLive, requireTenant, sql, type Tx } from '@runplane/database';
import { findCancelRequest, insertCancelRequest, writeCancelStage } from './cancel-request.sql';
import { closeCommand } from './close-command';
import { closeRun } from './close-run';
import { lockOpenCommands, toCommand, writeCommandCancelRequested, type CommandKey, type CommandRow } from './command.sql';
import { hasIntents } from './dispatch-intent.sql';
import { requireCommand, requireLockedCommand, requireLockedRun } from './require';
import { appendServerEvents } from './run-event.sql';
import { lockRunLease } from './run-lease.sql';
import type { RunRow } from './run.sql';
import { cancelStageEvent, fencedEvents } from './server-events';

/**
 * Asks to stop one command; its run stays open and claimed. The request stands in the command's cancel columns: its state changes when the
 * runner ends it, at the deadline or with a dead lease; at once when no runner can have it. With its last command a dispatched run that
 * nobody has claimed ends too: the runner that was asked for would find nothing to do.
 *
 * Input     as cancelRun.
 * Returns   the command, and the request that stands (of the run, where that is being cancelled); `changed: false` when it has ended or
 *           was asked already.
 * Locks     run → run lease → commands → intents → session.   Writes: runs, commands, cancel_requests, run_events, outbox, sessions.
 * Errors    CommandNotFound, InvalidRequest.
 * Emits     cancel-accepted, cancel-persisted; cancel-fenced; command-terminal when it ends now, with terminal_status where the run does.
 * Repeat    safe; `immediate` after an ordinary request ends the command by that request.
 * Keeps     END-1.   Source: the original's cancelCommand.
 */
export async function cancelCommand(
  tx: Tx,
  { tenantId, commandId, requestedBy, ...input }: CommandKey & Cancel & { requestedBy?: string | undefined },
): Promise<{ command: Command; request: CancelRequest | null; changed: boolean }> {
  const { reason, graceMs, immediate } = parseInput(Cancel, input);
  const { runId } = await requireCommand(tx, { tenantId, commandId });
  const key = { tenantId, runId };
  const run = await requireLockedRun(tx, key);
  const lease = await lockRunLease(tx, key);
  const command = await requireLockedCommand(tx, key, commandId);
  const waits = lease !== undefined && isLive(lease.expiresInMs) && !immediate;
  const asked = command.cancelRequestId ?? (run.status === 'cancelling' ? run.cancelRequestId : null);
  if (isFinalCommand(command.state) || (asked !== null && waits)) {
    return answer(
      tx,
      { tenantId, commandId },
      { cancelRequestId: isFinalCommand(command.state) ? command.cancelRequestId : asked, changed: false },
    );
  }
  if (command.cancelRequestId !== null) {
    const reason = immediate ? 'cancel-immediate' : lease === undefined ? 'cancel-requested' : 'runner-lost';
    await endCancelledCommand(tx, run, command, { fenced: lease !== undefined, reason });
    return answer(tx, { tenantId, commandId }, { cancelRequestId: command.cancelRequestId, changed: true });
  }

  const request = await insertCancelRequest(tx, {
    ...key,
    requestId: newId('cancel'),
    targetKind: 'command',
    targetId: commandId,
    commandId,
    sessionId: command.sessionId,
    reason: freeText(reason),
    requestedBy: requestedBy ?? null,
    epoch: asked === null ? run.cancelEpoch + 1 : run.cancelEpoch, // one counter on the run; its own cancel keeps its number
  });
  const grace = graceMs ?? (await requireTenant(tx, tenantId)).settings.cancelGraceMs ?? CANCEL_GRACE_MS_DEFAULT;
  await writeCommandCancelRequested(tx, { tenantId, commandId, request, graceMs: grace });
  await writeCancelStage(tx, tenantId, [request.id], 'persisted');
  const stages = [cancelStageEvent(request, 'accepted'), cancelStageEvent(request, 'persisted', waits ? { graceMs: grace } : {})];
  await appendServerEvents(tx, key, stages, sql`, cancel_epoch = ${request.epoch}::int`);
  if (!waits) {
    const requested = { ...command, cancelEpoch: request.epoch, cancelRequestId: request.id, cancelReason: request.reason };
    const how = { fenced: lease !== undefined, reason: immediate ? 'cancel-immediate' : 'cancel-requested' };
    if (await isRunOver(tx, run, command)) await endRunWith(tx, run, request, how.reason);
    else await endCancelledCommand(tx, run, requested, how);
  }
  return answer(tx, { tenantId, commandId }, { cancelRequestId: request.id, changed: true });
}

/** Whether nothing is left for the runner that a run waits for, once this command and what hangs on it have ended. */
async function isRunOver(tx: Tx, run: RunRow, command: CommandRow): Promise<boolean> {
  if (run.status !== 'pending') return false;
  const key = { tenantId: run.tenantId, runId: run.id };
  const others = (await lockOpenCommands(tx, key)).filter(({ id, targetCommandId }) => id !== command.id && targetCommandId !== command.id);
  return others.length === 0 && hasIntents(tx, key);
}

function endRunWith(tx: Tx, run: RunRow, { id: requestId, epoch, reason: failureMessage }: CancelRequest, reason: string): Promise<void> {
  const cancel = { requestId, epoch, reason: failureMessage };
  return closeRun(tx, run, { status: 'cancelled', failureKind: 'cancelled', failureMessage, reason, cancel });
}

/** Ends a command whose cancel has been requested. Input: run, lease and command, locked; the command is open. */
export async function endCancelledCommand(
  tx: Tx,
  run: RunRow,
  command: CommandRow,
  { fenced, reason }: { fenced: boolean; reason: string },
): Promise<void> {
  const { tenantId, id: runId } = run;
  if (command.cancelRequestId === null) throw new Error(`command ${command.id} has no cancel request to end by`);
  const lease = fenced ? await lockRunLease(tx, { tenantId, runId }) : undefined;
  const stage = fenced ? await writeCancelStage(tx, tenantId, [command.cancelRequestId], 'fenced') : [];
  await closeCommand(tx, run, command, {
    status: 'cancelled',
    failureKind: 'cancelled',
    failureMessage: command.cancelReason,
    reason,
    before: fencedEvents(stage, run, lease, command),
  });
}

async function answer(
  tx: Tx,
  { tenantId, commandId }: CommandKey,
  { cancelRequestId: requestId, changed }: { cancelRequestId: string | null; changed: boolean },
): Promise<{ command: Command; request: CancelRequest | null; changed: boolean }> {
  const request = requestId === null ? undefined : await findCancelRequest(tx, { tenantId, requestId });
  return { command: toCommand(await requireCommand(tx, { tenantId, commandId })), request: request ?? null, changed };
}
