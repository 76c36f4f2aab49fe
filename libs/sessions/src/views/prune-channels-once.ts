import { CHANNEL_ROUTE_KEPT_MS, CHANNEL_ROW_KEPT_MS, RETENTION_ROWS_DEFAULT } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { deleteOldRows } from './prune-channels.sql';

export interface PrunedChannels {
  readonly inbounds: number;
  readonly deliveries: number;
  readonly routes: number;
  /** All of them. */
  readonly changed: number;
}

/**
 * One bounded pass over what channels keep of what is over: messages that came in and deliveries that have ended, 30 days after their event, and
 * routes of turns, a day after the turn's end. The log keeps the events.
 *
 * A message is known as a repeat for as long as its row is there. A rebuild makes removed rows anew, and the next pass removes them.
 * Locks: the rows, skipping locked ones.   Repeat: safe.
 */
export async function pruneChannelsOnce(
  db: Db,
  {
    keptMs = CHANNEL_ROW_KEPT_MS,
    routeKeptMs = CHANNEL_ROUTE_KEPT_MS,
    limit = RETENTION_ROWS_DEFAULT,
  }: { keptMs?: number; routeKeptMs?: number; limit?: number } = {},
): Promise<PrunedChannels> {
  const inbounds = await deleteOldRows(db.sql, 'inbounds', { olderThanMs: keptMs, limit });
  const deliveries = await deleteOldRows(db.sql, 'deliveries', { olderThanMs: keptMs, limit });
  const routes = await deleteOldRows(db.sql, 'routes', { olderThanMs: routeKeptMs, limit });
  return { inbounds, deliveries, routes, changed: inbounds + deliveries + routes };
}
