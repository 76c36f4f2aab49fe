import { setTimeout as delay } from 'node:timers/promises';
import type { RawQueries } from './blocked';

const POLL_MS = 5;
const PATIENCE_MS = 10_000;

/**
 * Resolves when the horizon of the feed has passed everything that is written. The horizon is one for the whole server: a transaction that
 * another spec file has open holds it back for a moment.
 */
export async function waitForHorizon(db: { readonly pool: RawQueries }): Promise<void> {
  for (const late = Date.now() + PATIENCE_MS; ; await delay(POLL_MS)) {
    const { rows } = await db.pool.query('SELECT FROM runplane.outbox_events WHERE tx >= runplane.feed_horizon() LIMIT 1');
    if (rows.length === 0) return;
    if (Date.now() > late) throw new Error('the horizon of the feed is held back');
  }
}
