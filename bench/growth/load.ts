import type pg from 'pg';

// A store as it is after a while, as rows alone: by operations it would take days. Half of the runs belong to the tenant that is measured, the
// rest to nine others; newer runs have higher numbers. What stands in the rows is what operations leave, so that they can go on from it.

export interface Size {
  readonly runs: number;
  /** Nine of each run, the rest in ten long ones of the tenant that is measured. */
  readonly events: number;
}

const EVENTS_PER_RUN = 9;
const LONG_RUNS = 10;
export const LONG_RUN = 'run_long_0';
/** A word in the texts of the oldest runs alone. */
export const OLD_WORD = 'ancient-lane';

const CHUNK = 100_000;

/** In `$1`: how many runs. Every part is a statement of `i`, the number of a run, from `$2` to `$3`. */
const RUN_ID = `'run_' || lpad(i::text, 8, '0')`;
const TENANT_OF = `CASE WHEN i % 2 = 0 THEN 'bench' ELSE 'tenant-' || i % 9 END`;
const SESSION_OF = `CASE WHEN i % 5 <> 4 THEN 'session-' || i / 20 END`;
/** Parts of a hundred: 94 completed, 2 failed, 1 blocked, 1 cancelled, 1 pending, 1 claimed. By i / 2, so that each tenant has them all. */
const STATE_OF = `(CASE i / 2 % 100 WHEN 0 THEN 'pending' WHEN 1 THEN 'claimed' WHEN 2 THEN 'cancelled' WHEN 3 THEN 'blocked' WHEN 4 THEN 'failed' WHEN 5 THEN 'failed' ELSE 'completed' END)`;
const PLACES = `generate_series($2::int, $3::int) i, LATERAL (SELECT ${TENANT_OF} AS tenant_id, ${RUN_ID} AS run_id, ${SESSION_OF} AS session_id, ${STATE_OF} AS state,
  'project-' || i / 2 % 40 AS project_id, 'profile-' || i / 2 % 5 AS backend_profile, 'provider-' || i / 2 % 4 AS provider_id,
  CASE WHEN i / 2 % 2 = 0 THEN 'team/workspace-' || i / 4 % 200 END AS path, CASE WHEN i < $1::int / 20 THEN '${OLD_WORD}' END AS lane,
  runplane.app_now() - ($1::int - i) * interval '8 s' AS at) r, LATERAL (SELECT r.state NOT IN ('pending', 'claimed') AS ended,
  r.tenant_id || '/' || coalesce(r.session_id, r.run_id) AS partition_key) p`;
const FAILURE = `CASE WHEN state IN ('failed', 'blocked') THEN 'backend-failed' WHEN state = 'cancelled' THEN 'cancelled' END`;
const WORDS = 'The migration adds a partial index for open turns; the existing one stays until the next release has run for a day.';

