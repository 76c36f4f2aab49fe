import { newId, type ClaimedSubmission, type SubmissionSettlement } from '@runplane/contracts';
import { inTransaction, openDb, type Db } from '@runplane/database';
import { claimSubmissions, failExhaustedSubmissionsOnce, renewSubmissions, requeueSubmission, settleSubmissions } from '@runplane/queue';
import { acceptSubmission, createSessions } from '@runplane/sessions';
import { pick, type Random, seededRandom } from '../faults/random';

// FIFO-1 under everything that may happen to a claim: claimers that end, fail, give back, go on for too long, die, and lose their connection in the
// middle of a statement. What is judged is what claimers were told and what the logs say, not the rows that the statements keep.

export interface FifoStress {
  readonly url: string;
  readonly tenantId: string;
  readonly seed: number;
  readonly ms: number;
  readonly claimers: number;
  readonly sessions: number;
}

export interface FifoReport {
  readonly seen: Readonly<Record<string, number>>;
  readonly violations: readonly string[];
}

const KIND = 'fifo';

/** Runs for a time and judges; the same seed makes the same choices, not the same interleaving. */
export async function runFifoStress({ url, tenantId, seed, ms, claimers, sessions }: FifoStress): Promise<FifoReport> {
  const db = await openDb({ url, applicationName: 'fifo-claimers', onError: () => undefined });
  const beside = await openDb({ url, applicationName: 'fifo-judge', onError: () => undefined });
  const names = Array.from({ length: sessions }, (_, n) => `fifo-${n}`);
  const seen: Record<string, number> = {};
  const count = (what: string): void => void (seen[what] = (seen[what] ?? 0) + 1);
  const told = new Told();
  try {
    for (const id of names) await createSessions(beside).createSession({ tenantId, header: { id } });
    const until = performance.now() + ms;
    const claimer = async (n: number): Promise<void> => {
      const random = seededRandom(seed + n);
      while (performance.now() < until) {
        await step({ db, beside, tenantId, random, names, told, count }).catch((error: unknown) => {
          count(`refused: ${codeOf(error)}`);
        });
      }
    };
    await Promise.all(Array.from({ length: claimers }, (_, n) => claimer(n)));
    return { seen, violations: [...told.violations, ...(await judgeLogs(beside, tenantId, names, told))] };
  } finally {
    await db.close();
    await beside.close();
  }
}

interface Step {
  readonly db: Db;
  readonly beside: Db;
  readonly tenantId: string;
  readonly random: Random;
  readonly names: readonly string[];
  readonly told: Told;
  readonly count: (what: string) => void;
}

