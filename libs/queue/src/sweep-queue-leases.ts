import { isDomainError } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { settleEndedLeases } from './settle.sql';
import { announceQueue } from './streams';

/** Of one pass. */
const ROWS_MAX = 200;

/**
 * Takes tasks back whose lease has ended without a word of their holder: the attempt fails as `runner-lost`; the task waits for its back-off and may be
 * claimed again, or fails where that was the last try. The epoch grows: the old holder is fenced.
 *
 * Locks     lanes that count the tasks → tasks, SKIP LOCKED → attempts. One bounded statement; where a lane cannot be had, another one without its tasks.
 * Returns   how many were taken back.
 * Keeps     OWN-1, OWN-2.
 */
export async function sweepQueueLeasesOnce(
  db: Db,
  { limit = ROWS_MAX }: { limit?: number | undefined } = {},
): Promise<{ changed: number }> {
  const found = await settleEndedLeases(db.sql, { limit, wait: 'lanes' }).catch((error: unknown) => {
    if (!isDomainError(error) || error.code !== 'lock_timeout') throw error;
    return settleEndedLeases(db.sql, { limit, wait: 'none' });
  });
  const taken = found.filter(({ isHeld }) => isHeld);
  for (const { tenantId, queue } of taken) if (queue !== null) announceQueue(db, tenantId, queue); // a place in its lane is free
  return { changed: taken.length };
}
