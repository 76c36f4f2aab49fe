import { isFinalCommand, type Command } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { toCommand, writeCommandsAcknowledged, type CommandRow } from './command.sql';
import { runClosed } from './create-command';
import { leaseLost } from './heartbeat';
import { requireCommand, requireLockedCommand, requireLockedRun } from './require';
import { appendServerEvents, phase, type ServerEvent } from './run-event.sql';
import { decideWriter } from './run-decisions';
import type { RunKey, RunRow } from './run.sql';
import { steerEvent } from './server-events';

/**
 * The runner says that it has taken a command. A steer is delivered by it.
 *
 * Returns   the command in its present state; acknowledged or ended before is a success and changes nothing.
 * Locks     run → command.   Writes: commands, runs, run_events, outbox.
 * Errors    RunNotFound, CommandNotFound, LeaseLost, RunClosed.
 * Emits     command-acknowledged, once for each runner that takes it; steer-delivered with it.
 * Repeat    safe.
 * Keeps     OWN-1, LOG-2.   Source: the original's ackCommand, which had no fence.
 */
export async function ackCommand(tx: Tx, { tenantId, runId, commandId, epoch }: Ack): Promise<Command> {
  const key = { tenantId, runId };
  const run = await requireWriter(tx, key, epoch);
  const command = await requireLockedCommand(tx, key, commandId);
  const events = acknowledgement(run, command);
  if (events === undefined) return toCommand(command);
  await appendServerEvents(tx, key, events);
  await writeCommandsAcknowledged(tx, [{ tenantId, commandId }]);
  return toCommand(await requireCommand(tx, { tenantId, commandId }));
}

export type Ack = RunKey & { readonly commandId: string; readonly epoch: number };

/** What taking a command up tells; undefined: it was taken before, or has ended. */
export function acknowledgement(run: RunRow, command: CommandRow): ServerEvent[] | undefined {
  if (isFinalCommand(command.state) || command.state === 'acknowledged') return undefined;
  return [
    phase('command-acknowledged', { commandId: command.id, commandType: command.type, runnerId: run.claimedBy }),
    ...steerEvent('delivered', command.id, command),
  ];
}

/** Locks a run for the holder of an epoch. Errors: RunNotFound, LeaseLost, RunClosed. */
export async function requireWriter(tx: Tx, key: RunKey, epoch: number): Promise<RunRow> {
  return writer(await requireLockedRun(tx, key), epoch);
}

/** The locked run, for the holder of an epoch. Errors: LeaseLost, RunClosed. */
export function writer(run: RunRow, epoch: number): RunRow {
  const decision = decideWriter(run, epoch);
  if (decision.kind === 'closed') throw runClosed(run);
  if (decision.kind === 'lease-lost') throw leaseLost({ runId: run.id, epoch, currentEpoch: run.claimEpoch });
  return run;
}
