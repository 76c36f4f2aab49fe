import { COUNTER_MAX, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, type Command, type DispatchIntent, type Run } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { listCommandsOfRun, toCommand, type CommandKey } from './command.sql';
import { findIntentOfCommand, toIntent } from './dispatch-intent.sql';
import { absentRun, commandNotFound, requireCommand, requireRun } from './require';
import type { RunKey } from './run.sql';

/** Reads a run. Errors: RunNotFound. */
export function getRun(at: At, key: RunKey): Promise<Run> {
  return requireRun(executorOf(at), key);
}

/** Reads a command. Errors: CommandNotFound. */
export async function getCommand(at: At, key: CommandKey): Promise<Command> {
  return toCommand(await requireCommand(executorOf(at), key));
}

/** A run's commands behind a number, by number. Errors: RunNotFound, RunDeleted. */
export async function listCommands(
  at: At,
  { tenantId, runId, afterSeq = 0, limit = LIST_ROWS_DEFAULT }: RunKey & { afterSeq?: number | undefined; limit?: number | undefined },
): Promise<{ commands: Command[] }> {
  const on = executorOf(at);
  const page = { afterSeq: Math.min(afterSeq, COUNTER_MAX), limit: Math.min(Math.max(limit, 1), LIST_ROWS_MAX) };
  const commands = await listCommandsOfRun(on, { tenantId, runId }, page);
  if (commands === undefined) throw await absentRun(on, { tenantId, runId });
  return { commands };
}

/** The newest dispatch intent of a command, or null. Errors: CommandNotFound. */
export async function getDispatchIntent(at: At, key: CommandKey): Promise<DispatchIntent | null> {
  const intent = await findIntentOfCommand(executorOf(at), key);
  if (intent === undefined) throw commandNotFound(key.commandId);
  return intent && toIntent(intent);
}
