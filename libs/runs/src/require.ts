import { CommandNotFound, RunNotFound, SessionNotFound, type Run } from '@runplane/contracts';
import type { SqlExecutor, Tx } from '@runplane/database';
import { lockSession, type SessionRow } from '@runplane/sessions';
import { findCommand, lockCommand, type CommandKey, type CommandRow } from './command.sql';
import { findRun, lockRun, type RunKey, type RunRow } from './run.sql';

// Reads that throw what an absent row is called at the door. A foreign tenant's id is absent (TEN-1).

export const runNotFound = (runId: string): RunNotFound => new RunNotFound(`There is no run ${runId}.`, { runId });

export async function requireRun(on: SqlExecutor, key: RunKey): Promise<Run> {
  const run = await findRun(on, key);
  if (run === undefined) throw runNotFound(key.runId);
  return run;
}

export async function requireLockedRun(tx: Tx, key: RunKey): Promise<RunRow> {
  const run = await lockRun(tx, key);
  if (run === undefined) throw runNotFound(key.runId);
  return run;
}

const commandNotFound = (commandId: string): CommandNotFound => new CommandNotFound(`There is no command ${commandId}.`, { commandId });

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
  const session = await lockSession(tx, { tenantId, sessionId });
  if (session === undefined) throw new SessionNotFound(`There is no session ${sessionId}.`, { sessionId });
  return session;
}
