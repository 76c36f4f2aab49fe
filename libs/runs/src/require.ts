import { CommandNotFound, EventsPruned, isDomainError, RunDeleted, RunNotFound, type Run } from '@runplane/contracts';
import { RestartTransaction, type SqlExecutor, type Tx } from '@runplane/database';
import { assertThere, lockSession, type SessionRow } from '@runplane/sessions';
import { findCommand, lockCommand, type CommandKey, type CommandRow } from './command.sql';
import { findTombstone } from './retention.sql';
import type { PrunedEvents } from './run-event.sql';
import { findRun, lockRun, type RunKey, type RunRow } from './run.sql';

// Reads that throw what an absent row is called at the door. A foreign tenant's id is absent (TEN-1).

const runNotFound = (runId: string): RunNotFound => new RunNotFound(`There is no run ${runId}.`, { runId });

/** What the absence of a run is called: retention has removed it, or there was never one. */
export async function absentRun(on: SqlExecutor, key: RunKey): Promise<RunNotFound | RunDeleted> {
  const tombstone = await findTombstone(on, key);
  return tombstone === undefined ? runNotFound(key.runId) : runDeleted(key.runId, tombstone);
}

export function runDeleted(runId: string, { deletedAt, archiveKey }: { deletedAt: string; archiveKey: string | null }): RunDeleted {
  return new RunDeleted(`Retention has removed run ${runId}; its id is not used again.`, { runId, deletedAt, archiveKey });
}

export function eventsPruned(runId: string, pruned: PrunedEvents): EventsPruned {
  return new EventsPruned(`Retention has removed the events of run ${runId} before ${pruned.firstSeq}.`, { runId, ...pruned });
}

/** Errors: EventsPruned when events behind the sequence have been removed, or are being removed. */
export function requireEvents(runId: string, pruned: PrunedEvents | null, afterSeq: number): void {
  if (pruned !== null && afterSeq < pruned.firstSeq - 1) throw eventsPruned(runId, pruned);
}

export async function requireRun(on: SqlExecutor, key: RunKey): Promise<Run> {
  const run = await findRun(on, key);
  if (run === undefined) throw await absentRun(on, key);
  return run;
}

export async function requireLockedRun(tx: Tx, key: RunKey): Promise<RunRow> {
  const run = await lockRun(tx, key);
  if (run === undefined) throw await absentRun(tx, key);
  return run;
}

export const commandNotFound = (commandId: string): CommandNotFound =>
  new CommandNotFound(`There is no command ${commandId}.`, { commandId });

export async function requireCommand(on: SqlExecutor, key: CommandKey): Promise<CommandRow> {
  const command = await findCommand(on, key);
  if (command === undefined) throw commandNotFound(key.commandId);
  return command;
}

export async function requireLockedCommand(tx: Tx, run: RunKey, commandId: string): Promise<CommandRow> {
  const command = await lockCommand(tx, run, commandId);
  if (command === undefined) throw commandNotFound(commandId);
  return command;
}

export async function requireLockedSession(tx: Tx, tenantId: string, sessionId: string): Promise<SessionRow> {
  const key = { tenantId, sessionId };
  return assertThere(key, await lockSession(tx, key));
}

/** Retention has removed what a key names between two looks at it: the key names nothing any more, and the call is a new one. */
export const goneMeanwhile = (): RestartTransaction => new RestartTransaction('what this key has made has just been removed');

export function restartIfGone<T>(answer: Promise<T>): Promise<T> {
  return answer.catch((error: unknown) => {
    throw isDomainError(error) && (error.code === 'run_deleted' || error.code === 'command_not_found') ? goneMeanwhile() : error;
  });
}
