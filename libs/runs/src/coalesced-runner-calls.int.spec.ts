import { isDomainError } from '@runplane/contracts';
import { inTransaction, openDb, type Db } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { cancelCommand, cancelRun, createCommand, createRuns, heartbeat } from '.';
import { aClaimedTurn, aTurn, endLease, makeTenants, TENANT } from './testing';

// Heartbeats and acknowledgements: alone or with others, the same answers and the same rows.

let single: Db;
afterAll(() => single.close()); // before the database goes
const t = useDatabase();
beforeAll(async () => {
  await makeTenants(t.db, 'other');
  single = await openDb({ url: t.url, coalesce: false });
});

interface Stage {
  readonly runId: string;
  readonly epoch: number;
  readonly commandId: string;
}
interface Call {
  readonly tenantId: string;
  readonly runId: string;
  readonly epoch: number;
  readonly commandId: string;
  readonly commandsAfterSeq: number;
}
type Case = [prepare: (stage: Stage) => unknown, call: (stage: Stage) => Partial<Call>];

const finish = ({ runId, epoch }: Stage) =>
  createRuns(single).finishRun({ tenantId: TENANT, runId, epoch, outcome: { terminalStatus: 'completed' } });
const interrupt = ({ runId }: Stage) =>
  inTransaction(single, (tx) => createCommand(tx, { tenantId: TENANT, runId, command: { type: 'interrupt', payload: { why: 'x' } } }));
const nothing = () => undefined;
const asItIs = () => ({});

const CASES: Record<string, Case> = {
  'a claimed run': [nothing, asItIs],
  'a command that is known': [nothing, () => ({ commandsAfterSeq: 1 })],
  'more than one command': [interrupt, asItIs],
  'a command taken before': [
    ({ runId, epoch, commandId }) => createRuns(single).ackCommand({ tenantId: TENANT, runId, epoch, commandId }),
    asItIs,
  ],
  'a run that is being cancelled': [
    ({ runId }) => inTransaction(single, (tx) => cancelRun(tx, { tenantId: TENANT, runId, reason: 'no' })),
    asItIs,
  ],
  'a command that is being cancelled': [
    ({ commandId }) => inTransaction(single, (tx) => cancelCommand(tx, { tenantId: TENANT, commandId, reason: 'no' })),
    asItIs,
  ],
  'an ended lease': [({ runId }) => endLease(single, runId), asItIs],
  'another epoch': [nothing, () => ({ epoch: 9 })],
  'a run that has ended': [finish, asItIs],
  'a run that has ended under another epoch': [finish, () => ({ epoch: 9 })],
  'no such command': [nothing, () => ({ commandId: 'cmd_none' })],
  'another tenant': [nothing, () => ({ tenantId: 'other' })],
  'no run': [nothing, () => ({ runId: 'run_none' })],
};

const aStage = async (): Promise<Stage> => {
  const { run, command, epoch } = await aClaimedTurn(single);
  return { runId: run.id, commandId: command.id, epoch };
};
const endingOf = (call: Promise<unknown>) =>
  call.then(
    (value) => ({ value }),
    (error: unknown) => {
      if (isDomainError(error)) return { code: error.code, data: error.data };
      throw error;
    },
  );
/** Ids by the order of their first appearance; times and what is left of them gone. */
function masked(value: unknown): string {
  const ids = new Map<string, string>();
  return JSON.stringify(value)
    .replaceAll(/\b([a-z]+[-_])?[0-9a-f]{8}-[0-9a-f-]{27}\b/g, (id) => {
      if (!ids.has(id)) ids.set(id, `id ${ids.size + 1}`);
      return ids.get(id) ?? '';
    })
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'time')
    .replaceAll(/("deadlineRemainingMs":)\d+/g, '$1some');
}
async function storedOf(runId: string): Promise<unknown> {
  const { rows } = await t.db.pool.query<{ stored: unknown }>(
    `SELECT json_build_object(
       'run', (SELECT json_build_array(last_event_seq, status) FROM runplane.runs WHERE id = $1),
       'lease', (SELECT json_build_array(epoch, expires_at > runplane.app_now()) FROM runplane.run_leases WHERE run_id = $1),
       'commands', (SELECT json_agg(json_build_array(id, state, acknowledged_at IS NULL) ORDER BY seq) FROM runplane.commands WHERE run_id = $1),
       'events', (SELECT json_agg(json_build_array(seq, id, type, payload::text, command_id, producer_epoch) ORDER BY seq) FROM runplane.run_events WHERE run_id = $1),
       'outbox', (SELECT json_agg(json_build_array(sequence, event_id, type, data::text, command_id, partition_key) ORDER BY tx, position)
                  FROM runplane.outbox_events WHERE run_id = $1)) AS stored`,
    [runId],
  );
  return rows[0]?.stored;
}

