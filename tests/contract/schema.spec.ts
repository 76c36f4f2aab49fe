import * as contracts from '@runplane/contracts';
import * as queue from '@runplane/queue';
import * as runs from '@runplane/runs';
import * as sessions from '@runplane/sessions';
import { useDatabase } from '@runplane/database/testing';
import { aRun, makeTenants } from '@runplane/runs/testing';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

// The lists and tables of libs/contracts, the database that the migrations make, and docs/state-machines.md say the same.

const t = useDatabase();
const root = path.resolve(__dirname, '../..');
const rowsOf = async <T>(text: string): Promise<T[]> => (await t.db.pool.query(text)).rows as T[];

/** Which list each enum of the database repeats. */
const ENUMS: Record<string, readonly string[]> = {
  approval_state: contracts.APPROVAL_STATES,
  cancel_stage: contracts.CANCEL_STAGES,
  cancel_target_kind: contracts.CANCEL_TARGET_KINDS,
  command_state: contracts.COMMAND_STATES,
  delivery_state: contracts.DELIVERY_STATES,
  dispatch_outcome: contracts.DISPATCH_OUTCOMES,
  driver_state: contracts.DRIVER_STATES,
  input_state: contracts.INPUT_STATES,
  intent_state: contracts.INTENT_STATES,
  outbox_stream: contracts.FeedEvent.shape.stream.options,
  queue_attempt_state: contracts.QUEUE_ATTEMPT_STATES,
  queue_task_state: contracts.QUEUE_TASK_STATES,
  rebuild_state: contracts.REBUILD_STATES,
  reservation_kind: contracts.RESERVATION_KINDS,
  run_state: contracts.RUN_STATES,
  runner_lost_policy: contracts.RUNNER_LOST_POLICIES,
  session_state: contracts.SESSION_STATES,
  storage_kind: contracts.STORAGE_KINDS,
  submission_head_state: contracts.SUBMISSION_HEAD_STATES,
  submission_state: contracts.SUBMISSION_STATES,
};

test('the enums of the database have the words of the contracts, in their order', async () => {
  const enums = await rowsOf<{ name: string; words: string[] }>(
    `SELECT t.typname AS name, array_agg(e.enumlabel::text ORDER BY e.enumsortorder) AS words FROM pg_enum e JOIN pg_type t ON t.oid = e.enumtypid
      WHERE t.typnamespace = 'runplane'::regnamespace GROUP BY t.typname`,
  );
  expect(Object.fromEntries(enums.map(({ name, words }) => [name, words]))).toEqual(ENUMS);
});

const MACHINES = {
  run: [contracts.RUN_STATES, contracts.RUN_TRANSITIONS],
  command: [contracts.COMMAND_STATES, contracts.COMMAND_TRANSITIONS],
  intent: [contracts.INTENT_STATES, contracts.INTENT_TRANSITIONS],
  session: [contracts.SESSION_STATES, contracts.SESSION_TRANSITIONS],
  submission: [contracts.SUBMISSION_STATES, contracts.SUBMISSION_TRANSITIONS],
  approval: [contracts.APPROVAL_STATES, contracts.APPROVAL_TRANSITIONS],
  'request for input': [contracts.INPUT_STATES, contracts.INPUT_TRANSITIONS],
  cancel: [contracts.CANCEL_STAGES, contracts.CANCEL_STAGE_TRANSITIONS],
  'queue task': [contracts.QUEUE_TASK_STATES, contracts.QUEUE_TASK_TRANSITIONS],
  'queue attempt': [contracts.QUEUE_ATTEMPT_STATES, contracts.QUEUE_ATTEMPT_TRANSITIONS],
} as const;

/** Parts of operations that the tables name where the state is really moved, and their files. */
const INNER_OPERATIONS: Record<string, string> = {
  closeRun: 'libs/runs/src/close-run.ts',
  closeCommand: 'libs/runs/src/close-command.ts',
};

