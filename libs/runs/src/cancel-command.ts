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
import { isLive, requireTenant, type Tx } from '@runplane/database';
import { findCancelRequest, insertCancelRequest, writeCancelStage } from './cancel-request.sql';
import { closeCommand } from './close-command';
import { toCommand, writeCommandCancelRequested, type CommandKey, type CommandRow } from './command.sql';
import { requireCommand, requireLockedCommand, requireLockedRun } from './require';
import { appendServerEvents, type ServerEvent } from './run-event.sql';
import { lockRunLease } from './run-lease.sql';
import type { RunRow } from './run.sql';
import { cancelStageEvent } from './server-events';

/**
 * Asks to stop one command; its run stays open and claimed. The request stands in the command's cancel columns: its state changes when the
 * runner ends it, at the deadline or with a dead lease; at once when no runner can have it.
 *
 * Input     as cancelRun.
 * Returns   the command, and the request that stands; `changed: false` when it has ended or was asked already.
 * Locks     run → run lease → command → intents → session.   Writes: commands, cancel_requests, run_events, outbox, sessions.
 * Errors    CommandNotFound, InvalidRequest.
 * Emits     cancel-accepted, cancel-persisted; cancel-fenced; command-terminal when it ends now.
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
  const held = lease !== undefined && isLive(lease.expiresInMs);
  if (isFinalCommand(command.state) || (command.cancelRequestId !== null && held && !immediate)) {
    return answer(tx, { tenantId, commandId }, { cancelRequestId: command.cancelRequestId, changed: false });
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
    epoch: command.cancelEpoch + 1,
  });
  const grace = graceMs ?? (await requireTenant(tx, tenantId)).settings.cancelGraceMs ?? CANCEL_GRACE_MS_DEFAULT;
  await writeCommandCancelRequested(tx, { tenantId, commandId, requestId: request.id, reason: request.reason, graceMs: grace });
  await writeCancelStage(tx, tenantId, [request.id], 'persisted');
  const stages = [cancelStageEvent(request, 'accepted'), cancelStageEvent(request, 'persisted')];
  const requested = { ...command, cancelRequestId: request.id, cancelReason: request.reason };
  if (held && !immediate) await appendServerEvents(tx, key, stages);
  else
    await endCancelledCommand(tx, run, requested, {
      fenced: lease !== undefined,
      reason: immediate ? 'cancel-immediate' : 'cancel-requested',
      before: stages,
    });
  return answer(tx, { tenantId, commandId }, { cancelRequestId: request.id, changed: true });
}

/** Ends a command whose cancel has been requested. Input: run and command, locked; the command is open. */
export async function endCancelledCommand(
  tx: Tx,
  run: RunRow,
  command: CommandRow,
  { fenced, reason, before = [] }: { fenced: boolean; reason: string; before?: readonly ServerEvent[] },
): Promise<void> {
  if (command.cancelRequestId === null) throw new Error(`command ${command.id} has no cancel request to end by`);
  const stage = fenced ? await writeCancelStage(tx, run.tenantId, [command.cancelRequestId], 'fenced') : [];
  const { claimedBy, claimEpoch } = run;
  await closeCommand(tx, run, command, {
    status: 'cancelled',
    failureKind: 'cancelled',
    failureMessage: command.cancelReason,
    reason,
    before: [...before, ...stage.map((request) => cancelStageEvent(request, 'fenced', { claimedBy, claimEpoch }))],
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
