import { eventually, useDatabase } from '@runplane/database/testing';
import { getSinkStatus, refused, SinkSettings, startRelay, type PublishRecord, type Relay, type Sink } from '@runplane/outbox';
import { createMemorySink } from '@runplane/outbox/testing';
import { appendAsServer, createSessions } from '@runplane/sessions';
import { inTransaction, writeRetention, type Db, type SqlExecutor } from '@runplane/database';
import { pruneParkedEventsOnce } from './prune-parked-events';
import { listRunEvents } from './read-run-events';
import { readArchive, type ArchiveLine } from './run-archive';
import { useRetention } from './testing/retention';

const t = useDatabase();
const { stage, anEndedRun, dbAhead, count } = useRetention(t);

const isTelling = ({ type, data }: PublishRecord): boolean =>
  type === 'session/relay-event-dropped' || data.includes('"phase":"relay-event-dropped"');

/** A sink of one tenant that refuses what it is told to, for good; each relay to it runs by the clock of its store handle. */
function aSink(tenantId: string, refuses: (record: PublishRecord) => boolean) {
  const memory = createMemorySink({ answer: (record) => (refuses(record) ? refused('invalid', 'no password=hunter2 here') : undefined) });
  const settings = SinkSettings.parse({ topic: 'events', filter: { tenants: [tenantId] }, start: 'oldest', limits: { attemptsMax: 1 } });
  const sink = (): Sink => ({ ...settings, name: `of-${tenantId}`, kind: 'memory', publisher: memory.publisher() });
  const status = () => getSinkStatus(t.db, { sink: `of-${tenantId}` });
  /** Relays until the sink has got everything but what waits behind so many parked keys. */
  const relayUntil = async (db: Db, parked: number): Promise<void> => {
    const relay: Relay = await startRelay(db, { sinks: [sink()], onError: () => undefined });
    await eventually(async () => {
      const { parkedCount, retryingCount, backlogCount, heldCount } = await status();
      return parkedCount === parked && retryingCount === 0 && backlogCount === heldCount;
    });
    await relay.stop();
  };
  return { memory, status, relayUntil };
}

