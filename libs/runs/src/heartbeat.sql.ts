import { RUN_STATES } from '@runplane/contracts';
import { column, emptySql, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { RunKey } from './run.sql';

const RENEWALS = ['renewed', 'expired', 'lost', 'locked'] as const;
export type Renewal = (typeof RENEWALS)[number];

/** A runner's sign of life. */
export interface Beat extends RunKey {
  readonly epoch: number;
  readonly leaseMs: number;
  readonly commandsAfterSeq: number;
}

/**
 * Prolongs leases, of a run one at most, lock first: the clock is read after the lock is held (OWN-2). `lost` also where there is no lease;
 * `locked` where somebody else has the row and `wait` is false.
 */
export async function renewLeases(on: SqlExecutor, beats: readonly Beat[], { wait }: { wait: boolean }): Promise<Renewal[]> {
  const named = sql`unnest(${beats.map((beat) => beat.tenantId)}::text[], ${beats.map((beat) => beat.runId)}::text[], ${beats.map((beat) => beat.epoch)}::int[],
    ${beats.map((beat) => beat.leaseMs)}::int[]) WITH ORDINALITY AS c (tenant_id, run_id, epoch, lease_ms, call)`;
  const found = await rows(
    on,
    z.object({ call: column.int, renewal: column.state(RENEWALS) }),
    sql`
    WITH l AS MATERIALIZED (
      SELECT c.call, c.epoch AS named_epoch, c.lease_ms, k.tenant_id, k.run_id, k.epoch, k.expires_at
      FROM ${named} JOIN runplane.run_leases k ON k.tenant_id = c.tenant_id AND k.run_id = c.run_id
      ORDER BY k.run_id COLLATE "C" FOR NO KEY UPDATE OF k ${wait ? emptySql : sql`SKIP LOCKED`}
    ), locked AS MATERIALIZED (SELECT l.*, runplane.app_now() AS now FROM l),
    d AS MATERIALIZED (
      SELECT locked.*, CASE WHEN epoch <> named_epoch THEN 'lost' WHEN expires_at <= now THEN 'expired' ELSE 'renewed' END AS renewal FROM locked
    ), u AS (
      UPDATE runplane.run_leases k SET expires_at = d.now + d.lease_ms * interval '1 millisecond', heartbeat_at = d.now
      FROM d WHERE d.renewal = 'renewed' AND (k.tenant_id, k.run_id) = (d.tenant_id, d.run_id)
    )
    SELECT call::int AS "call", renewal AS "renewal" FROM d
    UNION ALL SELECT c.call::int, 'locked' FROM ${named} JOIN runplane.run_leases k ON k.tenant_id = c.tenant_id AND k.run_id = c.run_id
      WHERE NOT ${wait}::bool AND c.call NOT IN (SELECT call FROM d)`,
  );
  const renewals = beats.map((): Renewal => 'lost');
  for (const { call, renewal } of found) renewals[call - 1] = renewal;
  return renewals;
}

const FactsRow = z.object({
  call: column.int,
  status: column.state(RUN_STATES),
  claimEpoch: column.int,
  cancelRequestId: column.text.nullable(),
  cancelReason: column.text.nullable(),
  cancelDeadlineInMs: column.int.nullable(),
  durationDeadlineInMs: column.int.nullable(),
  cancelledCommands: column.json.pipe(z.array(z.string())),
  hasNewCommands: column.bool,
  serverTime: column.time,
});
export type HeartbeatFacts = z.infer<typeof FactsRow>;

/** What runners are told with their heartbeats, in their order; undefined where there is no such run. */
export async function listHeartbeatFacts(on: SqlExecutor, beats: readonly Beat[]): Promise<(HeartbeatFacts | undefined)[]> {
  const found = await rows(
    on,
    FactsRow,
    sql`
    SELECT c.call::int AS "call", r.status::text AS "status", r.claim_epoch AS "claimEpoch", r.cancel_request_id AS "cancelRequestId",
      r.cancel_reason AS "cancelReason", runplane.ms_until(r.cancel_deadline_at, runplane.app_now()) AS "cancelDeadlineInMs",
      runplane.ms_until(r.duration_deadline_at, runplane.app_now()) AS "durationDeadlineInMs",
      coalesce((SELECT json_agg(k.id ORDER BY k.seq) FROM runplane.commands k WHERE k.tenant_id = r.tenant_id AND k.run_id = r.id
        AND k.state IN ('pending', 'acknowledged') AND k.cancel_request_id IS NOT NULL), '[]')::text AS "cancelledCommands",
      EXISTS (SELECT FROM runplane.commands k WHERE k.tenant_id = r.tenant_id AND k.run_id = r.id AND k.seq > c.after_seq
        AND k.state IN ('pending', 'acknowledged')) AS "hasNewCommands",
      runplane.wire_time(runplane.app_now()) AS "serverTime"
    FROM unnest(${beats.map((beat) => beat.tenantId)}::text[], ${beats.map((beat) => beat.runId)}::text[], ${beats.map((beat) => beat.commandsAfterSeq)}::int[])
      WITH ORDINALITY AS c (tenant_id, run_id, after_seq, call)
    JOIN runplane.runs r ON r.tenant_id = c.tenant_id AND r.id = c.run_id`,
  );
  const facts = beats.map((): HeartbeatFacts | undefined => undefined);
  for (const row of found) facts[row.call - 1] = row;
  return facts;
}
