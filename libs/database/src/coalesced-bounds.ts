import {
  COALESCED_BYTES_MAX,
  COALESCED_CALLS_MAX,
  COALESCED_EVENTS_MAX,
  COALESCER_QUEUE_BYTES_MAX,
  COALESCER_QUEUE_CALLS_MAX,
} from '@runplane/contracts';
import type { CoalescedWork } from './coalescer';
import type { Db } from './db';

/** What each coalescer may hold, send at once, and let wait for locks: half of the pool, so that the rest goes on. */
export const coalescedBounds = (db: Db): Pick<CoalescedWork<never, never>, 'queue' | 'batch' | 'aloneMax' | 'sideBySideMax'> => ({
  queue: { callsMax: COALESCER_QUEUE_CALLS_MAX, bytesMax: COALESCER_QUEUE_BYTES_MAX },
  batch: { callsMax: COALESCED_CALLS_MAX, rowsMax: COALESCED_EVENTS_MAX, bytesMax: COALESCED_BYTES_MAX },
  aloneMax: Math.max(1, Math.floor(db.options.poolMax / 2)),
  sideBySideMax: 4,
});