test('an event that its sink refuses for longer than its tenant waits is archived, given up and told of, and what is behind it goes on', async () => {
  const { tenantId, archive, later } = stage;
  const { runId } = await anEndedRun(3);
  await createSessions(t.db).createSession({ tenantId, header: { id: 's' } });
  const texts = ['a', 'b', 'c'].map((text) => ({ type: 'custom/said', data: { text } }));
  await inTransaction(t.db, (tx) => appendAsServer(tx, { tenantId, sessionId: 's' }, { events: texts }));
  const key = (record: PublishRecord): string => `${record.stream} ${record.sequence}`;
  const refuses = (record: PublishRecord): boolean => ['run 2', 'run 3', 'session 1'].includes(key(record)) || isTelling(record);
  const { memory, status, relayUntil } = aSink(tenantId, refuses);
  await relayUntil(t.db, 2);
  expect((await status()).oldestParkedAt).not.toBeNull();
  const events = async () => (await listRunEvents(t.db, { tenantId, runId, afterSeq: 0, limit: 100 })).events;
  const runEvents = (await events()).length;

  // Forty days on, before and after the tenant has said how long it waits. Its own clock has not moved: nothing is old enough.
  const ids = [`of-${tenantId}/${(await events())[1]?.id}`, expect.stringMatching(`of-${tenantId}/`)].sort();
  expect(await pruneParkedEventsOnce(t.db, { archive })).toMatchObject({ changed: 0, failed: 0, tenants: [] });
  const dry = await pruneParkedEventsOnce(later, { archive, dryRun: true });
  expect(dry).toMatchObject({ changed: 0, tenants: [{ tenantId, ids: expect.arrayContaining(ids), rows: { parkedEvents: 2 } }] });
  expect(await pruneParkedEventsOnce(later)).toMatchObject({ changed: 0, tenants: [{ ids: [], archiveMissing: true }] });
  await writeRetention(t.db.sql, tenantId, { parkedDays: 60 });
  expect(await pruneParkedEventsOnce(later, { archive })).toMatchObject({ changed: 0, tenants: [] });
  expect(await pruneParkedEventsOnce(later, { tenantId, archive, policy: { parkedDays: null } })).toMatchObject({ changed: 0 });
  await writeRetention(t.db.sql, tenantId, { parkedDays: null });
  expect(await pruneParkedEventsOnce(later, { archive })).toMatchObject({ changed: 0, tenants: [] });
  await writeRetention(t.db.sql, tenantId, { parkedDays: 30 });
  // One that is being tried again while it is looked at, and is parked again behind it, has not been copied.
  const query: SqlExecutor['query'] = (statement) =>
    statement.text.includes('"parkedAt"') ? Promise.resolve([]) : later.sql.query(statement);
  const unseen = Object.create(later, { sql: { value: { query } } }) as Db;
  expect(await pruneParkedEventsOnce(unseen, { archive })).toMatchObject({ changed: 0, failed: 0 });
  const removed: string[] = [];
  expect(await pruneParkedEventsOnce(later, { archive, onRemoved: ({ id }) => removed.push(id) })).toMatchObject({ changed: 2, failed: 0 });
  expect([...removed].sort()).toEqual([...(dry.tenants[0]?.ids ?? [])].sort());

  const told = (await events()).at(-1);
  const { archive: copy, ...facts } = told?.payload as { archive: { name: string; sha256: string } };
  expect(told?.payload['message']).not.toContain('hunter2');
  expect(facts).toMatchObject({ phase: 'relay-event-dropped', sink: `of-${tenantId}`, sequence: 2, reason: 'invalid' });
  const lines: ArchiveLine[] = [];
  for await (const line of readArchive(archive, copy.name)) lines.push(line);
  expect(lines).toMatchObject([
    { kind: 'header', format: 'runplane-parked-event-archive', tenantId },
    { kind: 'parked-event', row: { streamId: runId, sequence: 2, reason: 'invalid', data: (await events())[1]?.payload } },
    { kind: 'manifest', counts: { 'parked-event': 1 } },
  ]);
  // The third of the run is refused as well. It has waited as long: it is given up as soon as it is parked. What tells of it may be refused too;
  // that has its own time, and nothing tells of it.
  await relayUntil(later, 2);
  expect(await pruneParkedEventsOnce(later, { archive })).toMatchObject({ changed: 1 });
  expect((await events()).slice(runEvents).map(({ payload }) => payload['sequence'])).toEqual([2, 3]);
  await relayUntil(later, 2);
  expect(memory.arrived.map(key)).toEqual(expect.arrayContaining(['run 1', 'run 4', 'session 0', 'session 2']));
  expect(memory.arrived.filter(refuses)).toEqual([]);
  expect(await pruneParkedEventsOnce(later, { archive })).toMatchObject({ changed: 0 });
  const muchLater = await dbAhead(80);
  for (const [given, left] of [
    [2, 1],
    [1, 0],
  ] as const) {
    expect(await pruneParkedEventsOnce(muchLater, { archive })).toMatchObject({ changed: given });
    await relayUntil(muchLater, left);
  }
  await muchLater.close();
  expect(await events()).toHaveLength(runEvents + 2);
  expect(await count('outbox_held', `sink = 'of-${tenantId}'`)).toBe(0);
});

test('an event that cannot be read stays and is named with its failure; the others are given up', async () => {
  const { tenantId, archive, later } = stage;
  await anEndedRun(1);
  await anEndedRun(1);
  const { relayUntil } = aSink(tenantId, (record) => record.sequence === 2 || isTelling(record));
  await relayUntil(t.db, 2);
  let reads = 0;
  const query: SqlExecutor['query'] = (statement) => {
    if (!statement.text.includes('"parkedAt"')) return later.sql.query(statement);
    reads += 1;
    return reads === 1 ? Promise.reject(new Error('too much to read')) : later.sql.query(statement);
  };
  const broken = Object.create(later, { sql: { value: { query } } }) as Db;

  const report = await pruneParkedEventsOnce(broken, { archive });

  expect(reads).toBe(2);
  expect(report).toMatchObject({ changed: 1, failed: 1 });
  expect(report.tenants).toMatchObject([
    {
      tenantId,
      ids: [expect.any(String)],
      failures: [{ id: expect.stringMatching(new RegExp(`^of-${tenantId}/\\d+\\.\\d+$`)), reason: 'too much to read' }],
    },
  ]);
  expect(await pruneParkedEventsOnce(later, { archive })).toMatchObject({ changed: 1, failed: 0 });
});