const OPERATIONS = {
  heartbeat: (db: Db, { tenantId, runId, epoch, commandsAfterSeq }: Call) => heartbeat(db, { tenantId, runId, epoch, commandsAfterSeq }),
  ack: (db: Db, { tenantId, runId, epoch, commandId }: Call) => createRuns(db).ackCommand({ tenantId, runId, epoch, commandId }),
};

const cases: { what: string; stages: readonly [Stage, Stage]; calls: readonly [Call, Call] }[] = [];
beforeAll(async () => {
  for (const [what, [prepare, make]] of Object.entries(CASES)) {
    const stages = [await aStage(), await aStage()] as const;
    for (const stage of stages) await prepare(stage);
    const callOf = (stage: Stage): Call => ({ tenantId: TENANT, commandsAfterSeq: 0, ...stage, ...make(stage) });
    cases.push({ what, stages, calls: [callOf(stages[0]), callOf(stages[1])] });
  }
});

// Heartbeats first: they change nothing that an acknowledgement looks at.
test.each(['heartbeat', 'ack'] as const)('%s: every answer is the same in a batch as by itself', async (name) => {
  const call = OPERATIONS[name];
  const others = await Promise.all([1, 2, 3, 4].map(aStage)); // under way when the rest comes: so many have a statement each
  const first = others.map((other) => call(t.db, { tenantId: TENANT, commandsAfterSeq: 0, ...other }));

  const found = await Promise.all(cases.map(({ calls }) => endingOf(call(t.db, calls[0]))));
  await Promise.all(first);

  for (const [i, { what, stages, calls }] of cases.entries()) {
    const expected = await endingOf(call(single, calls[1]));
    expect([what, masked(found[i])]).toEqual([what, masked(expected)]);
    expect([what, masked(await storedOf(stages[0].runId))]).toEqual([what, masked(await storedOf(stages[1].runId))]);
  }
  expect(t.db.coalescers.get(name)?.stats).toMatchObject({ calls: cases.length + others.length, waiting: 0 });
  expect(t.db.coalescers.get(name)?.stats.together).toBeGreaterThanOrEqual(cases.length);
});

test('of two acknowledgements of one command the second finds it taken', async () => {
  const { runId, epoch, commandId } = await aStage();
  const { ackCommand } = createRuns(t.db);
  const answers = await Promise.all([1, 2, 3].map(() => ackCommand({ tenantId: TENANT, runId, epoch, commandId })));
  expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
  expect(JSON.stringify(await storedOf(runId)).match(/command-acknowledged/g)).toHaveLength(2); // the event and its outbox row
});

test('a run that nobody has claimed is refused as by itself', async () => {
  const { run, command } = await aTurn(single);
  const call = { tenantId: TENANT, runId: run.id, epoch: 1, commandId: command.id, commandsAfterSeq: 0 };
  for (const operation of Object.values(OPERATIONS)) {
    const other = await aStage();
    const [, found] = await Promise.all([
      operation(t.db, { tenantId: TENANT, commandsAfterSeq: 0, ...other }),
      endingOf(operation(t.db, call)),
    ]);
    expect(found).toEqual(await endingOf(operation(single, call)));
    expect(found).toMatchObject({ code: 'lease_lost' });
  }
});
