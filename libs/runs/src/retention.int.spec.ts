import type { NewRunEvent } from '@runplane/contracts';
import fc from 'fast-check';
import { ensureTenant, inTransaction, type SqlExecutor } from '@runplane/database';
import { useDatabase, waitForHorizon } from '@runplane/database/testing';
import { readFeed } from '@runplane/outbox';
import { appendRunEvents } from './append-run-events';
import { listRunOutput } from './event-pages';
import { pruneCancelRequestsOnce, pruneIntentsOnce } from './prune-finished';
import { pruneRunEventsOnce, pruneRunsOnce } from './prune-runs';
import { getRunResult, listRunEvents, streamRunEvents } from './read-run-events';
import { listCancelRequests } from './list-cancel-requests';
import { getDispatchIntent, getRun } from './read-runs';
import { reserve } from './reservations';
import type { RetentionPass } from './retention-pass';
import { archiveKeyOf, readArchivedRun } from './run-archive';
import { createRuns } from './runs';
import { message, newRun, newTurn, story } from './testing';
import { refusal, useRetention } from './testing/retention';

const t = useDatabase();
const { stage, pass, aClaimedRun, anEndedRun, anEndedTurn, rowsOf, count, runThere } = useRetention(t);
let { tenantId, later, archive } = stage;
beforeEach(() => {
  ({ tenantId, later, archive } = stage);
});

