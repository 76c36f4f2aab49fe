import type { RetentionKind } from '@runplane/contracts';
import { compareC, type Db } from '@runplane/database';
import { deleteSilentReaders } from '@runplane/sessions';
import { retentionPass, type RetentionPass, type RetentionReport, type TenantPass, type TenantResult } from './retention-pass';
import { pruneDueCancelRequests, pruneDueIntents, type Due } from './retention.sql';
import { deleteSilentRunners } from './runner.sql';

const DAY_MS = 86_400_000;

/**
 * Deletes finished dispatch intents of ended runs that are older than `intentsDays`, unless a job of the run is not settled. No copy is made: a
 * run's archive has those that are still there. A repeated command of an ended run is answered without its intent from then on.
 * Locks: the intents, SKIP LOCKED, one statement per tenant. Emits nothing. Repeat: safe.
 */
export function pruneIntentsOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'intents', pass, (tenant) =>
    pruneRows(tenant, { kind: 'intents', rows: 'intents' }, tenant.policy.intentsDays, (due) => pruneDueIntents(db.sql, due)),
  );
}

/** Deletes cancel requests that have been answered for longer than `cancelRequestsDays`, of runs that have ended. The rest as pruneIntentsOnce. */
export function pruneCancelRequestsOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'cancel-requests', pass, (tenant) =>
    pruneRows(tenant, { kind: 'cancel-requests', rows: 'cancelRequests' }, tenant.policy.cancelRequestsDays, (due) =>
      pruneDueCancelRequests(db.sql, due),
    ),
  );
}

/** Deletes runners that nothing was heard of for longer than `runnersDays`, but none that holds a lease or works for an open run. The rest as above. */
export function pruneRunnersOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'runners', pass, (tenant) =>
    pruneRows(tenant, { kind: 'runners', rows: 'runners' }, tenant.policy.runnersDays, ({ days, ...due }) =>
      deleteSilentRunners(db.sql, { ...due, silentMs: days * DAY_MS }),
    ),
  );
}

/**
 * Deletes readers of sessions that have marked nothing read for longer than `readersDays`, with their marks: whoever comes back finds everything
 * unread. Of one with very many marks a part; the next pass goes on. Locks: the readers, SKIP LOCKED → their marks. The rest as above.
 */
export function pruneReadersOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'readers', pass, (tenant) =>
    pruneRows(tenant, { kind: 'readers', rows: 'readers' }, tenant.policy.readersDays, (due) => deleteSilentReaders(db.sql, due)),
  );
}

async function pruneRows(
  { tenantId, limit, dryRun, onRemoved }: TenantPass,
  what: { kind: RetentionKind; rows: string },
  days: number | null,
  prune: (due: Due) => Promise<string[]>,
): Promise<TenantResult> {
  if (days === null) return {};
  const ids = (await prune({ tenantId, days, limit, dryRun })).sort(compareC);
  for (const id of ids) onRemoved?.({ tenantId, kind: what.kind, id });
  return { ids, rows: { [what.rows]: ids.length }, more: ids.length === limit };
}
