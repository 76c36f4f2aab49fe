import type { RetentionKind } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { retentionPass, type RetentionPass, type RetentionReport, type TenantPass, type TenantResult } from './retention-pass';
import { pruneDueCancelRequests, pruneDueIntents, type Due } from './retention.sql';

/**
 * Deletes finished dispatch intents of ended runs that are older than `intentsDays`, unless a job of the run is not settled. No copy is made: a
 * run's archive has those that are still there. A repeated command of an ended run is answered without its intent from then on.
 * Locks: the intents, SKIP LOCKED, one statement per tenant. Emits nothing. Repeat: safe.
 */
export function pruneIntentsOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'intents', pass, (tenant) => pruneRows(db, 'intents', tenant, tenant.policy.intentsDays, pruneDueIntents));
}

/** Deletes cancel requests that have been answered for longer than `cancelRequestsDays`, of runs that have ended. The rest as pruneIntentsOnce. */
export function pruneCancelRequestsOnce(db: Db, pass: RetentionPass = {}): Promise<RetentionReport> {
  return retentionPass(db, 'cancel-requests', pass, (tenant) =>
    pruneRows(db, 'cancelRequests', tenant, tenant.policy.cancelRequestsDays, pruneDueCancelRequests),
  );
}

async function pruneRows(
  db: Db,
  rowsName: string,
  { tenantId, limit, dryRun, onRemoved }: TenantPass,
  days: number | null,
  prune: (on: Db['sql'], due: Due) => Promise<string[]>,
): Promise<TenantResult> {
  if (days === null) return {};
  const ids = await prune(db.sql, { tenantId, days, limit, dryRun });
  const kind: RetentionKind = rowsName === 'intents' ? 'intents' : 'cancel-requests';
  for (const id of ids) onRemoved?.({ tenantId, kind, id });
  return { ids, rows: { [rowsName]: ids.length } };
}