describe('a run that is older than its tenant keeps runs', () => {
  test('is archived and removed; a dry run says the same before; the feed tells it and keeps its events', async () => {
    await anEndedTurn('s1', 'first');
    const { runId } = await anEndedTurn('s2', 'old');
    await anEndedTurn('s2', 'new');
    const before = await rowsOf(runId);

    const dry = await pruneRunsOnce(later, pass({ dryRun: true }));
    expect(dry.changed).toBe(0);
    expect(await runThere(runId)).toBe(1);
    const done = await pruneRunsOnce(later, pass());

    expect(done.tenants).toEqual(dry.tenants);
    const rows = { runs: 1, commands: 1, intents: 1, cancelRequests: 1, runnerJobs: 0, events: before['event']?.length };
    expect(done).toMatchObject({ changed: 1, failed: 0, tenants: [{ tenantId, kind: 'runs', ids: [runId], rows }] });
    const archiveKey = archiveKeyOf({ tenantId, runId }, 'run');
    for (const call of [
      getRun(t.db, { tenantId, runId }),
      listRunEvents(t.db, { tenantId, runId, afterSeq: 0 }),
      getRunResult(t.db, { tenantId, runId }),
    ])
      expect(await refusal(call)).toMatchObject({ code: 'run_deleted', data: { runId, archiveKey } });
    expect((await readArchivedRun(archive, archiveKey)).rows).toEqual(before);

    await waitForHorizon(t.db);
    const { events } = await readFeed(t.db.sql, { tenantId, limit: 200 });
    const told = events.filter((event) => event.runId === runId);
    expect(told.map(({ sequence }) => sequence)).toEqual(Array.from({ length: (rows.events ?? 0) + 1 }, (_, i) => i + 1));
    const { status, finished_at: finishedAt } = before['run']?.[0] as { status: string; finished_at: string };
    expect(told.at(-1)?.data).toEqual({
      phase: 'retention-deleted',
      terminalStatus: status,
      finishedAt: new Date(finishedAt).toISOString(),
      archive: { name: archiveKey, sha256: expect.stringMatching(/^[0-9a-f]{64}$/) },
    });
    expect(await count('reservations', `owner IS NOT NULL AND tenant_id = '${tenantId}'`)).toBe(0);
  });

  test('leaves its id used for ever, and its turn’s key free', async () => {
    const runs = createRuns(t.db);
    const { run } = await runs.createRun({ tenantId, run: newRun(), runId: 'reserved-1' });
    await runs.cancelRun({ tenantId, runId: run.id });
    const old = await anEndedTurn('s3', 'again');
    await anEndedTurn('s3', 'newer');
    await pruneRunsOnce(later, pass());

    expect(await refusal(runs.createRun({ tenantId, run: newRun(), runId: 'reserved-1' }))).toMatchObject({ code: 'run_deleted' });
    const repeated = await runs.admitTurn({ tenantId, sessionId: 's3', turn: newTurn(), idempotencyKey: 'again' });
    expect(repeated).toMatchObject({ disposition: 'created', replayed: false });
    expect(repeated.run.id).not.toBe(old.runId);
    expect(await refusal(appendRunEvents(t.db, { tenantId, runId: old.runId, epoch: 1, events: [message('late')] }))).toMatchObject({
      code: 'run_deleted',
    });
  });

  test.each<[string, () => Promise<string>]>([
    ['it has not ended', async () => (await aClaimedRun()).runId],
    ['it is younger, by the clock of the database', async () => (await anEndedRun()).runId],
    [
      'its session shows it as the last',
      async () => {
        const { runId } = await anEndedTurn('s4', 'only');
        return runId;
      },
    ],
    [
      'its session shows its command as the last',
      async () => {
        const { runId } = await anEndedTurn('s5', 'only');
        await createRuns(t.db).createRun({ tenantId, run: { ...newRun(), sessionRef: { sessionId: 's5' } } });
        return runId;
      },
    ],
    [
      'a job of it is not settled',
      async () => {
        const { runId, commandId } = await anEndedTurn('s6', 'old');
        await anEndedTurn('s6', 'new');
        await t.db.pool.query(
          `INSERT INTO runplane.runner_jobs (tenant_id, id, run_id, command_id, launcher, job_name) VALUES ($1, 'job-' || $2, $2, $3, 'x', 'x')`,
          [tenantId, runId, commandId],
        );
        return runId;
      },
    ],
    [
      'somebody holds it',
      async () => {
        const { runId } = await anEndedRun();
        await inTransaction(later, (tx) => reserve(tx, { kind: 'retention', tenantId, key: runId, owner: 'fence' }));
        return runId;
      },
    ],
  ])('stays while %s', async (why, make) => {
    const runId = await make();
    const db = why.includes('younger') ? t.db : later;

    expect((await pruneRunsOnce(db, pass({ dryRun: true }))).tenants).toEqual([]);
    expect((await pruneRunsOnce(db, pass())).changed).toBe(0);

    expect(await runThere(runId)).toBe(1);
  });

  test('goes by what its tenant has set; one that wants copies keeps all without an archive, a setting that is not valid keeps all', async () => {
    const mine = tenantId;
    const run = await anEndedRun();
    stage.tenantId = tenantId = `${mine}-other`;
    await ensureTenant(t.db.sql, tenantId);
    const theirs = await anEndedRun();
    const set = (id: string, settings: object) =>
      t.db.pool.query('UPDATE runplane.tenants SET settings = $2 WHERE id = $1', [id, settings]);

    expect((await pruneRunsOnce(later, { archive })).tenants).toEqual([]);
    await set(mine, { retention: { runsDays: 30 } });
    await set(tenantId, { retention: { runsDays: 'soon' } });
    expect((await pruneRunsOnce(later)).tenants).toMatchObject([{ tenantId: mine, ids: [], archiveMissing: true }]);
    await set(tenantId, { retention: { runsDays: 41 } });
    expect((await pruneRunsOnce(later, { archive })).tenants).toMatchObject([{ tenantId: mine, ids: [run.runId] }]);
    await set(tenantId, { retention: { runsDays: 39, archive: false } });
    expect((await pruneRunsOnce(later)).tenants).toMatchObject([{ archiveMissing: true }, { tenantId, ids: [theirs.runId] }]);
    expect(await refusal(getRun(t.db, { tenantId, ...theirs }))).toMatchObject({ code: 'run_deleted', data: { archiveKey: null } });
    expect(await refusal(pruneRunsOnce(later, { tenantId: 'nobody' }))).toMatchObject({ code: 'tenant_not_found' });
    await t.db.pool.query(`UPDATE runplane.tenants SET settings = '{}'`);
  });

  test('is found behind many that must stay: a pass goes on where the last one ended', async () => {
    const ids = [(await anEndedRun(0)).runId, (await anEndedRun(0)).runId, (await anEndedRun(0)).runId];

    const first = await pruneRunsOnce(later, pass({ limit: 2 }));
    const second = await pruneRunsOnce(later, pass({ limit: 2, after: first.next }));

    expect([first.tenants[0]?.ids, second.tenants[0]?.ids, second.next.size]).toEqual([ids.slice(0, 2), ids.slice(2), 0]);
  });

  test('is archived whatever it holds, and read back as it stood', async () => {
    const text = fc.string({ unit: 'grapheme', maxLength: 40 });
    const value = fc.oneof(text, fc.integer(), fc.boolean(), fc.constant(null), fc.array(text, { maxLength: 2 }));
    const object = fc.dictionary(fc.string({ maxLength: 5 }), value, { maxKeys: 4, noNullPrototype: true });
    const event: fc.Arbitrary<NewRunEvent> = fc.oneof(
      text.map((said) => message(said)),
      object.map((payload) => ({ type: 'custom/x', payload })),
      fc.uuid().map((callId) => ({ type: 'tool_call', payload: { callId, name: 'ls', arguments: {} } })),
    );
    // As an import might have stored it: line breaks between the tokens of a payload.
    const breakLines = (table: string, column: string, runId: string) =>
      t.db.pool.query(`UPDATE runplane.${table} SET ${column} = regexp_replace(${column}::text, '^{', E'{\r\n')::json WHERE run_id = $1`, [
        runId,
      ]);
    await fc.assert(
      fc.asyncProperty(fc.array(event, { maxLength: 12 }), fc.array(text, { maxLength: 3 }), fc.boolean(), async (events, notes, big) => {
        const { runId, epoch } = await aClaimedRun();
        const runs = createRuns(t.db);
        if (events.length > 0) await appendRunEvents(t.db, { tenantId, runId, epoch, events });
        for (const note of notes) await runs.createCommand({ tenantId, runId, command: { type: 'note', payload: { note } } });
        await runs.cancelRun({ tenantId, runId, immediate: true });
        for (const [table, column] of [
          ['run_events', 'payload'],
          ['outbox_events', 'data'],
        ] as const)
          await breakLines(table, column, runId);
        const stood = await rowsOf(runId);

        expect((await pruneRunsOnce(later, pass({ chunkEvents: big ? 3 : 1_000 }))).changed).toBe(1);

        const whole = await readArchivedRun(archive, archiveKeyOf({ tenantId, runId }, 'run'));
        if (!big) return expect(whole.rows).toEqual(stood);
        const log = await readArchivedRun(archive, archiveKeyOf({ tenantId, runId }, 'events'));
        expect(log.rows).toEqual({ ...stood, run: [], command: [], 'cancel-request': [] });
        expect({ ...whole.rows, run: [], event: [] }).toEqual({ ...stood, run: [], event: [] });
      }),
      { numRuns: 3, endOnFailure: true },
    );
  });
});

