import type { Db } from '@runplane/database';

/** One way of claiming, measured on an empty store and behind a backlog. */
export interface ClaimCase {
  readonly name: string;
  /** How many each call must get. */
  readonly gets: number;
  /** Makes what one call will claim, out of the measurement. */
  readonly before: (db: Db) => Promise<void>;
  /** What is measured; resolves with how many it got, and what to do afterwards, out of the measurement again. */
  readonly call: (db: Db) => Promise<{ got: number; after: () => Promise<unknown> }>;
}

/** A case that takes something, and then ends or gives back what it got. */
export function claimCase<Claim>({
  take,
  end,
  ...rest
}: Omit<ClaimCase, 'call'> & {
  readonly take: (db: Db) => Promise<Claim[]>;
  readonly end: (db: Db, claimed: readonly Claim[]) => Promise<unknown>;
}): ClaimCase {
  return {
    ...rest,
    call: async (db) => {
      const claimed = await take(db);
      return { got: claimed.length, after: () => (claimed.length === 0 ? Promise.resolve() : end(db, claimed)) };
    },
  };
}

/** Milliseconds of one call. Throws when it has not got what it should have. */
export async function timedCall(db: Db, { name, gets, before, call }: ClaimCase): Promise<number> {
  await before(db);
  const start = performance.now();
  const { got, after } = await call(db);
  const took = performance.now() - start;
  if (got !== gets) throw new Error(`${name}: ${got} were claimed, not ${gets}`);
  await after();
  return took;
}
