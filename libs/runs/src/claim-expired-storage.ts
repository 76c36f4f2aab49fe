import {
  CLAIM_BATCH_ROWS_MAX,
  identifier,
  parseInput,
  STORAGE_LEASE_MS_DEFAULT,
  STORAGE_LEASE_MS_MAX,
  STORAGE_LEASE_MS_MIN,
} from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { leaseExpiredStorage, listSharedStorage, returnStorageClaims, type StorageClaim } from '@runplane/sessions';
import { z } from 'zod';
import { listBusySessions } from './session-runs.sql';

const ClaimExpiredStorage = z.strictObject({
  owner: identifier,
  leaseMs: z.int().min(STORAGE_LEASE_MS_MIN).max(STORAGE_LEASE_MS_MAX).default(STORAGE_LEASE_MS_DEFAULT),
  limit: z.int().min(1).max(CLAIM_BATCH_ROWS_MAX).default(10),
  kinds: z
    .array(z.enum(['pvc', 'folder']))
    .min(1)
    .default(['pvc', 'folder']),
});

/** A session with an open run keeps its storage, and so does one that shares it; it is looked at again after this. */
const BUSY_DELAY_MS = 60_000;

/**
 * Leases the deletion of expired storage to a collector, of all tenants. While the lease lives, no run starts in the session (StorageEvicting)
 * and nothing attaches storage of the same name. Afterwards: delete outside, then confirmStorageEvicted or releaseStorage.
 *
 * Input     owner: one incarnation of a collector; leaseMs: time for the deletion, 1 s to 1 h, default 60 s; limit: 1 to 100; kinds.
 * Returns   claims with epoch and storage version. Sessions with an open turn, or any run that has not ended, are not among them, nor are those
 *           whose storage is, holds or lies in that of another session which has not expired or has such a run.
 * Locks     sessions, SKIP LOCKED: waits for nobody.   Writes: sessions.
 * Keeps     OWN-1, OWN-2 (expired by the database's clock, after the lock).
 * Source    the original's listGcExpiredSessions, which offered running sessions and left the deletion unguarded.
 */
export async function claimExpiredStorage(tx: Tx, input: z.input<typeof ClaimExpiredStorage>): Promise<StorageClaim[]> {
  const claims = await leaseExpiredStorage(tx, parseInput(ClaimExpiredStorage, input));
  if (claims.length === 0) return [];
  // Further statements: whoever made a run has held the session's lock before us, and has committed; so has whoever attached the storage elsewhere.
  const busy = [...(await listBusySessions(tx, claims)), ...(await listSharedStorage(tx, claims))];
  const kept = new Map(busy.map((each) => [keyText(each), each]));
  await returnStorageClaims(tx, [...kept.values()], BUSY_DELAY_MS);
  return claims.filter((claim) => !kept.has(keyText(claim)));
}

const keyText = ({ tenantId, sessionId }: { tenantId: string; sessionId: string }): string => `${tenantId}/${sessionId}`;
