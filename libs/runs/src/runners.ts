import {
  contentHash,
  defineCursor,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  parseInput,
  RunnerNotFound,
  type Runner,
} from '@runplane/contracts';
import { executorOf, type At, type Db } from '@runplane/database';
import { z } from 'zod';
import { deleteSilentRunners, findRunner, listRunnersPage, writeRunnerSeen, type RunnerKey } from './runner.sql';

const runnerNotFound = (runnerId: string): RunnerNotFound =>
  new RunnerNotFound(`There is no runner ${runnerId}: register it first.`, { runnerId });

/** Says that a runner lives, apart from any run. One statement. Errors: RunnerNotFound. */
export async function heartbeatRunner(at: At, key: RunnerKey): Promise<Runner> {
  const runner = await writeRunnerSeen(executorOf(at), key);
  if (runner === undefined) throw runnerNotFound(key.runnerId);
  return runner;
}

/** Reads a runner. Errors: RunnerNotFound. */
export async function getRunner(at: At, key: RunnerKey): Promise<Runner> {
  const runner = await findRunner(executorOf(at), key);
  if (runner === undefined) throw runnerNotFound(key.runnerId);
  return runner;
}

const runnerCursor = defineCursor('runners', z.strictObject({ id: identifier }));
const ListLimit = z.int().min(1).max(LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT);

/** One page of a tenant's runners, by id. Errors: InvalidCursor, InvalidRequest. */
export async function listRunners(
  at: At,
  {
    cursor,
    limit,
    ...filter
  }: {
    tenantId: string;
    runId?: string | undefined;
    backendProfile?: string | undefined;
    cursor?: string | undefined;
    limit?: number | undefined;
  },
): Promise<{ runners: Runner[]; cursor: string | null }> {
  const rowsMax = parseInput(ListLimit, limit);
  const { tenantId, runId = null, backendProfile = null } = filter;
  const filterHash = contentHash({ tenantId, runId, backendProfile }).hash;
  const after = cursor === undefined ? undefined : runnerCursor.decode(cursor, filterHash).id;
  const found = await listRunnersPage(executorOf(at), filter, { after, limit: rowsMax + 1 });
  const runners = found.slice(0, rowsMax);
  const last = runners.at(-1);
  return { runners, cursor: found.length > rowsMax && last !== undefined ? runnerCursor.encode({ id: last.id }, filterHash) : null };
}

const PRUNED_ROWS_MAX = 500;

/**
 * Removes a tenant's runners that have been silent for so long, but none that holds a lease or works for an open run. One bounded statement
 * that waits for nobody; `changed: limit` says that there may be more.
 */
export async function pruneRunners(
  db: Db,
  { tenantId, silentMs, limit = PRUNED_ROWS_MAX }: { tenantId: string; silentMs: number; limit?: number },
): Promise<{ changed: number }> {
  return { changed: (await deleteSilentRunners(db.sql, { tenantId, silentMs, limit })).length };
}
