import { Readable } from 'node:stream';
import { inTransaction, type Db, type Tx } from '@runplane/database';
import {
  admitTurn,
  appendRunEvents,
  archiveKeyOf,
  createRuns,
  getRun,
  listRuns,
  pruneRunEventsOnce,
  pruneRunsOnce,
  readArchivedRun,
  type ArchiveSink,
} from '@runplane/runs';
import { getSession } from '@runplane/sessions';
import { aClaimedTurn, message, newTurn, TENANT } from '@runplane/runs/testing';
import { waitUntilBlocked } from '@runplane/database/testing';
import { ending, lockRow, openDbAhead, useRaces } from '../support/races';

// Retention against everybody who still has to do with a run, two days after its end.

let later: Db;
afterAll(() => later.close()); // before the end of useRaces, which waits until no connection of a race is left
const t = useRaces();
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;
let sessions = 0;

beforeAll(async () => {
  later = await openDbAhead(t.url, 2 * 86_400_000);
});

/** A sink in memory; `onPut` comes between the copy and its removal. */
function memory(onPut: (key: string) => Promise<unknown> = () => Promise.resolve()): ArchiveSink {
  const kept = new Map<string, Buffer>();
  return {
    async put(key, content) {
      const bytes = Buffer.concat(await content.toArray());
      kept.set(key, bytes);
      await onPut(key);
      return { bytes: bytes.length, sha256: (await import('node:crypto')).createHash('sha256').update(bytes).digest('hex') };
    },
    get: (key) => Promise.resolve(Readable.from([kept.get(key) ?? Buffer.alloc(0)])),
  };
}

/** Two turns of a session, both ended; the first may go. */
async function twoTurns() {
  sessions += 1;
  const sessionId = `old-${sessions}`;
  const runs = createRuns(t.db);
  const { run, command } = await runs.admitTurn({ tenantId, sessionId, turn: newTurn(), idempotencyKey: 'first' });
  await runs.cancelRun({ tenantId, runId: run.id });
  const last = await aClaimedTurn(t.db, sessionId);
  await runs.finishRun({ tenantId, runId: last.run.id, epoch: last.epoch, outcome: completed });
  return { sessionId, runId: run.id, commandId: command.id, last: { runId: last.run.id, epoch: last.epoch } };
}

const prune = (archive: ArchiveSink, db = later) => pruneRunsOnce(db, { tenantId, policy: { runsDays: 1 }, archive });
const isThere = async (runId: string) => ((await t.db.pool.query('SELECT FROM runplane.runs WHERE id = $1', [runId])).rowCount ?? 0) === 1;
const phases = (rows: readonly object[]) => rows.map((row) => (row as { payload: { phase?: string } }).payload.phase);

afterEach(() => prune(memory()));

test('a write that is refused while the copy is written keeps the run until a copy has its record too', async () => {
  const { last } = await twoTurns();
  const late = (copy: string) =>
    copy === archiveKeyOf({ tenantId, ...last }, 'events')
      ? ending(appendRunEvents(t.db, { tenantId, ...last, events: [message('late')] }))
      : Promise.resolve();
  const events = (archive: ArchiveSink) => pruneRunEventsOnce(later, { tenantId, policy: { eventsDays: 1 }, archive });
  const key = { tenantId, runId: last.runId };
  const before = await getRun(t.db, key);

  const first = await events(memory(late));

  expect(first.tenants.flatMap(({ ids }) => ids)).not.toContain(last.runId);
  expect((await getRun(t.db, key)).lastEventSeq).toBe(before.lastEventSeq + 1);
  const archive = memory();
  expect((await events(archive)).tenants.flatMap(({ ids }) => ids)).toContain(last.runId);
  expect(phases((await readArchivedRun(archive, archiveKeyOf(key, 'events'))).rows.event).at(-1)).toBe('late-write-rejected');
});

test('of two processes at once one removes the run, and the other leaves it alone', async () => {
  const { runId } = await twoTurns();
  let second: Awaited<ReturnType<typeof prune>> | undefined;

  const first = await prune(memory(async () => (second ??= await prune(memory()))));

  expect([first.changed, second?.changed, await isThere(runId)]).toEqual([1, 0, false]);
});

test('a process that was too slow removes nothing any more, whatever has become of the run meanwhile', async () => {
  const { runId } = await twoTurns();
  const overtake = (as: string) => async () => {
    await t.db.pool.query(
      `UPDATE runplane.reservations SET owner = $2, epoch = epoch + 1 WHERE key::json ->> 1 = $1 AND owner IS NOT NULL`,
      [runId, as],
    );
  };
  const free = () =>
    t.db.pool.query(`UPDATE runplane.reservations SET owner = NULL, expires_at = NULL WHERE key::json ->> 1 = $1`, [runId]);

  expect((await prune(memory(overtake('another')))).changed).toBe(0);
  expect(await isThere(runId)).toBe(true);

  await free();
  const whole = memory();
  const slow = memory(async () => {
    await free();
    expect((await prune(whole)).changed).toBe(1);
  });
  expect(await prune(slow)).toMatchObject({ changed: 0, failed: 0 });
  expect((await readArchivedRun(whole, archiveKeyOf({ tenantId, runId }, 'run'))).rows.run).toHaveLength(1);
});

test('a repeat of a turn meets its removal: before it the same turn, in the middle of it too, behind it a new one', async () => {
  const { sessionId, runId, commandId } = await twoTurns();
  const repeat = (db: Db = t.db) => createRuns(db).admitTurn({ tenantId, sessionId, turn: newTurn(), idempotencyKey: 'first' });
  const row = await lockRow(t.url, 'commands', `id = '${commandId}'`);
  const removal = prune(memory());
  await waitUntilBlocked(t.db, 1);

  expect(await repeat()).toMatchObject({ disposition: 'replayed', run: { id: runId } });
  await row.release();
  expect((await removal).changed).toBe(1);

  const next = await twoTurns();
  // The run goes between two statements of the repeat, which starts over.
  let statements = 0;
  const again = await inTransaction(t.db, (tx) => {
    const slow: Tx = {
      ...tx,
      query: async (statement) => {
        statements += 1;
        if (statements === 2) expect((await prune(memory())).changed).toBe(1);
        return tx.query(statement);
      },
    };
    return admitTurn(slow, { tenantId, sessionId: next.sessionId, turn: newTurn(), idempotencyKey: 'first' });
  });
  expect(again).toMatchObject({ disposition: 'created', replayed: false });
  expect(await repeat()).toMatchObject({ disposition: 'created' });
});

test('whoever reads sessions and runs while runs go never meets a session whose last run is gone', async () => {
  const made = [await twoTurns(), await twoTurns(), await twoTurns()];
  let going = true;
  const reading = (async () => {
    for (let reads = 0; going || reads === 0; reads += 1) {
      for (const { sessionId } of made) {
        const { lastRunId } = await getSession(t.db, { tenantId, sessionId });
        expect(await getRun(t.db, { tenantId, runId: lastRunId ?? '' })).toMatchObject({ sessionId });
      }
      for (const { id } of (await listRuns(t.db, { tenantId, limit: 100 })).runs) {
        const read = await ending(getRun(t.db, { tenantId, runId: id }));
        if ('code' in read) expect(read.code).toBe('run_deleted');
      }
    }
  })();

  const { changed } = await prune(memory());
  going = false;
  await reading;

  expect(changed).toBe(3);
  for (const { runId, last } of made) expect([await isThere(runId), await isThere(last.runId)]).toEqual([false, true]);
});
