import { setTimeout as delay } from 'node:timers/promises';
import type { RawQueries } from './blocked';

const POLL_MS = 5;
const PATIENCE_MS = 60_000;

const NOT_PASSED = `SELECT FROM (VALUES (runplane.feed_horizon())) AS h (horizon)
  WHERE EXISTS (SELECT FROM runplane.outbox_events WHERE tx >= h.horizon) OR EXISTS (SELECT FROM runplane.sessions WHERE changed_tx >= h.horizon)
    OR EXISTS (SELECT FROM runplane.queue_tasks WHERE changed_tx >= h.horizon)`;

/**
 * Resolves when the horizon of the feed has passed every event, and every change of a session or task, that is written. The horizon is one for the whole
 * server: a transaction that another spec file has open holds it back for a moment.
 */
export async function waitForHorizon(db: { readonly pool: RawQueries }): Promise<void> {
  for (const late = Date.now() + PATIENCE_MS; ; await delay(POLL_MS)) {
    const { rows } = await db.pool.query(NOT_PASSED);
    if (rows.length === 0) return;
    if (Date.now() > late) throw new Error('the horizon of the feed is held back');
  }
}
