import { CLAIM_LEASE_MS_MAX, SESSION_LEASE_MS_MAX, type SessionLease } from '@runplane/contracts';
import { type Db } from '@runplane/database';
import { heartbeat } from '@runplane/runs';
import { aClaimedRun, aClaimedTurn, makeTenants, TENANT } from '@runplane/runs/testing';
import { acquireSessionLease, createSessions } from '@runplane/sessions';
import type pg from 'pg';

/** PLAN_ROWS=1000000 npx jest plans: the same on a million rows (minutes). */
export const ROWS = Number(process.env['PLAN_ROWS'] ?? 10_000);
export const tenantId = TENANT;

/** What the statements of every area are asked of; there inside tests and hooks. */
export interface PlanStore {
  db: Db;
  /** Fills the store: with a million rows a statement takes longer than one of an operation may. */
  filler: pg.Client;
  claimed: Awaited<ReturnType<typeof aClaimedRun>>;
  several: Awaited<ReturnType<typeof aClaimedTurn>>[];
  /** Of the session `log`. */
  leased: SessionLease;
  /** Cursors from where pages of a full store go on, by the name of their list. */
  readonly places: Map<string, string>;
}
export const store = { places: new Map() } as unknown as PlanStore;

/** A run that is claimed, some more, and the session `log` with its lease, for longer than the file takes. */
export async function begin(db: Db, filler: pg.Client): Promise<void> {
  store.db = db;
  store.filler = filler;
  await filler.query('SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0');
  await makeTenants(db);
  store.claimed = await aClaimedRun(db);
  store.several = await Promise.all([1, 2, 3, 4, 5].map(() => aClaimedTurn(db)));
  for (const { run, epoch } of [store.claimed, ...store.several])
    await heartbeat(db, { tenantId, runId: run.id, epoch, leaseMs: CLAIM_LEASE_MS_MAX });
  await createSessions(db).createSession({ tenantId, header: { id: 'log' } });
  store.leased = await acquireSessionLease(db, { tenantId, sessionId: 'log', owner: 'w', leaseMs: SESSION_LEASE_MS_MAX });
}