const PARTS: readonly { table: string; text: string }[] = [
  {
    table: 'sessions',
    text: `INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard, execution_state, last_run_id, last_activity_at, updated_at)
      SELECT DISTINCT ON (tenant_id, session_id) tenant_id, session_id, project_id, backend_profile, partition_key, i % 32, 'terminal'::runplane.session_state, run_id, at, at
      FROM ${PLACES} WHERE session_id IS NOT NULL ORDER BY tenant_id, session_id, i DESC ON CONFLICT DO NOTHING`,
  },
  {
    table: 'session_heads',
    text: `INSERT INTO runplane.session_heads (tenant_id, session_id, header, incarnation, project_id, partition_key, shard, views_version)
      SELECT DISTINCT ON (tenant_id, session_id) tenant_id, session_id, json_build_object('id', session_id), replace(gen_random_uuid()::text, '-', ''), project_id,
        partition_key, i % 32, 1 FROM ${PLACES} WHERE session_id IS NOT NULL ORDER BY tenant_id, session_id, i DESC ON CONFLICT DO NOTHING`,
  },
  {
    table: 'runs',
    text: `INSERT INTO runplane.runs (tenant_id, id, project_id, session_id, workspace_ref, workspace_path, provider_id, backend_profile, execution_policy, input_hash, hash_version,
        status, failure_kind, claimed_by, claim_epoch, max_attempts, on_runner_lost, last_event_seq, last_command_seq, partition_key, shard, created_at, updated_at, finished_at)
      SELECT tenant_id, run_id, project_id, session_id, CASE WHEN path IS NULL THEN '{}' ELSE jsonb_build_object('path', path) END, path, provider_id, backend_profile,
        '{"network":"none"}', md5(run_id) || md5(tenant_id), 1, state::runplane.run_state, ${FAILURE}, CASE WHEN state = 'claimed' THEN 'runner-' || i END, 1, 3, 'fail',
        ${EVENTS_PER_RUN}, 1, partition_key, i % 32, at - interval '1 min', at, CASE WHEN ended THEN at END FROM ${PLACES}`,
  },
  {
    table: 'run_search',
    text: `INSERT INTO runplane.run_search (tenant_id, run_id, text)
      SELECT tenant_id, run_id, concat_ws(E'\\n', run_id, project_id, path, backend_profile, provider_id, session_id, lane, ${FAILURE}) FROM ${PLACES}`,
  },
  {
    table: 'run_leases',
    text: `INSERT INTO runplane.run_leases (tenant_id, run_id, runner_id, epoch, expires_at, heartbeat_at)
      SELECT tenant_id, run_id, 'runner-' || i, 1, runplane.app_now() + interval '1 day', at FROM ${PLACES} WHERE state = 'claimed'`,
  },
  {
    table: 'commands',
    text: `INSERT INTO runplane.commands (tenant_id, id, run_id, session_id, seq, type, payload, payload_hash, hash_version, idempotency_key, state, failure_kind, created_at, finished_at)
      SELECT tenant_id, 'cmd_' || i, run_id, session_id, 1, 'note', '{"text":"go"}', md5(run_id), 1, 'key-' || i,
        (CASE WHEN state IN ('pending', 'claimed') THEN 'pending' WHEN state = 'completed' THEN 'completed' WHEN state = 'cancelled' THEN 'cancelled' ELSE 'failed' END)::runplane.command_state,
        ${FAILURE}, at, CASE WHEN ended THEN at END FROM ${PLACES}`,
  },
  {
    table: 'dispatch_intents',
    text: `INSERT INTO runplane.dispatch_intents (tenant_id, id, run_id, command_id, kind, input, input_hash, hash_version, state, runner_job_id, dispatch_outcome, created_at, finished_at)
      SELECT tenant_id, 'intent_' || i, run_id, 'cmd_' || i, 'runner-job', '{}', 'h', 1, 'dispatched'::runplane.intent_state, 'job_' || i, 'created'::runplane.dispatch_outcome, at, at
      FROM ${PLACES} WHERE ended`,
  },
  {
    table: 'runner_jobs',
    text: `INSERT INTO runplane.runner_jobs (tenant_id, id, run_id, command_id, launcher, job_name, settled_at, created_at)
      SELECT tenant_id, 'job_' || i, run_id, 'cmd_' || i, 'process', 'job-' || i, at, at FROM ${PLACES} WHERE ended`,
  },
  {
    table: 'run_events',
    text: `INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, command_id, is_output, created_at)
      SELECT tenant_id, run_id, n, 'evt_' || i || '_' || n, type, CASE type WHEN 'backend_status' THEN '{"phase":"run-created"}' WHEN 'terminal_status' THEN '{"terminalStatus":"completed"}'
          ELSE '{"text":"${WORDS}"}' END::json, CASE WHEN n > 1 THEN 'cmd_' || i END, type NOT IN ('backend_status', 'reasoning'), at
      FROM ${PLACES}, generate_series(1, ${EVENTS_PER_RUN}) n, LATERAL (SELECT CASE n WHEN 1 THEN 'backend_status' WHEN 2 THEN 'user_message' WHEN 9 THEN CASE WHEN ended THEN 'terminal_status' ELSE 'reasoning' END
        ELSE CASE WHEN n % 2 = 0 THEN 'assistant_message' ELSE 'reasoning' END END AS type) t`,
  },
  {
    table: 'outbox_events', // of the newest tenth: retention has taken the rest
    text: `INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type, project_id, session_id, run_id, event_id, data, created_at)
      SELECT 100 + i / 10, i % 32, partition_key, tenant_id, 'run', run_id, n, 'assistant_message', project_id, session_id, run_id, 'evt_' || i || '_' || n, '{"text":"${WORDS}"}', at
      FROM ${PLACES}, generate_series(1, ${EVENTS_PER_RUN}) n WHERE i > $1::int * 9 / 10`,
  },
];

