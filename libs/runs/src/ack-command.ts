import { isFinalCommand, type Command } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { toCommand, writeCommandAcknowledged } from './command.sql';
import { runClosed } from './create-command';
import { leaseLost } from './heartbeat';
import { requireCommand, requireLockedCommand, requireLockedRun } from './require';
import { appendServerEvents, phase } from './run-event.sql';
import { decideWriter } from './run-decisions';
import type { RunKey, RunRow } from './run.sql';

/**
 * The runner says that it has taken a command. A steer is delivered by it.
 *
 * Returns   the command in its present state; acknowledged or ended before is a success and changes nothing.
 * Locks     run → command.   Writes: commands, runs, run_events, outbox.
 * Errors    RunNotFound, CommandNotFound, LeaseLost, RunClosed.
 * Emits     command-acknowledged, once.
 * Repeat    safe.
 * Keeps     OWN-1, LOG-2.   Source: the original's ackCommand, which had no fence.
 */
export async function ackCommand(
  tx: Tx,
  { tenantId, runId, commandId, epoch }: RunKey & { commandId: string; epoch: number },
): Promise<Command> {
  const key = { tenantId, runId };
  const run = await requireWriter(tx, key, epoch);
  const command = await requireLockedCommand(tx, key, commandId);
  if (isFinalCommand(command.state) || command.state === 'acknowledged') return toCommand(command);
  await appendServerEvents(tx, key, [phase('command-acknowledged', { commandId, commandType: command.type, runnerId: run.claimedBy })]);
  await writeCommandAcknowledged(tx, { tenantId, commandId });
  return toCommand(await requireCommand(tx, { tenantId, commandId }));
}

/** Locks a run for the holder of an epoch. Errors: RunNotFound, LeaseLost, RunClosed. */
export async function requireWriter(tx: Tx, key: RunKey, epoch: number): Promise<RunRow> {
  const run = await requireLockedRun(tx, key);
  const decision = decideWriter(run, epoch);
  if (decision.kind === 'closed') throw runClosed(run);
  if (decision.kind === 'lease-lost') throw leaseLost({ runId: run.id, epoch, currentEpoch: run.claimEpoch });
  return run;
}
