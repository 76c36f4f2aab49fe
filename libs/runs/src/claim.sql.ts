import { RUN_STATES } from '@runplane/contracts';
import { column, maybeRow, sql, type SqlExecutor } from '@runplane/database';
import { feedTx, insertOutboxEvents } from '@runplane/outbox';
import { z } from 'zod';
import type { RunKey } from './run.sql';

const VERDICTS = ['grant', 'takeover', 'keep', 'refuse', 'closed', 'cancelling', 'again'] as const;

const ClaimRow = z.object({
  verdict: column.state(VERDICTS),
  status: column.state(RUN_STATES),
  failureKind: column.text.nullable(),
  holder: column.text.nullable(),
  remainingMs: column.int.nullable(),
  epoch: column.int,
});
export type ClaimRow = z.infer<typeof ClaimRow>;

/**
 * Claims a run in one statement, lock first: the run, then its lease row, then the clock, then the verdict (OWN-1 to OWN-3). A grant and a
 * takeover give the next epoch, write the lease and tell it; `keep` is a repeated call of the present holder and prolongs its lease.
 * `again`: the lease row is not the one that the run's newest version speaks of (a claim committed between snapshot and lock); a fresh
 * statement sees both. No row: no such run.
 */
export function claimRunRow(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
  { runnerId, leaseMs, eventIds, floor }: { runnerId: string; leaseMs: number; eventIds: readonly [string, string]; floor: bigint },
): Promise<ClaimRow | undefined> {
  return maybeRow(
    on,
    ClaimRow,
    sql`
    WITH l AS MATERIALIZED (
      SELECT tenant_id, id, status, failure_kind, claimed_by, claim_epoch, attempts, max_attempts FROM runplane.runs
      WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text FOR NO KEY UPDATE
    ), k AS MATERIALIZED (
      SELECT k.runner_id, k.epoch, k.expires_at FROM l JOIN runplane.run_leases k ON k.tenant_id = l.tenant_id AND k.run_id = l.id
      FOR NO KEY UPDATE OF k
    ), locked AS MATERIALIZED (
      SELECT l.*, k.runner_id, k.epoch AS lease_epoch, k.expires_at, runplane.app_now() AS now FROM l LEFT JOIN k ON true
    ), d AS MATERIALIZED (
      SELECT locked.*, CASE
          WHEN status IN ('completed', 'failed', 'blocked', 'cancelled') THEN 'closed'
          WHEN status = 'cancelling' THEN 'cancelling'
          WHEN status = 'pending' THEN 'grant'
          WHEN lease_epoch IS DISTINCT FROM claim_epoch THEN 'again'
          WHEN expires_at <= now AND attempts < max_attempts THEN 'takeover'
          WHEN expires_at <= now THEN 'refuse'
          WHEN runner_id = ${runnerId}::text THEN 'keep'
          ELSE 'refuse' END AS verdict
      FROM locked
    ), u AS MATERIALIZED (
      UPDATE runplane.runs r SET status = 'claimed', claimed_by = ${runnerId}::text, claim_epoch = r.claim_epoch + 1, attempts = r.attempts + 1,
        last_producer_seq = 0, claim_deadline_at = NULL, updated_at = d.now, started_at = coalesce(r.started_at, d.now),
        duration_deadline_at = coalesce(r.duration_deadline_at, d.now + r.max_duration_ms * interval '1 millisecond'),
        last_event_seq = r.last_event_seq + CASE d.verdict WHEN 'takeover' THEN 2 ELSE 1 END,
        last_tx = greatest(r.last_tx, ${String(floor)}::bigint, ${feedTx})
      FROM d WHERE d.verdict IN ('grant', 'takeover') AND (r.tenant_id, r.id) = (d.tenant_id, d.id)
      RETURNING r.tenant_id, r.id, r.project_id, r.session_id, r.partition_key, r.shard, r.last_tx, r.last_event_seq, r.claim_epoch
    ), lease AS (
      INSERT INTO runplane.run_leases (tenant_id, run_id, runner_id, epoch, expires_at, heartbeat_at)
      SELECT d.tenant_id, d.id, ${runnerId}::text, coalesce(u.claim_epoch, d.claim_epoch), d.now + ${leaseMs}::int * interval '1 millisecond', d.now
      FROM d LEFT JOIN u ON true WHERE d.verdict IN ('grant', 'takeover', 'keep')
      ON CONFLICT (tenant_id, run_id) DO UPDATE SET runner_id = excluded.runner_id, epoch = excluded.epoch, expires_at = excluded.expires_at,
        heartbeat_at = excluded.heartbeat_at
    ), n AS MATERIALIZED (
      SELECT u.last_tx AS tx, u.shard, u.partition_key, u.tenant_id, 'run'::runplane.outbox_stream AS stream, u.id AS stream_id,
        u.last_event_seq - 1 + e.place AS sequence, 'backend_status' AS type, u.project_id, u.session_id, u.id AS run_id, NULL::text AS command_id,
        e.id AS event_id, e.data, d.now AS created_at
      FROM u, d, LATERAL (
        SELECT 0 AS place, ${eventIds[0]}::text AS id,
          json_build_object('phase', 'claim-lost', 'runnerId', d.runner_id, 'epoch', d.claim_epoch, 'reason', 'lease-ended') AS data
        WHERE d.verdict = 'takeover'
        UNION ALL
        SELECT 1, ${eventIds[1]}::text, json_build_object('phase', 'run-claimed', 'runnerId', ${runnerId}::text, 'epoch', u.claim_epoch)
      ) e
    ), written AS (
      INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output, created_at)
      SELECT tenant_id, run_id, sequence, event_id, type, data, false, created_at FROM n
    ), out AS (${insertOutboxEvents(sql`n`, { rows: 'many' })})
    SELECT d.verdict AS "verdict", d.status::text AS "status", d.failure_kind AS "failureKind", coalesce(d.runner_id, d.claimed_by) AS "holder",
      runplane.ms_until(d.expires_at, d.now) AS "remainingMs", coalesce(u.claim_epoch, d.claim_epoch) AS "epoch"
    FROM d LEFT JOIN u ON true`,
  );
}
