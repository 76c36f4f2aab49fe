import { isDomainError, newId, OPEN_TOOL_CALLS_MAX, type NewRunEvent } from '@runplane/contracts';
import { inTransaction, openDb, type Db } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { appendRunEvents, cancelRun, createRuns } from '.';
import { aClaimedRun, aClaimedTurn, aRun, makeTenants, message, story, TENANT } from './testing';

// Whether a call shares its statement or has one of its own, its answer and its rows are the same.

let single: Db;
afterAll(() => single.close()); // before the database goes
const t = useDatabase();
beforeAll(async () => {
  await makeTenants(t.db, 'other');
  single = await openDb({ url: t.url, coalesce: false });
});

interface Call {
  readonly tenantId?: string;
  readonly runId: string;
  readonly epoch: number;
  readonly producerSequence?: number;
  readonly events: readonly NewRunEvent[];
}
const append = (db: Db, { tenantId = TENANT, ...call }: Call) => appendRunEvents(db, { tenantId, ...call });
type Ending = { value: unknown } | { code: string; data: unknown };
const endingOf = (call: Promise<unknown>): Promise<Ending> =>
  call.then(
    (value) => ({ value }),
    (error: unknown) => {
      if (isDomainError(error)) return { code: error.code, data: error.data };
      throw error;
    },
  );

/** Calls that share a statement: as many others as have one each are under way when they come. */
async function together(calls: readonly Call[]): Promise<Ending[]> {
  const others = await Promise.all([1, 2, 3, 4].map(() => aClaimedRun(t.db)));
  const before = t.db.coalescers.get('append')?.stats;
  const first = others.map(({ run, epoch }) => append(t.db, { runId: run.id, epoch, events: [message('first')] }));
  const endings = await Promise.all(calls.map((call) => endingOf(append(t.db, call))));
  await Promise.all(first);
  const after = t.db.coalescers.get('append')?.stats;
  expect((after?.calls ?? 0) - (before?.calls ?? 0)).toBe(calls.length + others.length);
  expect((after?.together ?? 0) - (before?.together ?? 0)).toBeGreaterThan(0);
  return endings;
}

const inTurn = async (calls: readonly Call[]): Promise<Ending[]> => {
  const endings: Ending[] = [];
  for (const call of calls) endings.push(await endingOf(append(single, call)));
  return endings;
};

/** All that is stored of a run's log and its outbox rows, and of the counters that appends move; ids and times told apart only. */
async function storedOf(runId: string): Promise<unknown> {
  const { rows } = await t.db.pool.query<{ stored: string }>(
    `SELECT json_build_object(
       'run', (SELECT json_build_array(last_event_seq, last_producer_seq, status) FROM runplane.runs WHERE id = $1),
       'events', (SELECT json_agg(json_build_array(seq, id, type, payload::text, command_id, tool_call_id, is_output, producer_epoch, producer_seq) ORDER BY seq)
                  FROM runplane.run_events WHERE run_id = $1),
       'outbox', (SELECT json_agg(json_build_array(o.sequence, o.event_id, o.type, o.data::text, o.command_id, o.tenant_id, o.project_id, o.session_id, o.run_id, o.stream,
                    o.stream_id, o.partition_key, o.shard = r.shard, o.tx <= r.last_tx, o.created_at = e.created_at) ORDER BY o.tx, o.position)
                  FROM runplane.outbox_events o JOIN runplane.runs r ON r.id = o.stream_id JOIN runplane.run_events e ON e.run_id = r.id AND e.seq = o.sequence
                  WHERE o.stream_id = $1))::text AS stored`,
    [runId],
  );
  return JSON.parse(masked(rows[0]?.stored ?? ''));
}

/** Ids by the order of their first appearance. */
function masked(text: string): string {
  const ids = new Map<string, string>();
  return text.replaceAll(/\b[a-z]+[-_][0-9a-f-]{36}\b/g, (id) => {
    if (!ids.has(id)) ids.set(id, `id ${ids.size + 1}`);
    return ids.get(id) ?? '';
  });
}

interface Stage {
  readonly runId: string;
  readonly epoch: number;
  readonly commandId: string;
  readonly sessionId: string;
}
type Case = {
  prepare?: (stage: Stage) => Promise<unknown>;
  calls: (stage: Stage) => Omit<Call, 'runId' | 'epoch'> | Partial<Call> | Partial<Call>[];
};

