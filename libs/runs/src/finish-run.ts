import { CommandNotFound, Outcome, parseInput, type Run } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { closeRun } from './close-run';
import { lockCommand } from './command.sql';
import { runClosed } from './create-command';
import { leaseLost } from './heartbeat';
import { requireLockedRun, requireRun } from './require';
import { lockRunLease } from './run-lease.sql';
import { decideFinish, failureKindOf } from './run-decisions';
import type { RunKey } from './run.sql';

/**
 * The runner ends its run. Open commands end with it; `commandId` says which one the outcome is about, and must be of the run.
 *
 * Input     epoch: of the claim; outcome: terminalStatus, failureKind (needed for failed and blocked), failureMessage, threadId, turnId.
 * Returns   the run. A repeat with the stored outcome is answered with it.
 * Locks     run → run lease → commands → intents → session (closeRun).
 * Errors    RunNotFound, LeaseLost, RunClosed (ended with another outcome), CommandNotFound, InvalidRequest.
 * Emits     what closeRun emits, once.
 * Repeat    safe.
 * Keeps     END-1, OWN-1.   Source: the original's finishRun.
 */
export async function finishRun(
  tx: Tx,
  { tenantId, runId, epoch, outcome: input, commandId }: RunKey & { epoch: number; outcome: Outcome; commandId?: string | undefined },
): Promise<Run> {
  const outcome = parseInput(Outcome, input);
  const key = { tenantId, runId };
  const run = await requireLockedRun(tx, key);
  const decision = decideFinish(run, epoch, outcome);
  switch (decision.kind) {
    case 'lease-lost':
      throw leaseLost({ runId, epoch, currentEpoch: run.claimEpoch });
    case 'closed':
      throw runClosed(run);
    case 'replay':
      break;
    case 'close': {
      await lockRunLease(tx, key);
      if (commandId !== undefined && (await lockCommand(tx, key, commandId)) === undefined) {
        throw new CommandNotFound(`Run ${runId} has no command ${commandId}.`, { commandId });
      }
      await closeRun(tx, run, {
        status: outcome.terminalStatus,
        failureKind: failureKindOf(outcome, run.cancelFailureKind),
        failureMessage: outcome.failureMessage ?? (outcome.terminalStatus === 'cancelled' ? run.cancelReason : null),
        reason: null,
        threadId: outcome.threadId,
        turnId: outcome.turnId,
        ...(outcome.terminalStatus === 'cancelled' && run.cancelRequestId !== null
          ? { cancel: { requestId: run.cancelRequestId, epoch: run.cancelEpoch, reason: run.cancelReason ?? 'cancel requested' } }
          : {}),
      });
    }
  }
  return requireRun(tx, key);
}
