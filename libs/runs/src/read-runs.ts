import {
  contentHash,
  COUNTER_MAX,
  defineCursor,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  RUN_LIST_ROWS_DEFAULT,
  RUN_LIST_ROWS_MAX,
  type CancelRequest,
  type Command,
  type DispatchIntent,
  type Run,
  type RunState,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import { listCancelRequestsOfRun } from './cancel-request.sql';
import { listCommandsAfter, toCommand, type CommandKey } from './command.sql';
import { findIntent, toIntent } from './dispatch-intent.sql';
import { requireCommand, requireRun } from './require';
import { listRunsPage, type RunFilter, type RunKey } from './run.sql';

const runCursor = defineCursor('runs', z.strictObject({ updatedAt: z.iso.datetime({ precision: 3 }).regex(/^(?!0000)/), id: identifier }));

/** Reads a run. Errors: RunNotFound. */
export function getRun(at: At, key: RunKey): Promise<Run> {
  return requireRun(executorOf(at), key);
}

/**
 * One page of a tenant's runs, last changed first. A run that changes while somebody pages moves to the front: it may be missing from later
 * pages, one that does not change never is. Errors: InvalidCursor.
 */
export async function listRuns(
  at: At,
  {
    cursor,
    limit = RUN_LIST_ROWS_DEFAULT,
    ...filter
  }: Omit<RunFilter, 'statuses'> & { statuses?: readonly RunState[] | undefined; cursor?: string | undefined; limit?: number | undefined },
): Promise<{ runs: Run[]; cursor: string | null }> {
  const { tenantId, statuses, projectId, sessionId, backendProfile } = filter;
  const filterHash = contentHash({
    tenantId,
    statuses: [...(statuses ?? [])].sort(),
    projectId: projectId ?? null,
    sessionId: sessionId ?? null,
    backendProfile: backendProfile ?? null,
  }).hash;
  const after = cursor === undefined ? undefined : runCursor.decode(cursor, filterHash);
  const rowsMax = Math.min(Math.max(limit, 1), RUN_LIST_ROWS_MAX);
  const found = await listRunsPage(
    executorOf(at),
    { ...filter, statuses: statuses?.length === 0 ? undefined : statuses },
    { after, limit: rowsMax + 1 },
  );
  const runs = found.slice(0, rowsMax);
  const last = runs.at(-1);
  return {
    runs,
    cursor: found.length > rowsMax && last !== undefined ? runCursor.encode({ updatedAt: last.updatedAt, id: last.id }, filterHash) : null,
  };
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