describe.each(Object.entries(MACHINES))(
  'the state machine of a %s',
  (_name, [states, table]: readonly [readonly string[], Record<string, Record<string, readonly string[]>>]) => {
    const moves = Object.entries(table).flatMap(([from, targets]) => Object.entries(targets).map(([to, by]) => ({ from, to, by })));

    test('has a row for each state, and leads to states only', () => {
      expect(Object.keys(table)).toEqual([...states]);
      expect(moves.filter(({ to }) => !states.includes(to))).toEqual([]);
    });

    test('reaches each state from those it is born in', () => {
      const reached = new Set<string | undefined>(
        table === contracts.QUEUE_ATTEMPT_TRANSITIONS ? contracts.QUEUE_ATTEMPT_BIRTHS : [states[0]],
      );
      for (let size = 0; size !== reached.size;) {
        size = reached.size;
        for (const { from, to } of moves) if (reached.has(from)) reached.add(to);
      }
      expect([...states].filter((state) => !reached.has(state))).toEqual([]);
    });

    test('names operations that exist', () => {
      const unknown = moves
        .flatMap(({ by }) => by)
        .filter((name) => !(name in runs) && !(name in queue) && !(name in sessions) && !(name in INNER_OPERATIONS));
      expect(unknown).toEqual([]);
      for (const [name, file] of Object.entries(INNER_OPERATIONS))
        expect(readFileSync(path.join(root, file), 'utf8')).toContain(`export async function ${name}(`);
    });
  },
);

test('docs/state-machines.md is what scripts/print-states.mjs prints', () => {
  const printed = execFileSync(process.execPath, ['scripts/print-states.mjs'], { cwd: root, encoding: 'utf8' });
  expect(readFileSync(path.join(root, 'docs/state-machines.md'), 'utf8')).toBe(printed);
});

test('the rules that hold whoever writes stand in the database under their names', async () => {
  const checks = await rowsOf<{ name: string; valid: boolean }>(
    `SELECT conname AS name, convalidated AS valid FROM pg_constraint WHERE connamespace = 'runplane'::regnamespace AND contype = 'c' ORDER BY conname COLLATE "C"`,
  );
  expect(checks.every(({ valid }) => valid)).toBe(true);
  expect([...checks.map(({ name }) => name), ...(await rulesOfRuns()).keys()]).toEqual(
    expect.arrayContaining([
      'api_keys_hash_is_sha256',
      'commands_acknowledged_has_time',
      'commands_failure_matches_state',
      'commands_finished_at_matches_state',
      'commands_seq_positive',
      'commands_turn_and_steer_have_key',
      'commands_type_is_simple',
      'dispatch_intents_finished_at_matches_state',
      'dispatch_intents_holder_matches_state',
      'dispatch_intents_outcome_matches_state',
      'outbox_events_shard_in_range',
      'run_events_seq_positive',
      'run_leases_epoch_positive',
      'runs_cancel_is_whole',
      'runs_cancelling_has_deadline',
      'runs_counters_not_negative',
      'runs_failure_matches_status',
      'runs_finished_at_matches_status',
      'runs_holder_matches_status',
      'runs_id_is_short',
      'runs_max_attempts_in_range',
      'runs_shard_in_range',
      'sessions_active_pair_is_whole',
      'sessions_id_is_short',
      'sessions_metadata_is_object',
      'sessions_running_means_active',
      'sessions_shard_in_range',
      'store_has_one_row',
      'tenants_id_is_simple',
      'tenants_settings_is_object',
    ]),
  );
});

/** The rules that a trigger keeps in the place of CHECKs: the broken condition by name. */
async function rulesOfRuns(): Promise<Map<string, string>> {
  const [found] = await rowsOf<{ body: string }>(
    `SELECT p.prosrc AS body FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE t.tgrelid = 'runplane.runs'::regclass AND t.tgname = 'runs_rules' AND t.tgenabled = 'O'`,
  );
  return new Map([...(found?.body ?? '').matchAll(/WHEN (.*) THEN '(\w+)'/g)].map(([, condition = '', name = '']) => [name, condition]));
}

test('the final states of the rules are those of the tables', async () => {
  const definitions = await rowsOf<{ name: string; definition: string }>(
    `SELECT conname AS name, pg_get_constraintdef(oid) AS definition FROM pg_constraint WHERE conname ~ '_finished_at_matches_state$'`,
  );
  const finishedRuns = {
    name: 'runs_finished_at_matches_status',
    definition: (await rulesOfRuns()).get('runs_finished_at_matches_status') ?? '',
  };
  const words = Object.fromEntries(
    [...definitions, finishedRuns].map(({ name, definition }) => [name, [...definition.matchAll(/'(\w+)'/g)].map(([, word]) => word)]),
  );
  const finalIntents = contracts.INTENT_STATES.filter((state) => !contracts.isOpenIntent(state));
  expect(words).toEqual({
    runs_finished_at_matches_status: contracts.FINAL_RUN_STATES,
    commands_finished_at_matches_state: contracts.FINAL_COMMAND_STATES,
    dispatch_intents_finished_at_matches_state: finalIntents,
  });
});

