import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import type { NewRunEvent, RetentionPolicy } from '@runplane/contracts';
import fc from 'fast-check';
import { ensureTenant, inTransaction, openDb, type Db, type SqlExecutor } from '@runplane/database';
import { useDatabase, waitForHorizon } from '@runplane/database/testing';
import { readFeed } from '@runplane/outbox';
import type { ArchiveSink } from './archive-sink';
import { appendRunEvents } from './append-run-events';
import { claimRun } from './claim-run';
import { listRunOutput } from './event-pages';
import { createFolderArchive } from './folder-archive';
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

jest.setTimeout(process.env['DEATHS'] === 'all' ? 300_000 : 30_000);
const t = useDatabase();
/** Each test has its own. */
let tenantId = '';
let tenants = 0;
const completed = { terminalStatus: 'completed' } as const;
let later: Db;
let dir: string;
let archive: ArchiveSink;

beforeAll(async () => {
  later = await dbAhead(40);
  dir = await mkdtemp(path.join(os.tmpdir(), 'archive-'));
  archive = createFolderArchive({ dir });
});
afterAll(async () => {
  await later.close();
  await rm(dir, { recursive: true });
});

/** A store handle whose database clock is days ahead. */
function dbAhead(days: number): Promise<Db> {
  const url = new URL(t.url);
  url.searchParams.set('options', `-c runplane.fake_now=${new Date(Date.now() + days * 86_400_000).toISOString()}`);
  return openDb({ url: url.toString(), poolMax: 4, onError: () => undefined });
}

/** A pass forty days later, over runs that are to go after thirty. */
const pass = (over: Partial<RetentionPass> = {}): RetentionPass => ({ tenantId, archive, policy: { runsDays: 30 }, ...over });

async function aClaimedRun(): Promise<{ runId: string; epoch: number }> {
  const { run } = await createRuns(t.db).createRun({ tenantId, run: newRun() });
  const { epoch } = await claimRun(t.db, { tenantId, runId: run.id, runnerId: 'r' });
  return { runId: run.id, epoch };
}

/** A run of no session that has ended behind `events` messages. */
async function anEndedRun(events = 2): Promise<{ runId: string; epoch: number }> {
  const { runId, epoch } = await aClaimedRun();
  const batch = Array.from({ length: events }, (_, i) => message(`m${i}`));
  if (events > 0) await appendRunEvents(t.db, { tenantId, runId, epoch, producerSequence: 1, events: batch });
  await createRuns(t.db).finishRun({ tenantId, runId, epoch, outcome: completed });
  return { runId, epoch };
}

async function anEndedTurn(sessionId: string, key: string): Promise<{ runId: string; commandId: string }> {
  const runs = createRuns(t.db);
  const { run, command } = await runs.admitTurn({ tenantId, sessionId, turn: newTurn(), idempotencyKey: key });
  await runs.cancelRun({ tenantId, runId: run.id });
  return { runId: run.id, commandId: command.id };
}

const KINDS = {
  run: 'runs',
  command: 'commands',
  intent: 'dispatch_intents',
  'runner-job': 'runner_jobs',
  'cancel-request': 'cancel_requests',
  event: 'run_events',
};

/** Everything that stands of a run, as PostgreSQL writes its rows, in the order of an archive. */
async function rowsOf(runId: string): Promise<Record<string, unknown[]>> {
  const found = Object.entries(KINDS).map(async ([kind, table]) => {
    const order = kind === 'event' || kind === 'command' ? 'seq' : 'id';
    const text = `SELECT to_json(x)::text AS row FROM runplane.${table} x WHERE ${kind === 'run' ? 'id' : 'run_id'} = $1 ORDER BY ${order}`;
    const { rows } = await t.db.pool.query<{ row: string }>(text, [runId]);
    return [kind, rows.map(({ row }) => JSON.parse(row) as unknown)];
  });
  return Object.fromEntries(await Promise.all(found)) as Record<string, unknown[]>;
}

const count = async (table: string, where = 'true'): Promise<number> =>
  (await t.db.pool.query(`SELECT FROM runplane.${table} WHERE ${where}`)).rowCount ?? 0;
const runThere = (runId: string) => count('runs', `id = '${runId}'`);

/** What was refused, for `toMatchObject`. */
const refusal = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    () => 'not refused',
    (error: unknown) => error,
  );