/** Ended runs and due, waiting and past work, as a store has it after a while. Rows alone: no operation would need so much time. */
export async function fill(): Promise<void> {
  const run = (text: string) =>
    store.filler.query({
      text,
      values: [tenantId, ROWS, store.claimed.run.id].slice(0, Math.max(...[...text.matchAll(/\$(\d)/g)].map(([, n]) => Number(n)))),
    });
  await run(
    `INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard, last_run_id, last_activity_at, changed_tx, last_tx, storage_kind, storage_pvc_name, expires_at)
     SELECT $1, 's' || i, 'p' || i % 100, 'b' || i % 5, 'k', i % 32, 'r' || i, now() - i * interval '1 s', 100 + i / 10, 100 + i / 10, CASE WHEN i % 2 = 0 THEN 'pvc' ELSE 'none' END::runplane.storage_kind,
       CASE WHEN i % 2 = 0 THEN 'v' END, CASE WHEN i % 2 = 0 THEN now() + (i - $2::int / 2) * interval '1 s' END FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.session_heads (tenant_id, session_id, header, incarnation, partition_key, shard, views_version, created_at, last_sequence)
    SELECT $1, 's' || i, '{}', 'x', 'k', i % 32, 1, now() - i * interval '1 s', 4 FROM generate_series(1, $2::int) i`);
  // One long log, and a few events of every other session.
  await run(`INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, data)
    SELECT $1, 'log', 1000 + i, gen_random_uuid(), 'custom/said', now(), '{"text":"x"}' FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, data, append_id, append_count)
    SELECT $1, 's' || i, n, gen_random_uuid(), 'custom/said', now(), '{"text":"x"}', 'a' || n, 1 FROM generate_series(1, $2::int) i, generate_series(0, 4) n`);
  await run(
    `INSERT INTO runplane.session_read_cursors (tenant_id, session_id, reader_id, session_version) SELECT $1, 's' || i, 'eve', 1 FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.session_readers (tenant_id, reader_id, read_tx) SELECT $1, 'ann', 100 + $2::int / 10 - 20`);
  await run(`INSERT INTO runplane.runs (tenant_id, id, project_id, session_id, workspace_ref, provider_id, backend_profile, execution_policy, input_hash, hash_version, status, failure_kind, claimed_by, claim_epoch,
      workspace_path, finished_at, max_attempts, on_runner_lost, partition_key, shard, updated_at, last_command_seq, last_event_seq, cancel_request_id, cancel_requested_at, cancel_reason, cancel_deadline_at, claim_deadline_at)
    SELECT $1, 'r' || i, 'p' || i % 100, 's' || i, '{}', 'd' || i % 10, 'b' || i % 5, '{}', 'h', 1, s.status::runplane.run_state,
      CASE WHEN s.status IN ('failed', 'blocked') THEN 'timeout' END, CASE WHEN s.status IN ('claimed', 'cancelling') THEN 'x' END, 1, 'w/' || i % 50,
      CASE WHEN s.status IN ('completed', 'failed', 'blocked') THEN now() END, 3, 'fail', 'k', i % 32, now() - i * interval '1 s', 1, 5,
      CASE WHEN s.status = 'cancelling' THEN 'q' END, CASE WHEN s.status = 'cancelling' THEN now() END, CASE WHEN s.status = 'cancelling' THEN 'r' END,
      CASE WHEN s.status = 'cancelling' THEN now() + (i + 3600) * interval '1 s' END, CASE WHEN s.status = 'pending' THEN now() + (i + 3600) * interval '1 s' END
    FROM generate_series(1, $2::int) i, LATERAL (SELECT (ARRAY['completed', 'completed', 'completed', 'completed', 'completed', 'failed', 'blocked', 'claimed', 'cancelling', 'pending'])[i % 10 + 1] AS status) s`);
  await run(
    `INSERT INTO runplane.run_search (tenant_id, run_id, text) SELECT $1, 'r' || i, concat_ws(E'\\n', 'r' || i, 'demo', CASE WHEN i % ($2::int / 5) = 0 THEN 'needle' END) FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.run_leases (tenant_id, run_id, runner_id, epoch, expires_at, heartbeat_at)
    SELECT $1, id, 'x', 1, now() + interval '1 hour', now() FROM runplane.runs WHERE status IN ('claimed', 'cancelling') AND id NOT LIKE 'run%' AND $2::int > 0 ORDER BY id LIMIT 5000`);
  await run(`INSERT INTO runplane.commands (tenant_id, id, run_id, session_id, seq, type, payload, payload_hash, hash_version, idempotency_key, state, finished_at, cancel_deadline_at)
    SELECT $1, 'c' || i, 'r' || i, 's' || i, 1, 'turn', '{}', 'h', 1, 'k', CASE WHEN i % 10 < 7 THEN 'completed' ELSE 'pending' END::runplane.command_state, CASE WHEN i % 10 < 7 THEN now() END,
      CASE WHEN i % 10 = 9 THEN now() + (i + 3600) * interval '1 s' END FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.dispatch_intents (tenant_id, id, run_id, command_id, kind, input, input_hash, hash_version, state, runner_job_id, dispatch_outcome, finished_at, ready_at)
    SELECT $1, 'i' || i, 'r' || i, 'c' || i, 'runner-job', '{}', 'h', 1, CASE WHEN i % 5 = 0 THEN 'pending' ELSE 'dispatched' END::runplane.intent_state, 'j' || i,
      CASE WHEN i % 5 = 0 THEN NULL ELSE 'created' END::runplane.dispatch_outcome, CASE WHEN i % 5 = 0 THEN NULL ELSE now() END, now() + (i - $2::int / 2) * interval '1 s' FROM generate_series(1, $2::int) i`);
  // One long run, and a few events of every other.
  await run(
    `INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output) SELECT $1, $3, 1000 + i, 'e' || i, 'assistant_message', '{"text":"x"}', true FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output)
    SELECT $1, 'r' || i, n, 'e' || i || '-' || n, CASE n WHEN 5 THEN 'terminal_status' ELSE 'assistant_message' END, '{"text":"x"}', true FROM generate_series(1, $2::int) i, generate_series(1, 5) n`);
  // More than a page of the feed may scan: of a table that it may read whole anyway, a scan is as good as the index.
  await run(`INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type, event_id, data)
    SELECT 100 + i / 10, i % 32, 'k', $1, 'run', $3, 1000 + i, 'assistant_message', 'e' || i, '{"text":"x"}' FROM generate_series(1, 3 * $2::int) i`);
  await run(
    `INSERT INTO runplane.queue_lanes (tenant_id, queue, lane, max_running) SELECT $1, 'big', 'l' || i, CASE i WHEN 3 THEN 1000000 END FROM generate_series(0, 4) i`,
  );
  await run(`INSERT INTO runplane.queue_tasks (tenant_id, id, project_id, queue, lane, title, priority, state, changed_tx, payload, payload_hash, hash_version, due, ready_at, owner, epoch,
      expires_at, attempts, attempt_id, last_retry_index, ended_at, created_at)
    SELECT $1, 'q' || i, 'p', 'big', 'l' || i % 5, 't', i % 7, s.state::runplane.queue_task_state, 100 + i / 10, '{"n":1}', 'h', 1, i % 10 IN (6, 7, 8), now() + (i + 3600) * interval '1 s',
      CASE s.state WHEN 'running' THEN 'x' END, CASE s.state WHEN 'pending' THEN 0 ELSE 1 END, CASE s.state WHEN 'running' THEN now() + (i + 3600) * interval '1 s' END,
      CASE s.state WHEN 'pending' THEN 0 ELSE 1 END, CASE s.state WHEN 'pending' THEN NULL ELSE 'a' || i END, CASE s.state WHEN 'pending' THEN -1 ELSE 0 END,
      CASE s.state WHEN 'completed' THEN now() END, now() - i * interval '1 s'
    FROM generate_series(1, $2::int) i, LATERAL (SELECT CASE WHEN i % 10 < 5 THEN 'completed' WHEN i % 10 = 5 THEN 'running' ELSE 'pending' END AS state) s`);
  await run(`INSERT INTO runplane.queue_attempts (tenant_id, task_id, attempt_id, retry_index, state, payload_hash, owner, epoch, activated_at, terminal_at)
    SELECT $1, id, attempt_id, 0, state::text::runplane.queue_attempt_state, 'h', 'x', 1, now(), ended_at FROM runplane.queue_tasks WHERE attempt_id IS NOT NULL AND queue = 'big' AND $2::int > 0`);
  await run(
    `INSERT INTO runplane.queue_task_read_cursors (tenant_id, task_id, reader_id, task_version) SELECT $1, 'q' || i, 'eve', 1 FROM generate_series(1, $2::int) i`,
  );
  // Views: `log` has a long one of each kind, every tenth session waits to be recovered, every twentieth to be rebuilt.
  await run(`INSERT INTO runplane.context_windows (tenant_id, session_id, window_id, started_sequence, event_sequence, trigger)
    SELECT $1, 'log', 'w' || i, i, i, 'compaction' FROM generate_series(1, $2::int) i`);
  await run(`UPDATE runplane.session_heads SET first_window_id = 'w1' WHERE tenant_id = $1 AND session_id = 'log' AND $2::int > 0`);
  await run(`INSERT INTO runplane.context_notes (tenant_id, session_id, path, content, updated_sequence)
    SELECT $1, 'log', 'n' || lpad(i::text, 8, '0'), 'text', i FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.context_history (tenant_id, session_id, sequence, window_id, role, content)
    SELECT $1, 'log', 1000 + i, 'w' || i % 2, CASE i % 3 WHEN 0 THEN 'user' ELSE 'assistant' END, 'some words ' || i FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.context_history (tenant_id, session_id, sequence, window_id, role, content)
    SELECT $1, 's' || i, n, 'w0', 'user', 'some words' FROM generate_series(1, $2::int) i, generate_series(0, 1) n`);
  await run(`INSERT INTO runplane.channel_bindings (tenant_id, session_id, address, sequence, data)
    SELECT $1, CASE WHEN i % 2 = 0 THEN 'log' ELSE 's' || i END, 'a' || i, i, '{}' FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.channel_deliveries (tenant_id, session_id, delivery_id, state, data, queued_sequence, updated_at)
    SELECT $1, CASE WHEN i % 2 = 0 THEN 'log' ELSE 's' || i END, 'd' || lpad(i::text, 8, '0'), 'queued', '{}', i, now() FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.session_views (tenant_id, session_id, key, version, sequence, applied_sequence, value)
    SELECT $1, 's' || i, key, 1, 4, 4, '{}' FROM generate_series(1, $2::int) i, unnest(ARRAY['counter', 'subagentIdentity']) key`);
  await run(
    `UPDATE runplane.session_heads SET needs_recovery = true, snapshot = '{}' WHERE tenant_id = $1 AND session_id LIKE 's%0' AND $2::int > 0`,
  );
  await run(
    `UPDATE runplane.session_heads SET views_version = 1000000 WHERE tenant_id = $1 AND session_id NOT LIKE 's%00' AND session_id LIKE 's%' AND $2::int > 0`,
  );
  await run(
    `INSERT INTO runplane.session_rebuilds (tenant_id, session_id, ready_at) SELECT $1, 's' || 20 * i, now() + (i - $2::int / 40) * interval '1 s' FROM generate_series(1, $2::int / 20) i`,
  );
  await run(`INSERT INTO runplane.submissions (tenant_id, session_id, operation_id, submission_id, kind, payload, source, content_hash, hash_version, accepted_sequence, place)
    SELECT $1, 's' || i, 'o', 'u', 'k' || i % 2, '{"n":1}'::json, '{}'::json, 'h', 1, 0, 0 FROM generate_series(1, $2::int) i
    UNION ALL SELECT $1, 'log', 'o' || i, 'u' || i, 'k1', '{"n":1}'::json, '{}'::json, 'h', 1, 1000 + i, 1000 + i FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.submission_heads (tenant_id, session_id, operation_id, kind, place, state, owner, epoch, expires_at, attempts, ready_at)
    SELECT $1, 's' || i, 'o', 'k' || i % 2, 0, s.state::runplane.submission_head_state, CASE s.state WHEN 'claimed' THEN 'x' END, CASE s.state WHEN 'claimed' THEN 2 ELSE 1 END,
      CASE s.state WHEN 'claimed' THEN now() + (i + 3600) * interval '1 s' END, CASE WHEN i % 10 > 7 THEN 10 ELSE 1 END,
      CASE WHEN i % 10 < 5 OR i % 20 = 9 THEN now() - i * interval '1 s' ELSE now() + (i + 3600) * interval '1 s' END
    FROM generate_series(1, $2::int) i, LATERAL (SELECT CASE i % 10 WHEN 5 THEN 'claimed' ELSE 'waiting' END AS state) s
    UNION ALL SELECT $1, 'log', 'o1', 'k1', 1001, 'waiting', NULL, 1, NULL, 0, now() - interval '1 day'`);
  await run(`UPDATE runplane.session_heads SET lease_owner = 'somebody', lease_epoch = 1, lease_expires_at = now() + interval '1 hour'
    WHERE tenant_id = $1 AND session_id IN (SELECT 's' || i FROM generate_series($2::int - 500, $2::int) i)`);
  await store.filler.query('VACUUM ANALYZE');
}
