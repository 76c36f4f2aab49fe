import { CommandClosed, commandStateOf, isFinalCommand, Outcome, parseInput, type Command } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { closeCommand } from './close-command';
import { toCommand, type CommandRow } from './command.sql';
import { runClosed } from './create-command';
import { leaseLost } from './heartbeat';
import { requireCommand, requireLockedCommand, requireLockedRun } from './require';
import { decideWriter, failureKindOf } from './run-decisions';
import type { RunKey } from './run.sql';

/**
 * The runner ends one command; its run stays open and claimed. For a steer, completed means consumed.
 *
 * Input     epoch: of the claim; outcome: as in finishRun. `blocked` closes the command as failed and keeps the failure kind.
 * Returns   the command. A repeat with the stored outcome is answered with it, also on an ended run.
 * Locks     run → command → intents → session.   Writes: the same, run_events, outbox.
 * Errors    RunNotFound, CommandNotFound, LeaseLost, RunClosed, CommandClosed (ended with another outcome), InvalidRequest.
 * Emits     command-terminal, once; steer-missed for its unconsumed steers; session-updated with a thread id.
 * Repeat    safe.
 * Keeps     TURN-1, OWN-1.   Source: the original's finishCommand.
 */
export async function finishCommand(
  tx: Tx,
  { tenantId, runId, commandId, epoch, outcome: input }: RunKey & { commandId: string; epoch: number; outcome: Outcome },
): Promise<Command> {
  const outcome = parseInput(Outcome, input);
  const key = { tenantId, runId };
  const run = await requireLockedRun(tx, key);
  const writer = decideWriter(run, epoch);
  if (writer.kind === 'lease-lost') throw leaseLost({ runId, epoch, currentEpoch: run.claimEpoch });
  const command = await requireLockedCommand(tx, key, commandId);
  if (isFinalCommand(command.state)) {
    if (hasOutcome(command, outcome)) return toCommand(command);
    if (writer.kind === 'closed') throw runClosed(run);
    throw new CommandClosed(`Command ${commandId} has ended (${command.state}).`, { commandId, state: command.state });
  }
  await closeCommand(tx, run, command, {
    status: outcome.terminalStatus,
    failureKind: failureKindOf(outcome),
    failureMessage: outcome.failureMessage ?? (outcome.terminalStatus === 'cancelled' ? command.cancelReason : null),
    reason: null,
    threadId: outcome.threadId,
    turnId: outcome.turnId,
  });
  return toCommand(await requireCommand(tx, { tenantId, commandId }));
}

const hasOutcome = (command: CommandRow, outcome: Outcome): boolean =>
  command.state === commandStateOf(outcome.terminalStatus) && command.failureKind === failureKindOf(outcome);