let foreignCommand: string;
beforeAll(async () => {
  foreignCommand = (await aClaimedTurn(single)).command.id;
});

const secret = 'Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789';
const many = (commandId: string): NewRunEvent[] => [
  {
    type: 'tool_call',
    payload: {
      callId: 'c1',
      name: 'sh',
      arguments: { cmd: `curl -H "${secret}"`, nested: ['ü "quoted" \\ back', null, 1.5] },
      commandId,
    },
  },
  { type: 'assistant_message', payload: { text: '{braces}, commas, NULL, \u2028', commandId } },
  { type: 'tool_result', payload: { callId: 'c1', output: 'done', status: 'ok' } },
];

const CASES: Record<string, Case> = {
  'an event': { calls: () => ({ events: [message('one')] }) },
  'an event with a command and a secret': {
    calls: ({ commandId }) => ({ events: [{ type: 'assistant_message', payload: { text: secret, commandId } }], producerSequence: 1 }),
  },
  'an event about a command that nobody has': {
    calls: () => ({ events: [{ type: 'assistant_message', payload: { text: 'x', commandId: 'cmd_of_nobody' } }] }),
  },
  'an event about a command of another run': {
    calls: () => ({ events: [{ type: 'assistant_message', payload: { text: 'x', commandId: foreignCommand } }] }),
  },
  'several events with a tool call, its result and a command': {
    calls: ({ commandId }) => ({ events: many(commandId), producerSequence: 1 }),
  },
  'several calls': {
    calls: ({ commandId }) => [
      { events: [message('1')] },
      { events: many(commandId), producerSequence: 1 },
      { events: [message('5'), message('6')] },
    ],
  },
  'calls of which one is refused': {
    calls: () => [
      { events: [message('1')] },
      { events: [{ type: 'assistant_message', payload: { text: 'x', commandId: 'cmd_of_nobody' } }, message('no')] },
      { events: [message('2')] },
      { epoch: 7, events: [message('no')] },
      { events: [message('3')] },
    ],
  },
  'batches of one producer': { calls: () => [1, 2, 3].map((n) => ({ events: [message(`${n}`)], producerSequence: n })) },
  'a run that is being cancelled': {
    prepare: ({ runId }) => inTransaction(single, (tx) => cancelRun(tx, { tenantId: TENANT, runId, reason: 'enough' })),
    calls: () => ({ events: [message('late')], producerSequence: 1 }),
  },
  'an epoch that is not yet given': { calls: ({ epoch }) => ({ epoch: epoch + 1, events: [message('x')] }) },
  'a run that has ended': {
    prepare: ({ runId, epoch }) =>
      createRuns(single).finishRun({ tenantId: TENANT, runId, epoch, outcome: { terminalStatus: 'completed' } }),
    calls: () => [{ events: [message('late')] }, { events: [message('late')], producerSequence: 1 }],
  },
  'a batch of an ended run, again': {
    prepare: async ({ runId, epoch, commandId }) => {
      await append(single, { runId, epoch, events: many(commandId), producerSequence: 1 });
      await createRuns(single).finishRun({ tenantId: TENANT, runId, epoch, outcome: { terminalStatus: 'completed' } });
    },
    calls: ({ commandId }) => ({ events: many(commandId), producerSequence: 1 }),
  },
  'a batch again, with the same and with other events': {
    prepare: ({ runId, epoch }) => append(single, { runId, epoch, events: [message('1')], producerSequence: 1 }),
    calls: () => [
      { events: [message('1')], producerSequence: 1 },
      { events: [message('other')], producerSequence: 1 },
    ],
  },
  'a batch too early': { calls: () => ({ events: [message('2')], producerSequence: 2 }) },
  'another tenant’s run': { calls: () => ({ tenantId: 'other', events: [message('x')] }) },
  'no run': { calls: () => ({ runId: 'run_none', events: [message('x')] }) },
};

const aStage = async (): Promise<Stage> => {
  const { run, command, epoch } = await aClaimedTurn(single);
  return { runId: run.id, epoch, commandId: command.id, sessionId: run.sessionId ?? '' };
};
const callsOf = ({ calls }: Case, stage: Stage): Call[] =>
  [calls(stage)].flat().map((call) => ({ runId: stage.runId, epoch: stage.epoch, events: [], ...call }));

