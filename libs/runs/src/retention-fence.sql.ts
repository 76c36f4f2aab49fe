import { column, oneRow, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { RunKey } from './run.sql';

const FactsRow = z.object({
  lastEventSeq: column.int8,
  lastEventType: column.text.nullable(),
  lastEventAt: column.time.nullable(),
  lastActivityAt: column.time,
  isTerminal: column.bool,
  openCommands: column.int,
  openIntents: column.int,
  unsettledJobs: column.int,
});
export type RetentionFacts = z.infer<typeof FactsRow>;

/** What a retention asks about a run, each answered from an index: nothing is read but the last event, however long the log. */
export function findRetentionFacts(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<RetentionFacts> {
  return oneRow(
    on,
    FactsRow,
    sql`
    SELECT r.last_event_seq::text AS "lastEventSeq", e.type AS "lastEventType", runplane.wire_time(e.created_at) AS "lastEventAt",
      runplane.wire_time(greatest(r.updated_at, e.created_at, k.heartbeat_at)) AS "lastActivityAt", r.finished_at IS NOT NULL AS "isTerminal",
      (SELECT count(*)::int FROM runplane.commands c WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id AND c.state IN ('pending', 'acknowledged')) AS "openCommands",
      (SELECT count(*)::int FROM runplane.dispatch_intents t WHERE t.tenant_id = r.tenant_id AND t.run_id = r.id
        AND t.state IN ('pending', 'dispatching', 'retry')) AS "openIntents",
      (SELECT count(*)::int FROM runplane.runner_jobs j WHERE j.tenant_id = r.tenant_id AND j.run_id = r.id AND j.settled_at IS NULL) AS "unsettledJobs"
    FROM runplane.runs r
    LEFT JOIN runplane.run_leases k ON k.tenant_id = r.tenant_id AND k.run_id = r.id
    LEFT JOIN LATERAL (
      SELECT type, created_at FROM runplane.run_events e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id ORDER BY e.seq DESC LIMIT 1
    ) e ON true
    WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`,
  );
}
