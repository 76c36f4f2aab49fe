import {
  COUNTER_MAX,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  type CancelRequest,
  type Command,
  type DispatchIntent,
  type Run,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { listCancelRequestsOfRun } from './cancel-request.sql';
import { listCommandsAfter, toCommand, type CommandKey } from './command.sql';
import { findIntent, toIntent } from './dispatch-intent.sql';
import { requireCommand, requireRun } from './require';
import type { RunKey } from './run.sql';

/** Reads a run. Errors: RunNotFound. */
export function getRun(at: At, key: RunKey): Promise<Run> {
  return requireRun(executorOf(at), key);
}

/** Reads a command. Errors: CommandNotFound. */
export async function getCommand(at: At, key: CommandKey): Promise<Command> {
  return toCommand(await requireCommand(executorOf(at), key));
}

/** A run's commands behind a number, by number. Errors: RunNotFound. */
export async function listCommands(
  at: At,
  { tenantId, runId, afterSeq = 0, limit = LIST_ROWS_DEFAULT }: RunKey & { afterSeq?: number | undefined; limit?: number | undefined },
): Promise<{ commands: Command[] }> {
  const on = executorOf(at);
  await requireRun(on, { tenantId, runId });
  const page = { afterSeq: Math.min(afterSeq, COUNTER_MAX), limit: Math.min(Math.max(limit, 1), LIST_ROWS_MAX) };
  return { commands: await listCommandsAfter(on, { tenantId, runId }, page) };
}

/** The newest dispatch intent of a command, or null. Errors: CommandNotFound. */
export async function getDispatchIntent(at: At, key: CommandKey): Promise<DispatchIntent | null> {
  const on = executorOf(at);
  await requireCommand(on, key);
  const intent = await findIntent(on, key);
  return intent === undefined ? null : toIntent(intent);
}

/** Everybody who asked to cancel a run or a command of it, oldest first. Errors: RunNotFound. */
export async function listCancelRequests(at: At, key: RunKey): Promise<{ requests: CancelRequest[] }> {
  const on = executorOf(at);
  await requireRun(on, key);
  return { requests: await listCancelRequestsOfRun(on, key, LIST_ROWS_MAX) };
}