async function step({ db, beside, tenantId, random, names, told, count }: Step): Promise<void> {
  const chance = random();
  if (chance < 0.3) {
    await acceptSubmission(db, { tenantId, sessionId: pick(random, names), operationId: newId('op'), submission: { kind: KIND } });
    return count('accepted');
  }
  if (chance < 0.33) {
    // The connections of some claimers are cut in whatever they do.
    await beside.pool.query(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'fifo-claimers%' AND datname = current_database() AND random() < 0.3`,
    );
    return count('killed');
  }
  if (chance < 0.37) {
    // Time passes by for some claims and pauses.
    await beside.pool.query(
      `UPDATE runplane.submission_heads SET ready_at = runplane.app_now(), expires_at = CASE WHEN state = 'claimed' THEN runplane.app_now() END WHERE random() < 0.2`,
    );
    return count('time passed');
  }
  if (chance < 0.39) {
    const { changed } = await failExhaustedSubmissionsOnce(db);
    return count(changed > 0 ? 'exhausted' : 'nothing exhausted');
  }
  if (chance < 0.45) {
    const failed = told.failed.pop();
    if (failed === undefined) return;
    await inTransaction(db, (tx) => requeueSubmission(tx, { tenantId, ...failed }));
    return count('requeued');
  }
  const before = told.mark();
  const claimed = await claimSubmissions(db, { tenantId, kind: KIND, owner: newId('w'), limit: 1 + Math.floor(random() * 3) });
  for (const claim of claimed) told.claimed(claim, before);
  for (const claim of claimed) await endSomehow({ db, tenantId, random, told, count }, claim);
}

async function endSomehow({ db, tenantId, random, told, count }: Omit<Step, 'names' | 'beside'>, claim: ClaimedSubmission): Promise<void> {
  const { sessionId, operationId, epoch } = claim;
  const chance = random();
  if (chance < 0.1) return count('died');
  if (chance < 0.25) {
    const [renewed] = await renewSubmissions(db, { tenantId, claims: [{ sessionId, operationId, epoch }] });
    count(`renewed: ${renewed?.verdict ?? ''}`);
  }
  const outcome: SubmissionSettlement = chance < 0.7 ? 'completed' : chance < 0.8 ? 'failed' : 'released';
  const error = outcome === 'failed' || (outcome === 'released' && chance < 0.9) ? 'no luck' : undefined;
  const [settled] = await settleSubmissions(db, {
    tenantId,
    settlements: [{ sessionId, operationId, epoch, outcome, error, ...(outcome === 'released' ? { delayMs: 0 } : {}) }],
  });
  count(`${outcome}: ${settled?.verdict ?? ''}`);
  if (settled?.verdict === 'ok' && outcome !== 'released') told.ended(claim);
  if (settled?.verdict === 'ok' && outcome === 'failed') told.failed.push({ sessionId, operationId });
}

/** What claimers were told, and what contradicts it. */
class Told {
  readonly violations: string[] = [];
  readonly failed: { sessionId: string; operationId: string }[] = [];
  /** Ends that were answered with `ok`, by session: the place, and when the answer was there. */
  readonly #ends = new Map<string, { place: number; at: number }[]>();
  readonly #claims = new Set<string>();
  #clock = 0;

  mark(): number {
    return this.#clock;
  }

  claimed({ sessionId, operationId, place, epoch }: ClaimedSubmission, before: number): void {
    // An epoch names a claim together with its submission: a queue that had run empty numbers anew.
    const claim = `${sessionId} ${operationId} ${epoch}`;
    if (this.#claims.has(claim)) this.violations.push(`epoch ${epoch} of ${operationId} in session ${sessionId} was given twice`);
    this.#claims.add(claim);
    const later = this.#ends.get(sessionId)?.find((end) => end.at <= before && end.place >= place);
    if (later !== undefined)
      this.violations.push(`session ${sessionId}: place ${place} was given out after place ${later.place} had ended`);
  }

  ended({ sessionId, place }: ClaimedSubmission): void {
    this.#clock += 1;
    const ends = this.#ends.get(sessionId) ?? [];
    this.#ends.set(sessionId, ends);
    if (ends.some((end) => end.place === place)) this.violations.push(`session ${sessionId}: place ${place} was ended twice`);
    ends.push({ place, at: this.#clock });
  }

  endsOf(sessionId: string): number[] {
    return (this.#ends.get(sessionId) ?? []).map(({ place }) => place);
  }
}

/** Of each log: what ends is the oldest unfinished at that moment; what was answered as ended has ended. */
async function judgeLogs(db: Db, tenantId: string, names: readonly string[], told: Told): Promise<string[]> {
  const { rows } = await db.pool.query<{ sessionId: string; type: string; sequence: number; id: string }>(
    `SELECT session_id AS "sessionId", type, sequence::int AS sequence, data->>'operation_id' AS id FROM runplane.session_events
      WHERE tenant_id = $1 AND session_id = ANY ($2) ORDER BY session_id, sequence`,
    [tenantId, names],
  );
  const violations: string[] = [];
  const open = new Map<string, Map<string, number>>();
  const ended = new Map<string, Set<number>>();
  for (const { sessionId, type, sequence, id } of rows) {
    const waiting = open.get(sessionId) ?? new Map<string, number>();
    open.set(sessionId, waiting);
    if (type === 'submission/accepted' || type === 'submission/requeued') waiting.set(id, sequence);
    if (type !== 'submission/completed' && type !== 'submission/failed') continue;
    const place = waiting.get(id);
    const oldest = Math.min(...waiting.values());
    if (place === undefined) violations.push(`session ${sessionId}: ${id} ends at ${sequence} and was not open`);
    else if (place !== oldest) violations.push(`session ${sessionId}: place ${place} ends at ${sequence} before place ${oldest}`);
    waiting.delete(id);
    if (place !== undefined) ended.set(sessionId, (ended.get(sessionId) ?? new Set()).add(place));
  }
  for (const sessionId of names)
    for (const place of told.endsOf(sessionId))
      if (ended.get(sessionId)?.has(place) !== true)
        violations.push(`session ${sessionId}: the end of place ${place} was answered and is not in the log`);
  return violations;
}

const codeOf = (error: unknown): string => {
  const { code, message } = error as Error & { code?: string };
  return code ?? message;
};
