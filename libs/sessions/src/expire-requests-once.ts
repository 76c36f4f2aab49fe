import { inTransaction, type Db } from '@runplane/database';
import { cancelOpenRequests } from './cancel-open-requests';
import { listSessionsWithDueRequests } from './requests.sql';

const SESSIONS_MAX = 100;

/**
 * Expires approvals and input requests whose time is over. A bounded, stateless pass: a look without locks finds sessions, then one transaction
 * for each locks its head and looks again. A session that fails does not hide the others.
 *
 * Returns   how many sessions had something to expire, and how many failed; the next pass finds those again.
 * Locks     session head, one session at a time.   Emits: approval/resolved and user-input/resolved with `expired`.
 */
export async function expireRequestsOnce(
  db: Db,
  { limit = SESSIONS_MAX }: { limit?: number } = {},
): Promise<{ changed: number; failed: number }> {
  let changed = 0;
  let failed = 0;
  for (const key of await listSessionsWithDueRequests(db.sql, limit)) {
    try {
      const ended = await inTransaction(db, (tx) => cancelOpenRequests(tx, { ...key, due: true, reason: 'expired' }));
      if (ended > 0) changed += 1;
    } catch (error) {
      failed += 1;
      db.options.onError(error instanceof Error ? error : new Error(String(error)), `the sweep of requests of session ${key.sessionId}`);
    }
  }
  return { changed, failed };
}
