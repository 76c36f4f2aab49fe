import { newId, type ClaimedQueueTask, type ClaimQueueTasks } from '@runplane/contracts';
import { coalescedBounds, coalescerOf, type Coalescer, type Db, type Verdict } from '@runplane/database';
import type { z } from 'zod';
import { ALWAYS_TOGETHER } from './always-together';
import type { ClaimPlace } from './claim.sql';

type ParsedClaim = z.output<typeof ClaimQueueTasks>;

/** A claim of one tenant, or of all. */
export interface ScopedClaim {
  readonly tenantId: string | undefined;
  readonly claim: ParsedClaim;
}

/** Claims of more tasks than this have a statement each: little is saved, and one would take what all others came for. */
export const SHARED_CLAIM_MAX = 4;
/** Tasks of one statement. A LIMIT is part of its text: few different ones. */
const TASKS_TOGETHER_MAX = 16;

/** Carries out claims of one scope, queue and lane; the tasks, in order, go to the places. A place between may go without one. */
export type Claiming = (db: Db, scope: ScopedClaim, places: readonly ClaimPlace[]) => Promise<ClaimedQueueTask[]>;

export const placesOf = ({ claim: { owner, leaseMs, limit } }: ScopedClaim): ClaimPlace[] =>
  Array.from({ length: limit }, () => ({ owner, leaseMs, attemptId: newId('qa') }));

/**
 * Where the claims of one process meet: those of the same lanes share a statement, and get its tasks in the order of their arrival. Claimers that were
 * woken by one hint are a statement then, not one each.
 */
export function claimCoalescer(db: Db, claimFor: Claiming): Coalescer<ScopedClaim, ClaimedQueueTask[]> {
  let calls = 0;
  const slow = { count: 0, max: coalescedBounds(db).aloneMax };
  return coalescerOf(db, 'queue-claim', () => ({
    describe: ({ claim: { limit } }) => ({ lane: String((calls += 1)), single: undefined, last: false, rows: limit, bytes: limit }),
    together: (claims) => claimTogether(db, claims, { claimFor, slow }),
    alone: (scoped) => claimFor(db, scoped, placesOf(scoped)),
    isRepeatable: () => false,
    ...coalescedBounds(db),
    sideBySideMax: ALWAYS_TOGETHER,
  }));
}

/** Statements that wait for a lane which somebody holds: so many, and those behind them are not kept waiting with them. */
interface SlowClaims {
  count: number;
  readonly max: number;
}
/** How long a batch waits for the last of its statements. */
const SLOW_MS = 100;

async function claimTogether(
  db: Db,
  claims: readonly ScopedClaim[],
  { claimFor, slow }: { claimFor: Claiming; slow: SlowClaims },
): Promise<Verdict<ClaimedQueueTask[]>[]> {
  const verdicts = new Map<ScopedClaim, Verdict<ClaimedQueueTask[]>>();
  const answer = async (group: readonly ScopedClaim[]): Promise<void> => {
    const [first] = group;
    if (first === undefined) return;
    try {
      const places = group.map(placesOf);
      const tasks = await claimFor(db, first, places.flat());
      const placeOf = new Map(places.flatMap((own, place) => own.map(({ attemptId }) => [attemptId, place])));
      group.forEach((scoped, place) => {
        verdicts.set(scoped, { kind: 'answer', answer: tasks.filter(({ attemptId }) => placeOf.get(attemptId) === place) });
      });
    } catch (refusal) {
      // Of this statement only: what the others have claimed is theirs.
      for (const scoped of group) verdicts.set(scoped, { kind: 'refused', refusal });
    }
  };
  const groups = groupsOf(claims).map((group) => ({ group, answered: answer(group) }));
  const all = Promise.all(groups.map(({ answered }) => answered));
  await (slow.count < slow.max ? atMost(SLOW_MS, all) : all);
  for (const { group, answered } of groups) {
    if (group.every((scoped) => verdicts.has(scoped))) continue;
    slow.count += 1;
    void answered.then(() => (slow.count -= 1));
    for (const scoped of group) verdicts.set(scoped, { kind: 'answer', answer: answered.then(() => answerIn(verdicts.get(scoped))) });
  }
  return claims.map((scoped) => verdicts.get(scoped) ?? { kind: 'busy' });
}

async function atMost(ms: number, all: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([all, new Promise<void>((resolve) => (timer = setTimeout(resolve, ms)))]);
  clearTimeout(timer);
}

function answerIn(verdict: Verdict<ClaimedQueueTask[]> | undefined): ClaimedQueueTask[] | Promise<ClaimedQueueTask[]> {
  if (verdict?.kind === 'answer') return verdict.answer;
  throw verdict?.kind === 'refused' ? verdict.refusal : new Error('a claim has no verdict');
}

/** Claims that one statement can carry out, in order of arrival. */
export function groupsOf(claims: readonly ScopedClaim[]): ScopedClaim[][] {
  const open = new Map<string, { group: ScopedClaim[]; tasks: number }>();
  const groups: ScopedClaim[][] = [];
  for (const scoped of claims) {
    const { queue, lane, limit } = scoped.claim;
    const name = JSON.stringify([scoped.tenantId, queue, lane]);
    let last = open.get(name);
    if (last === undefined || last.tasks + limit > TASKS_TOGETHER_MAX) {
      last = { group: [], tasks: 0 };
      open.set(name, last);
      groups.push(last.group);
    }
    last.group.push(scoped);
    last.tasks += limit;
  }
  return groups;
}
