import type { Db } from '@runplane/database';
import { writeDue } from './settle.sql';
import { announceQueue } from './streams';

/** Of one pass. */
const ROWS_MAX = 1_000;

/**
 * Makes tasks claimable whose time has come: those put off by their creator, and those that waited after a failure. Until then they are in no index
 * that claims read. One bounded statement, SKIP LOCKED; nothing is told of it, since nothing but the time has changed.
 */
export async function readyDueTasksOnce(db: Db, { limit = ROWS_MAX }: { limit?: number | undefined } = {}): Promise<{ changed: number }> {
  const ready = await writeDue(db.sql, limit);
  const queues = new Map(ready.map(({ tenantId, queue }) => [JSON.stringify([tenantId, queue]), { tenantId, queue }]));
  for (const { tenantId, queue } of queues.values()) announceQueue(db, tenantId, queue);
  return { changed: ready.length };
}