beforeEach(async () => {
  tenants += 1;
  tenantId = `tenant-${tenants}`;
  await ensureTenant(t.db.sql, tenantId);
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
    tenantId = `${mine}-other`;
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
    for await (const item of streamRunEvents(t.db, { ...key, afterSeq: last, signal: AbortSignal.timeout(5_000) })) items.push(item);
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

describe('an archive that fails', () => {
  let other: string | undefined;
  const flipped = async (key: string) => {
    const file = path.join(dir, key);
    const bytes = await readFile(file);
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    await writeFile(file, bytes);
  };

  test.each<[string, () => ArchiveSink, RegExp]>([
    [
      'does not take the copy',
      () => ({ ...archive, put: () => Promise.reject(new Error('disk full, token=sk-live-aaaabbbbccccdddd')) }),
      /disk full/,
    ],
    [
      'has another copy than was written: one bit',
      () => ({ put: async (key, content) => archive.put(key, content).finally(() => flipped(key)), get: archive.get }),
      /damaged/,
    ],
    ['has a copy of another run', () => ({ put: archive.put, get: async () => archive.get(other ?? '') }), /another copy/],
    [
      'loses the copy',
      () => ({ put: async (key, content) => archive.put(key, content).finally(() => rm(path.join(dir, key))), get: archive.get }),
      /no archive/,
    ],
    ['ends the copy before its end', () => ({ put: async () => ({ bytes: 0, sha256: '' }), get: archive.get }), /did not read the stream/],
  ])('because it %s leaves everything; the next runs go on; it is tried again after a while', async (_what, broken, reason) => {
    const { runId } = await anEndedRun();
    const second = await anEndedRun();
    const before = await rowsOf(runId);
    other ??= archiveKeyOf({ tenantId, ...second }, 'run');
    const sink = broken();
    const onlyFirst: ArchiveSink = {
      put: (key, content) => (key === archiveKeyOf({ tenantId, runId }, 'run') ? sink : archive).put(key, content),
      get: (key) => (key === archiveKeyOf({ tenantId, runId }, 'run') ? sink : archive).get(key),
    };

    const report = await pruneRunsOnce(later, pass({ archive: onlyFirst }));

    expect(report).toMatchObject({
      changed: 1,
      failed: 1,
      tenants: [{ ids: [second.runId], failures: [{ id: runId, reason: expect.stringMatching(reason) }] }],
    });
    expect(await rowsOf(runId)).toEqual(before);
    expect((await pruneRunsOnce(later, pass())).changed).toBe(0);
    const { rows } = await t.db.pool.query(`SELECT data, owner FROM runplane.reservations WHERE owner IS NOT NULL AND tenant_id = $1`, [
      tenantId,
    ]);
    expect(rows).toMatchObject([{ data: { failures: 1, lastError: expect.stringMatching(reason) } }]);
    expect(JSON.stringify(rows)).not.toContain('sk-live');
    const afterwards = await dbAhead(41);
    expect((await pruneRunsOnce(afterwards, pass())).tenants).toMatchObject([{ ids: [runId] }]);
    await afterwards.close();
  });

  test('leaves no half file behind, also of a process that died while it wrote', async () => {
    const { runId } = await anEndedRun();
    const key = archiveKeyOf({ tenantId, runId }, 'run');
    await archive.put(key, Readable.from([Buffer.from('old')]));
    await writeFile(path.join(dir, `${key}.dead.tmp`), 'half');
    const broken = Readable.from(
      (function* () {
        yield Buffer.from('new');
        throw new Error('the source breaks');
      })(),
    );

    expect(await refusal(archive.put(key, broken))).toMatchObject({ message: 'the source breaks' });

    expect(await readFile(path.join(dir, key), 'utf8')).toBe('old');
    expect(await readdir(path.dirname(path.join(dir, key)))).toEqual(['run.jsonl.gz']);
    for (const wrong of ['../x', 'a/../b', '/etc/passwd', '.hidden', '', 'a//b'])
      expect(await refusal(archive.get(wrong))).toMatchObject({ code: 'archive_not_found' });
  });
});

/** DEATHS=all: at every statement; else at some of them, each time others. */
const STEP = process.env['DEATHS'] === 'all' ? 1 : 6;

describe('a process that dies in the middle of a removal', () => {
  /** A store handle that stops working at a statement, as the process would. */
  function dying(db: Db, diesAt: number): { db: Db; statements: () => number } {
    let statements = 0;
    const alive = (): void => {
      statements += 1;
      if (statements >= diesAt) throw new Error('the process is gone');
    };
    const prisma = new Proxy(db.prisma, {
      get: (target, name) =>
        name !== '$transaction'
          ? (Reflect.get(target, name) as unknown)
          : (work: (client: unknown) => Promise<unknown>, options: object) =>
              target.$transaction(
                (client) =>
                  work({
                    $queryRawUnsafe: (text: string, ...values: unknown[]) => {
                      alive();
                      return client.$queryRawUnsafe(text, ...values);
                    },
                  }),
                options,
              ),
    });
    const through = (on: SqlExecutor): SqlExecutor => ({
      query: async (statement) => {
        alive();
        return on.query(statement);
      },
    });
    return { db: { ...db, prisma, sql: through(db.sql), lane: through(db.lane) }, statements: () => statements };
  }

  test.each<[string, typeof pruneRunsOnce, Partial<RetentionPolicy>]>([
    ['runs', pruneRunsOnce, { runsDays: 30 }],
    ['events', pruneRunEventsOnce, { eventsDays: 30 }],
  ])('leaves, whatever its last statement was, %s that a later pass removes', async (_what, prune, policy) => {
    const late = await dbAhead(41);
    let total = Infinity;
    for (let diesAt = 1 + Math.floor(Math.random() * STEP); diesAt < total + STEP; diesAt += STEP) {
      const { runId } = await anEndedRun(5);
      const stood = (await rowsOf(runId))['event'];
      const mortal = dying(later, diesAt);
      const first = await prune(mortal.db, pass({ policy, chunkEvents: 4 })).catch(() => undefined);
      if (first?.changed === 1) total = mortal.statements();

      const second = await prune(late, pass({ policy, chunkEvents: 4 }));

      expect((first?.changed ?? 0) + second.changed).toBeGreaterThanOrEqual(1);
      expect((await readArchivedRun(archive, archiveKeyOf({ tenantId, runId }, 'events'))).rows.event).toEqual(stood);
      expect(await count('run_events', `run_id = '${runId}'`)).toBe(policy.runsDays === undefined ? 1 : 0);
      expect(await count('run_tombstones', `run_id = '${runId}'`)).toBe(policy.runsDays === undefined ? 0 : 1);
    }
    await late.close();
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
