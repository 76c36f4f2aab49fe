import {
  RETENTION_ROWS_DEFAULT,
  RETENTION_ROWS_MAX,
  parseInput,
  RetentionOverride,
  RetentionPolicy,
  type RetentionKind,
} from '@runplane/contracts';
import { requireTenant, type Db } from '@runplane/database';
import type { ArchiveSink } from './archive-sink';
import { listRetentionSettings, type RetentionPlace } from './retention.sql';

// One pass of retention over one kind of rows: tenant by tenant, each by its own policy, each with its own bound, so that the backlog of one
// does not starve the others. What a pass did not reach, or could not do, the next one finds.

export interface RetentionPass {
  /** Only this tenant; all that have a policy when absent. */
  readonly tenantId?: string | undefined;
  /** Wins over what the tenants have set, field by field. */
  readonly policy?: RetentionOverride | undefined;
  /** Removed of each tenant at most. */
  readonly limit?: number | undefined;
  /** Says what would go, and changes nothing. */
  readonly dryRun?: boolean | undefined;
  /** Where copies go. Without one nothing of a tenant that wants copies is removed. */
  readonly archive?: ArchiveSink | undefined;
  /** Where the last pass has come to (`next` of its report): runs that must stay are not looked at by every pass. */
  readonly after?: RetentionPlaces | undefined;
  /** Ends the pass between two steps; what is half done is brought to its end by a later one. */
  readonly signal?: AbortSignal | undefined;
  /** Events that one transaction removes at most; a run with more is removed in several. */
  readonly chunkEvents?: number | undefined;
  /** Called every now and then while a pass goes on: a long run takes minutes to archive. */
  readonly onAlive?: (() => void) | undefined;
  /** Told of each thing that went. */
  readonly onRemoved?: ((removed: { tenantId: string; kind: RetentionKind; id: string }) => void) | undefined;
}

export type RetentionPlaces = ReadonlyMap<string, RetentionPlace>;

/** What one pass has done for one tenant. */
export interface RetentionOfTenant {
  readonly tenantId: string;
  readonly kind: RetentionKind;
  /** Of what went, or would go, in that order. */
  readonly ids: readonly string[];
  /** How many rows that is, by their kind. */
  readonly rows: Readonly<Record<string, number>>;
  /** What could not be removed, and why; tried again after a back-off. */
  readonly failures: readonly { readonly id: string; readonly reason: string }[];
  /** The tenant wants copies, and there is no archive: nothing was looked at. */
  readonly archiveMissing: boolean;
  /** The pass has ended by its limits: there may be more. */
  readonly more: boolean;
}

export interface RetentionReport {
  readonly kind: RetentionKind;
  readonly dryRun: boolean;
  /** How much went; 0 for a dry run. */
  readonly changed: number;
  readonly failed: number;
  readonly tenants: readonly RetentionOfTenant[];
  /** Tenants with more to look at, and from where. */
  readonly next: RetentionPlaces;
}

/** What a tenant's part of a pass works with. */
export interface TenantPass extends RetentionPass {
  readonly tenantId: string;
  readonly policy: RetentionPolicy;
  readonly limit: number;
  readonly dryRun: boolean;
}

export type TenantResult = Partial<Omit<RetentionOfTenant, 'tenantId' | 'kind'>> & { readonly next?: RetentionPlace | null };

/** Runs `work` for each tenant whose policy gives `kind` an age; of `among`, where given, for each, also where it has set nothing. Errors: TenantNotFound; InvalidRequest for the policy of the call. */
export async function retentionPass(
  db: Db,
  kind: RetentionKind,
  pass: RetentionPass,
  work: (tenant: TenantPass) => Promise<TenantResult>,
  among?: readonly string[],
): Promise<RetentionReport> {
  const { dryRun = false, signal } = pass;
  const limit = Math.min(Math.max(pass.limit ?? RETENTION_ROWS_DEFAULT, 1), RETENTION_ROWS_MAX);
  const tenants: RetentionOfTenant[] = [];
  const next = new Map<string, RetentionPlace>();
  for (const { tenantId, policy } of await policiesOf(db, pass, among)) {
    if (signal?.aborted === true) break;
    const result = await work({ ...pass, tenantId, policy, limit, dryRun });
    const { ids = [], rows = {}, failures = [], archiveMissing = false, more = false } = result;
    if (ids.length > 0 || failures.length > 0 || archiveMissing || more)
      tenants.push({ tenantId, kind, ids, rows, failures, archiveMissing, more });
    if (result.next != null) next.set(tenantId, result.next);
  }
  const sum = (of: (tenant: RetentionOfTenant) => number): number => tenants.reduce((total, tenant) => total + of(tenant), 0);
  return {
    kind,
    dryRun,
    changed: dryRun ? 0 : sum(({ ids }) => ids.length),
    failed: sum(({ failures }) => failures.length),
    tenants,
    next,
  };
}

/** A tenant whose stored policy is not valid keeps everything, and does not hide the others. */
async function policiesOf(
  db: Db,
  { tenantId, policy: override }: RetentionPass,
  among: readonly string[] | undefined,
): Promise<{ tenantId: string; policy: RetentionPolicy }[]> {
  if (override !== undefined) parseInput(RetentionOverride, override);
  if (tenantId !== undefined) await requireTenant(db.sql, tenantId);
  const found = await listRetentionSettings(db.sql, { tenantId, among, every: override !== undefined || among !== undefined });
  return found.flatMap((tenant) => {
    const stored = RetentionPolicy.safeParse(tenant.retention ?? {});
    if (stored.success)
      return [{ tenantId: tenant.tenantId, policy: override === undefined ? stored.data : overridden(stored.data, override) }];
    db.options.onError(stored.error, `the retention policy of tenant ${tenant.tenantId}`);
    return [];
  });
}

const overridden = (stored: RetentionPolicy, override: RetentionOverride): RetentionPolicy =>
  RetentionPolicy.parse({ ...stored, ...parseInput(RetentionOverride, override) });