describe('events that are older than their tenant keeps them', () => {
  const eventsPass = (over: Partial<RetentionPass> = {}) => pass({ policy: { eventsDays: 30 }, chunkEvents: 4, ...over });

  test('go in parts; readers are told, the run stays, and what comes after can be read', async () => {
    const { runId, epoch } = await anEndedRun(9);
    const key = { tenantId, runId };
    const before = await rowsOf(runId);
    const last = before['event']?.length ?? 0;

    const dry = await pruneRunEventsOnce(later, eventsPass({ dryRun: true }));
    const done = await pruneRunEventsOnce(later, eventsPass());

    expect(done.tenants).toEqual(dry.tenants);
    expect(done).toMatchObject({ changed: 1, tenants: [{ ids: [runId], rows: { events: last } }] });
    expect(await story(t.db, runId)).toEqual(['retention-events-pruned']);
    const archiveKey = archiveKeyOf(key, 'events');
    const told = { code: 'events_pruned', data: { runId, firstSeq: last + 1, terminalSeq: last, archiveKey } };
    expect(await refusal(listRunEvents(t.db, { ...key, afterSeq: 0 }))).toMatchObject(told);
    expect(await refusal(listRunEvents(t.db, { ...key, afterSeq: last - 1 }))).toMatchObject(told);
    expect(await refusal(getRunResult(t.db, key))).toMatchObject(told);
    expect(await refusal(listRunOutput(t.db, key))).toMatchObject(told);
    expect(await refusal(streamRunEvents(t.db, { ...key, afterSeq: 3, signal: new AbortController().signal }).next())).toMatchObject(told);
    // A repeated batch of the runner cannot be answered any more; a late one is refused and recorded as ever.
    const batch = { ...key, epoch, producerSequence: 1, events: [message('m0')] };
    expect(await refusal(appendRunEvents(t.db, batch))).toMatchObject(told);
    expect(await refusal(appendRunEvents(t.db, { ...batch, producerSequence: 2 }))).toMatchObject({ code: 'run_closed' });
    expect(await getRun(t.db, key)).toMatchObject({
      id: runId,
      status: 'completed',
      eventsPrunedAt: expect.any(String),
      lastEventSeq: last + 2,
    });
    expect((await readArchivedRun(archive, archiveKey)).rows.event).toEqual(before['event']);

    const items = [];
    for await (const item of streamRunEvents(t.db, { ...key, afterSeq: last, signal: AbortSignal.timeout(20_000) })) items.push(item);
    expect(items).toMatchObject([{ events: [{ seq: last + 1 }, { seq: last + 2 }] }, { end: { status: 'completed', terminalSeq: last } }]);
    expect((await pruneRunEventsOnce(later, eventsPass())).changed).toBe(0);

    const rest = await rowsOf(runId);
    expect((await pruneRunsOnce(later, pass())).tenants).toMatchObject([{ ids: [runId], rows: { runs: 1, events: 2 } }]);
    expect((await readArchivedRun(archive, archiveKeyOf(key, 'run'))).rows).toEqual(rest);
  });

  test('that go while somebody makes up a result leave no result that lacks some of them', async () => {
    const { runId } = await anEndedRun(3);
    // The result's second statement comes when the events are gone.
    let looks = 0;
    const slow: SqlExecutor = {
      query: async (statement) => {
        looks += 1;
        if (looks === 2) await pruneRunEventsOnce(later, eventsPass());
        return t.db.sql.query(statement);
      },
    };

    expect(await refusal(getRunResult({ ...t.db, sql: slow }, { tenantId, runId }))).toMatchObject({ code: 'events_pruned' });
  });
});