/**
 * Fills an empty migrated database. Secondary indexes are taken away first and made again at the end; triggers and foreign keys rest. Ends with
 * statistics and visibility maps as autovacuum leaves them.
 */
export async function loadGrowth(client: pg.Client, { runs, events }: Size, say: (line: string) => void): Promise<void> {
  const began = performance.now();
  const told = (what: string): void => {
    say(`${((performance.now() - began) / 1000).toFixed(0).padStart(5)} s  ${what}`);
  };
  await client.query(
    `SET session_replication_role = replica; SET synchronous_commit = off; SET maintenance_work_mem = '1GB'; SET search_path = runplane, public`,
  );
  await client.query(
    `INSERT INTO runplane.tenants (id) SELECT 'tenant-' || i FROM generate_series(0, 8) i UNION SELECT 'bench' ON CONFLICT DO NOTHING`,
  );
  for (const { table, text } of PARTS) {
    const indexes = await secondaryIndexes(client, table);
    // In the transaction that has emptied the table its rows need no log, where wal_level is minimal.
    await client.query(`BEGIN; TRUNCATE runplane.${table} CASCADE`);
    for (const { name } of indexes) await client.query(`DROP INDEX runplane.${name}`);
    for (let from = 1; from <= runs; from += CHUNK) {
      await client.query(text, [runs, from, Math.min(from + CHUNK - 1, runs)]);
      if (table.endsWith('_events')) told(`${table}: runs up to ${Math.min(from + CHUNK - 1, runs)}`);
    }
    if (table === 'runs') await client.query(LONG_RUNS_TEXT, [Math.max(0, Math.floor((events - runs * EVENTS_PER_RUN) / LONG_RUNS))]);
    if (table === 'run_events') await client.query(LONG_EVENTS_TEXT);
    for (const { definition } of indexes) await client.query(definition);
    await client.query('COMMIT');
    told(`${table} and its ${indexes.length} secondary indexes`);
  }
  await client.query(`TRUNCATE runplane.run_status_counts`);
  await client.query(
    `INSERT INTO runplane.run_status_counts (tenant_id, status, n) SELECT tenant_id, status, count(*) FROM runplane.runs GROUP BY 1, 2`,
  );
  await client.query('RESET ALL');
  await client.query('VACUUM (ANALYZE)');
  told('vacuumed and analyzed');
}

const LONG_RUNS_TEXT = `INSERT INTO runplane.runs (tenant_id, id, project_id, workspace_ref, provider_id, backend_profile, execution_policy, input_hash, hash_version,
    status, max_attempts, on_runner_lost, last_event_seq, partition_key, shard)
  SELECT 'bench', 'run_long_' || i, 'project-0', '{}', 'provider-0', 'profile-0', '{}', 'h', 1, 'pending', 3, 'fail', $1::int, 'bench/run_long_' || i, 0 FROM generate_series(0, ${LONG_RUNS - 1}) i`;
const LONG_EVENTS_TEXT = `INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output)
  SELECT r.tenant_id, r.id, n, 'evt_' || r.id || '_' || n, CASE WHEN n % 20 = 0 THEN 'assistant_message' ELSE 'reasoning' END, '{"text":"${WORDS}"}', n % 20 = 0
  FROM runplane.runs r, generate_series(1, r.last_event_seq) n WHERE r.tenant_id = 'bench' AND r.id LIKE 'run\\_long\\_%'`;

async function secondaryIndexes(client: pg.Client, table: string): Promise<{ name: string; definition: string }[]> {
  const { rows } = await client.query<{ name: string; definition: string }>(
    `SELECT c.relname AS name, pg_get_indexdef(i.indexrelid) AS definition FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
      WHERE i.indrelid = $1::regclass AND NOT i.indisunique`,
    [`runplane.${table}`],
  );
  return rows;
}
