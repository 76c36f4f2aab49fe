import {
  CANCEL_STAGE_TRANSITIONS,
  COMMAND_TRANSITIONS,
  INTENT_TRANSITIONS,
  RUN_TRANSITIONS,
  SESSION_TRANSITIONS,
} from '@runplane/contracts';
import { claimDispatchIntents, claimRun, createRuns, terminalizeDispatchIntent } from '@runplane/runs';
import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { makeTenants, newTurn, TENANT } from '@runplane/runs/testing';
import fc from 'fast-check';
import { search, SEARCH_TIMEOUT_MS } from '../support/properties';
import { Model, newKey, OPERATIONS, stepOf, type Choice } from './run-model';

// Random sequences of operations against a model (run-model.ts) that knows what each must answer. After every step the invariants hold, the states are the
// model's, and every state has moved along the tables of libs/contracts.

jest.setTimeout(SEARCH_TIMEOUT_MS);
const t = useDatabase();
const tenantId = TENANT;

beforeAll(async () => {
  await makeTenants(t.db);
  await t.db.pool.query(
    'CREATE TABLE public.moves (machine text, from_state text, to_state text, PRIMARY KEY (machine, from_state, to_state))',
  );
  await t.db.pool.query(`CREATE FUNCTION public.note_move() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO public.moves VALUES (TG_ARGV[0], row_to_json(OLD) ->> TG_ARGV[1], row_to_json(NEW) ->> TG_ARGV[1]) ON CONFLICT DO NOTHING;
      RETURN NULL;
    END $$`);
  for (const [table, machine, column] of WATCHED) {
    await t.db.pool.query(
      `CREATE TRIGGER note_move AFTER UPDATE OF ${column} ON runplane.${table} FOR EACH ROW EXECUTE FUNCTION public.note_move('${machine}', '${column}')`,
    );
  }
});

const WATCHED = [
  ['runs', 'run', 'status'],
  ['commands', 'command', 'state'],
  ['dispatch_intents', 'intent', 'state'],
  ['sessions', 'session', 'execution_state'],
  ['cancel_requests', 'cancel', 'stage'],
] as const;
type Moves = Readonly<Record<string, Readonly<Record<string, readonly string[] | undefined>>>>;
const TABLES: Record<string, Moves> = {
  run: RUN_TRANSITIONS,
  command: COMMAND_TRANSITIONS,
  intent: INTENT_TRANSITIONS,
  session: SESSION_TRANSITIONS,
  cancel: CANCEL_STAGE_TRANSITIONS,
};

async function readStates(model: Model): Promise<{ runs: object[]; session: object | undefined }> {
  const [{ rows: stored }, { rows: commands }, { rows: sessions }, { rows: asked }] = await Promise.all([
    t.db.pool.query(`SELECT id, status::text, claim_epoch AS epoch, attempts FROM runplane.runs ORDER BY created_at, id`),
    t.db.pool.query(`SELECT run_id, id, state::text FROM runplane.commands ORDER BY run_id, seq`),
    t.db.pool.query(`SELECT active_run_id AS run, active_command_id AS command FROM runplane.sessions`),
    t.db.pool.query(`SELECT id FROM runplane.commands WHERE cancel_request_id IS NOT NULL`),
  ]);
  for (const { id } of asked) model.cancelled.add(id as string);
  return {
    runs: stored.map((run: { id: string }) => ({
      ...run,
      commands: commands.filter((each) => each.run_id === run.id).map(({ id, state }) => ({ id, state })),
    })),
    session: sessions[0],
  };
}

function statesOf(model: Model): { runs: object[]; session: object | undefined } {
  return {
    runs: model.runs.map(({ id, status, epoch, attempts, commands }) => ({
      id,
      status,
      epoch,
      attempts,
      commands: commands.map(({ id: commandId, state }) => ({ id: commandId, state })),
    })),
    session: model.runs.length === 0 ? undefined : { run: model.activeRun?.id ?? null, command: model.activeTurn?.id ?? null },
  };
}

async function assertMoves(operation: string): Promise<void> {
  const { rows } = await t.db.pool.query(
    `DELETE FROM public.moves WHERE from_state <> to_state RETURNING machine, from_state AS from, to_state AS to`,
  );
  const unlisted = (rows as { machine: string; from: string; to: string }[]).filter(({ machine, from, to }) => {
    const by = TABLES[machine]?.[from]?.[to] ?? [];
    const operations =
      operation === 'settleDispatch' ? ['claimDispatchIntents', 'completeDispatchIntent', 'retryDispatchIntent'] : [operation];
    return !by.includes('closeRun') && !operations.some((name) => by.includes(name));
  });
  expect({ operation, unlisted }).toEqual({ operation, unlisted: [] });
}

const choices = fc.array(
  fc.record<Choice>({
    operation: fc.constantFrom(...OPERATIONS),
    run: fc.nat(5),
    command: fc.nat(3),
    staleness: fc.constantFrom(0, 0, 0, 0, 1),
    flag: fc.boolean(),
  }),
  { minLength: 8, maxLength: 30 },
);

test('whatever is asked in whatever order: the answers and states are the model’s, and no invariant breaks', async () => {
  await search(
    fc.asyncProperty(choices, async (sequence) => {
      await t.db.pool.query(
        `TRUNCATE runplane.sessions, runplane.runs, runplane.run_status_counts, runplane.run_events, runplane.outbox_events, runplane.session_events,
          runplane.submissions, runplane.submission_heads, public.moves CASCADE`, // what an enqueued turn leaves is in the last three
      );
      const model = new Model(t.db);
      for (const choice of sequence) {
        const step = stepOf(choice, model);
        if (step === undefined) continue;
        const answer = await step.run();
        expect({ choice, answer }).toEqual({ choice, answer: step.expect(model) });
        expect(await readStates(model)).toEqual(statesOf(model));
        expect(await t.violations()).toEqual([]);
        await assertMoves(step.operation);
      }
    }),
  );
});

test('a dispatch that fails for good ends exactly a run that still waits for a runner', async () => {
  for (const claimedFirst of [false, true]) {
    const { run } = await createRuns(t.db).admitTurn({ tenantId, sessionId: newKey(), idempotencyKey: newKey(), turn: newTurn() });
    const claim = (await claimDispatchIntents(t.db, { owner: 'd', limit: 100 })).find(({ runId }) => runId === run.id);
    if (claim === undefined) throw new Error('the intent was not due');
    if (claimedFirst) await claimRun(t.db, { tenantId, runId: run.id, runnerId: 'r1' });
    await inTransaction(t.db, (tx) =>
      terminalizeDispatchIntent(
        tx,
        { ...claim, intentId: claim.id, owner: 'd' },
        { failureKind: 'infra-failed', message: 'x', attempts: 1 },
      ),
    );
    const { rows } = await t.db.pool.query(`SELECT status::text FROM runplane.runs WHERE id = $1`, [run.id]);
    expect(rows).toEqual([{ status: claimedFirst ? 'claimed' : 'failed' }]);
  }
});