describe('intents and cancel requests', () => {
  const policy = { intentsDays: 30, cancelRequestsDays: 30 };

  test('that are long finished go, alone; an open run keeps its own; repeats are answered without them', async () => {
    const runs = createRuns(t.db);
    const ended = await anEndedTurn('s8', 'k');
    const open = await runs.admitTurn({ tenantId, sessionId: 's9', turn: newTurn(), idempotencyKey: 'k' });
    await runs.createCommand({ tenantId, runId: open.run.id, idempotencyKey: 'n', command: { type: 'note', payload: {}, dispatch: {} } });
    const { command } = await runs.createCommand({
      tenantId,
      runId: open.run.id,
      idempotencyKey: 'n',
      command: { type: 'note', payload: {}, dispatch: {} },
    });
    await runs.cancelCommand({ tenantId, commandId: command.id });
    const open2 = {
      intents: await count('dispatch_intents', `run_id = '${open.run.id}'`),
      cancels: await count('cancel_requests', `run_id = '${open.run.id}'`),
    };

    for (const [prune, table] of [
      [pruneIntentsOnce, 'dispatch_intents'],
      [pruneCancelRequestsOnce, 'cancel_requests'],
    ] as const) {
      const dry = await prune(later, { tenantId, policy, dryRun: true });
      const done = await prune(later, { tenantId, policy });
      expect(done.tenants).toEqual(dry.tenants);
      expect(done.changed).toBeGreaterThanOrEqual(1);
      expect(await count(table, `run_id = '${ended.runId}'`)).toBe(0);
      expect((await prune(later, { tenantId, policy })).changed).toBe(0);
    }
    expect(await count('dispatch_intents', `run_id = '${open.run.id}'`)).toBe(open2.intents);
    expect(await count('cancel_requests', `run_id = '${open.run.id}'`)).toBe(open2.cancels);
    expect(await getDispatchIntent(t.db, { tenantId, commandId: ended.commandId })).toBeNull();
    expect(await listCancelRequests(t.db, { tenantId, runId: ended.runId })).toEqual({ requests: [], cursor: null });
    expect(await runs.cancelRun({ tenantId, runId: ended.runId })).toMatchObject({ changed: false, request: null });
    const repeated = await runs.admitTurn({ tenantId, sessionId: 's8', turn: newTurn(), idempotencyKey: 'k' });
    expect(repeated).toMatchObject({ disposition: 'replayed', run: { id: ended.runId }, intent: null });
    await runs.cancelRun({ tenantId, runId: open.run.id });
  });

  test('of a command that is repeated in its run too', async () => {
    const runs = createRuns(t.db);
    const { run } = await runs.createRun({ tenantId, run: newRun() });
    const note = { tenantId, runId: run.id, idempotencyKey: 'n', command: { type: 'note', payload: {}, dispatch: {} } };
    const { command } = await runs.createCommand(note);
    await runs.cancelRun({ tenantId, runId: run.id });
    await pruneIntentsOnce(later, { tenantId, policy });

    expect(await runs.createCommand(note)).toMatchObject({ command: { id: command.id }, intent: null, replayed: true });
  });
});