// The backstops: what a guard's mistake would let through fails here (TURN-1, IDEM-1, LOG-1).
test.each([
  ['commands_open_turn_per_session', /\(tenant_id, session_id\) WHERE .*type = 'turn'.*'pending'.*'acknowledged'/],
  ['commands_session_idempotency_key', /\(tenant_id, session_id, idempotency_key\) WHERE .*'turn'.*'steer'/],
  ['commands_run_idempotency_key', /\(tenant_id, run_id, idempotency_key\) WHERE/],
  ['commands_tenant_id_run_id_seq_key', /\(tenant_id, run_id, seq\)/],
  ['dispatch_intents_open_per_command', /\(tenant_id, command_id\) WHERE .*'pending'.*'dispatching'.*'retry'/],
  ['dispatch_intents_tenant_id_command_id_generation_key', /\(tenant_id, command_id, generation\)/],
  ['run_events_pkey', /\(tenant_id, run_id, seq\)/],
  ['outbox_events_pkey', /\(tx, "position"\)/],
  ['api_keys_key_hash_key', /\(key_hash\)/],
])('%s is unique over its columns', async (name, definition) => {
  const [index] = await rowsOf<{ indexdef: string }>(
    `SELECT indexdef FROM pg_indexes WHERE schemaname = 'runplane' AND indexname = '${name}'`,
  );
  expect(index?.indexdef).toMatch(/^CREATE UNIQUE INDEX/);
  expect(index?.indexdef).toMatch(definition);
});

test('every table of a tenant has the tenant first in its key, and every claimed table the columns of a claim', async () => {
  const keys = await rowsOf<{ table: string; first: string }>(
    `SELECT c.relname AS table, a.attname AS first FROM pg_class c JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
      WHERE c.relnamespace = 'runplane'::regnamespace AND c.relkind = 'r' AND EXISTS (SELECT FROM pg_attribute t WHERE t.attrelid = c.oid AND t.attname = 'tenant_id')`,
  );
  const others = keys.filter(({ first }) => first !== 'tenant_id').map(({ table }) => table);
  expect(others.sort()).toEqual(['api_keys', 'outbox_events', 'queue_turns', 'reservations', 'webhook_deliveries']); // found by hash; ordered by the feed; shared by all tenants; listed by sink

  const claimed = await rowsOf<{ name: string }>(
    `SELECT attname AS name FROM pg_attribute WHERE attrelid = 'runplane.dispatch_intents'::regclass AND attname IN ('owner', 'epoch', 'expires_at', 'attempts', 'ready_at', 'last_error')`,
  );
  expect(claimed).toHaveLength(6);
});

test('times are timestamptz(3), and none is a timestamp without a zone', async () => {
  const other = await rowsOf(
    `SELECT table_name, column_name FROM information_schema.columns
      WHERE table_schema = 'runplane' AND data_type LIKE 'timestamp%' AND (data_type <> 'timestamp with time zone' OR datetime_precision <> 3) AND table_name <> '_prisma_migrations'`,
  );
  expect(other).toEqual([]);
});

test.each([
  ['runs_finished_at_matches_status', `finished_at = now()`],
  ['runs_holder_matches_status', `claimed_by = 'r'`],
  ['runs_failure_matches_status', `failure_kind = 'timeout'`],
  ['runs_cancel_is_whole', `cancel_reason = 'why'`],
  ['runs_cancelling_has_deadline', `status = 'cancelling', claimed_by = 'r'`],
  ['runs_counters_not_negative', `attempts = -1`],
  ['runs_max_attempts_in_range', `max_attempts = 21`],
  ['runs_shard_in_range', `shard = 32`],
  ['runs_id_is_short', `id = repeat('x', 201)`],
])('%s refuses a run whoever writes it', async (rule, set) => {
  await makeTenants(t.db);
  const { id } = await aRun(t.db);
  await expect(t.db.pool.query(`UPDATE runplane.runs SET ${set} WHERE id = '${id}'`)).rejects.toMatchObject({
    code: '23514',
    constraint: rule,
  });
});
