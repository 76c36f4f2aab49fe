import { emptySql, sql, type Sql } from '@runplane/database';

/**
 * How many runs use up a backend's capacity: those that a runner holds, and those whose runner has been launched and has not claimed yet. Waiting runs
 * do not count. Answered from the index runs_live_by_profile alone, which has live runs only.
 */
export function countLiveRuns({
  backendProfile,
  tenantId,
  except,
}: {
  backendProfile: string;
  tenantId: string | null;
  except: { tenantId: string; runId: string } | undefined;
}): Sql {
  return sql`SELECT count(*) FROM runplane.runs u
    WHERE ((u.status = 'pending' AND u.launched_at IS NOT NULL) OR u.status IN ('claimed', 'cancelling')) AND u.backend_profile = ${backendProfile}::text
      ${tenantId === null ? emptySql : sql`AND u.tenant_id = ${tenantId}::text`}
      ${except === undefined ? emptySql : sql`AND (u.tenant_id, u.id) <> (${except.tenantId}::text, ${except.runId}::text)`}`;
}
