import type { Db, Stream } from '@runplane/database';

/** How long a waiting claimer relies on hints alone. */
const SAFETY_POLL_MS = 1_000;

export interface WaitForClaims<Claimed> {
  /** Whose changes may bring something to claim. */
  readonly stream: Stream;
  readonly waitMs: number;
  readonly signal?: AbortSignal | undefined;
  readonly claim: () => Promise<Claimed[]>;
  /** Claims that nobody will work on. */
  readonly giveBack: (tenantId: string, claimed: readonly Claimed[]) => Promise<unknown>;
}

/** Claims as soon as there is something, at the latest when the time is over. Holds no connection while it waits. */
export async function waitForClaims<Claimed extends { readonly tenantId: string }>(
  db: Db,
  { stream, waitMs, signal, claim, giveBack }: WaitForClaims<Claimed>,
): Promise<Claimed[]> {
  const deadline = performance.now() + waitMs;
  const subscription = db.hub.subscribe(stream);
  try {
    for (;;) {
      const claimed = await claim();
      if (signal?.aborted === true && claimed.length > 0) {
        // Whoever waited has gone: nobody would work on them until their leases end.
        const failures: unknown[] = []; // of one tenant's, which are no reason to keep those of the others
        for (const tenantId of new Set(claimed.map((each) => each.tenantId))) {
          const own = claimed.filter((each) => each.tenantId === tenantId);
          await giveBack(tenantId, own).catch((error: unknown) => failures.push(error));
        }
        if (failures.length > 0) throw failures[0];
        return [];
      }
      const leftMs = deadline - performance.now();
      if (claimed.length > 0 || leftMs <= 0) return claimed;
      const woken = await subscription.next({ timeoutMs: Math.min(SAFETY_POLL_MS, Math.ceil(leftMs)), signal });
      if (woken === 'closed' || woken === 'aborted') return [];
    }
  } finally {
    subscription.close();
  }
}