test.each(Object.entries(CASES))('%s', async (_, each) => {
  const stages = [await aStage(), await aStage()] as const;
  for (const stage of stages) await each.prepare?.(stage);

  const endings = [await together(callsOf(each, stages[0])), await inTurn(callsOf(each, stages[1]))];

  expect(masked(JSON.stringify(endings[0]))).toEqual(masked(JSON.stringify(endings[1])));
  const stored = await Promise.all(stages.map(({ runId }) => storedOf(runId)));
  expect(stored[0]).toEqual(stored[1]);
});

test('a run that was never claimed is refused as by its own statement', async () => {
  const run = await aRun(single);
  const [found] = await together([{ runId: run.id, epoch: 1, events: [message('x')] }]);
  expect(found).toEqual(await endingOf(append(single, { runId: run.id, epoch: 1, events: [message('x')] })));
  expect(found).toMatchObject({ code: 'lease_lost' });
});

test.each([
  ['numbered', (i: number) => ({ producerSequence: i + 1 })],
  ['unnumbered', () => ({})],
])('a run’s %s calls keep their order when one of them is refused for tool calls that are no longer open', async (_, numberOf) => {
  const { run, epoch } = await aClaimedRun(t.db);
  await t.db.pool.query('UPDATE runplane.runs SET open_tool_calls = $2 WHERE id = $1', [run.id, OPEN_TOOL_CALLS_MAX]); // it only ever goes up
  const toolCall: NewRunEvent = { type: 'tool_call', payload: { callId: 'c1', name: 'sh', arguments: {} } };

  const calls = [[toolCall], [message('2')], [message('3')]].map((events, i) => ({ runId: run.id, epoch, events, ...numberOf(i) }));
  const endings = await together(calls);

  expect(endings).toMatchObject([3, 4, 5].map((lastSeq) => ({ value: { lastSeq } })));
});

test('waiters of each run are told once the batch is committed', async () => {
  const runs = [await aClaimedRun(t.db), await aClaimedRun(t.db)];
  const subscriptions = runs.map(({ run }) => t.db.hub.subscribe(`run:${TENANT}/${run.id}`));
  await together(runs.map(({ run, epoch }) => ({ runId: run.id, epoch, events: [message('x')] })));
  for (const subscription of subscriptions) {
    expect(await subscription.next({ timeoutMs: 15_000 })).toBe('changed');
    subscription.close();
  }
});

test('a call inside a caller’s transaction has a statement of its own, and goes with it', async () => {
  const { run, epoch } = await aClaimedRun(t.db);
  const before = t.db.coalescers.get('append')?.stats.calls;
  await inTransaction(t.db, async (tx) => {
    await Promise.all([1, 2].map(() => appendRunEvents(tx, { tenantId: TENANT, runId: run.id, epoch, events: [message('x')] })));
    throw new Error('back');
  }).catch(() => undefined);
  expect(t.db.coalescers.get('append')?.stats.calls).toBe(before);
  expect(await story(t.db, run.id)).not.toContain('assistant_message');
});

test('closing the handle waits for the record of what a batch has refused', async () => {
  const errors: string[] = [];
  const db = await openDb({ url: t.url, onError: (error) => errors.push(error.message) });
  const runs = await Promise.all(Array.from({ length: 8 }, () => aClaimedRun(t.db)));
  const outcome = { terminalStatus: 'completed' } as const;
  for (const { run, epoch } of runs) await createRuns(single).finishRun({ tenantId: TENANT, runId: run.id, epoch, outcome });
  const calls = runs.map(({ run, epoch }) => endingOf(append(db, { runId: run.id, epoch, events: [message('x')] })));
  await db.close();
  expect(await Promise.all(calls)).toMatchObject(runs.map(() => ({ code: 'run_closed' })));
  for (const { run } of runs) expect((await story(t.db, run.id)).at(-1)).toBe('late-write-rejected');
  expect(errors).toEqual([]);
});

test('closing the handle carries out what waits and refuses what comes later', async () => {
  const db = await openDb({ url: t.url });
  const runs = [await aClaimedRun(t.db), await aClaimedRun(t.db), await aClaimedRun(t.db)];
  const calls = runs.map(({ run, epoch }) => append(db, { runId: run.id, epoch, events: [message('x')] }));
  const closing = db.close();
  const late = endingOf(append(db, { runId: newId('run'), epoch: 1, events: [message('x')] }));
  expect((await Promise.all(calls)).map(({ lastSeq }) => lastSeq)).toEqual([3, 3, 3]);
  expect(await late).toMatchObject({ code: 'shutting_down' });
  await closing;
});
