// Temporary ownership, the part without a database (OWN-1, OWN-2): a hold has an owner, an epoch and an end. The database judges the end
// and says how many milliseconds remain; nothing here looks at a clock. Statements: claims.sql.ts.

/** A hold as read under its lock; `expiresInMs` by the database's clock, null where nobody holds. */
export interface Hold {
  readonly owner: string | null;
  readonly epoch: number;
  readonly expiresInMs: number | null;
}

export type ClaimDecision =
  /** Free, or its lease has ended: the claimant gets the next epoch. `from`: who held it and did not let go. */
  | { kind: 'grant'; epoch: number; from: string | null }
  /** The claimant holds it already, under this epoch: a repeated call. */
  | { kind: 'keep'; epoch: number }
  | { kind: 'refuse'; owner: string; remainingMs: number };

/** True while the end of a hold lies ahead. */
export function isLive(expiresInMs: number | null): boolean {
  return expiresInMs !== null && expiresInMs > 0;
}

/** What is left of a hold whose statement was sent at `askedAt` (performance.now()): it runs on while the answer, and the commit, are on their way. */
export const remainingSince = (remainingMs: number, askedAt: number): number => remainingMs - (performance.now() - askedAt);

/** Who gets it. The epoch grows with every grant, so that whoever held it before is refused from then on. */
export function decideClaim(hold: Hold, claimant: { owner: string }): ClaimDecision {
  const { owner, epoch, expiresInMs } = hold;
  if (owner === null || expiresInMs === null || !isLive(expiresInMs)) return { kind: 'grant', epoch: epoch + 1, from: owner };
  if (owner === claimant.owner) return { kind: 'keep', epoch };
  return { kind: 'refuse', owner, remainingMs: expiresInMs };
}

/**
 * How long to wait after the attempt of this number (0 and 1 are the first): doubling from `baseMs` to `maxMs`, then a random point in the
 * upper half, so that many who failed together do not come back together. Never below `baseMs`, never above `maxMs`.
 */
export function backOffMs(attempt: number, limits: { baseMs: number; maxMs: number }, random: () => number = Math.random): number {
  const doublings = Math.min(Math.max(attempt - 1, 0), 52); // beyond, the product leaves the exact integers; maxMs cuts long before
  const ceiling = Math.min(limits.baseMs * 2 ** doublings, limits.maxMs);
  return Math.round(Math.max(limits.baseMs, ceiling * (0.5 + random() / 2)));
}
