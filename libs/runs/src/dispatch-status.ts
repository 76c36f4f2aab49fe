import type { DispatchStatus } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { countOpenIntents } from './dispatch-status.sql';

/** A longer backlog is not counted to its end: the status must stay cheap when it matters most. */
const COUNTED_MAX = 10_000;

/** How the dispatch of runners stands, for one tenant or, without one, for the whole store. Source: runs 8.5, 18.45. */
export async function getDispatchStatus(at: At, { tenantId }: { tenantId?: string | undefined } = {}): Promise<DispatchStatus> {
  const found = await countOpenIntents(executorOf(at), { tenantId, limit: COUNTED_MAX + 1 });
  return {
    queue: 'runner-dispatch',
    backlogCount: Math.min(found.counted, COUNTED_MAX),
    isExact: found.counted <= COUNTED_MAX,
    dueCount: Math.min(found.due, COUNTED_MAX),
    dispatchingCount: found.dispatching,
    retryingCount: found.retrying,
    oldestPendingAt: found.oldestAt,
    oldestPendingForMs: found.oldestForMs,
    maxAttemptCount: found.maxAttempts,
    firstError: found.firstError,
    valuesPrinted: false,
  };
}
