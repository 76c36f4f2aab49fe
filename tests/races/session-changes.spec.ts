import fc from 'fast-check';
import { inTransaction, type Tx } from '@runplane/database';
import { waitUntilBlocked } from '@runplane/database/testing';
import { admitTurn, appendRunEvents, claimExpiredStorage, createRuns, finishRun } from '@runplane/runs';
import { aClaimedTurn, aTurn, message, newTurn, TENANT } from '@runplane/runs/testing';
import {
  confirmStorageEvicted,
  createSessions,
  getSession,
  listSessionChanges,
  listSessions,
  markSessionRead,
  refreshSessionStorage,
  renameSession,
  upsertSession,
} from '@runplane/sessions';
import { ending, hold, meet, meetAborted, useRaces, type Held } from '../support/races';
import { until } from '../support/until';

const t = useRaces();
const tenantId = TENANT;
const key = (sessionId: string) => ({ tenantId, sessionId });
const content = { projectId: 'p1', backendProfile: 'demo' };
const sessions = () => createSessions(t.db);
const turn = (sessionId: string) => ({ ...key(sessionId), turn: newTurn(), idempotencyKey: `k-${Math.random()}` });

describe('the list of changes', () => {
  /** Follows from a cursor until everything that has been committed is below the horizon. */
  async function follow(after: string): Promise<{ seen: Map<string, number>; cursor: string }> {
    const seen = new Map<string, number>();
    for (let cursor = after; ;) {
      const page = await listSessionChanges(t.db, { tenantId, after: cursor, limit: 2 });
      for (const { sessionId, version } of page.sessions) seen.set(sessionId, version);
      cursor = page.cursor;
      if (!page.more) return { seen, cursor };
    }
  }
  const now = async () => (await listSessionChanges(t.db, { tenantId, after: 'now' })).cursor;
  const rename = (sessionId: string) => (tx: Tx) => renameSession(tx, { ...key(sessionId), title: `t${Math.random()}` });

  test('shows a change that was numbered first and committed last, and nothing behind it before', async () => {
    for (const id of ['late', 'early']) await sessions().upsertSession({ ...key(id), session: content });
    const start = await until('the two are below the horizon', async () => {
      const { seen, cursor } = await follow('start');
      return seen.has('late') && seen.has('early') && cursor;
    });
    const late = await hold(t.db, rename('late'));
    await inTransaction(t.db, rename('early'));
    const between = await follow(start);
    expect(between.seen.size).toBe(0);
    await late.commit();
    const { seen } = await until('both are there', async () => {
      const found = await follow(between.cursor);
      return found.seen.size === 2 && found;
    });
    expect(Object.fromEntries(seen)).toEqual({ late: 2, early: 2 });
  });

  test('leads every follower to the last version of each session, whatever overlaps and rolls back', async () => {
    const ids = ['x1', 'x2', 'x3', 'x4'];
    for (const id of ids) await sessions().upsertSession({ ...key(id), session: content });
    const step = fc.record({ session: fc.nat(3), act: fc.constantFrom('begin', 'commit', 'roll-back', 'read', 'alone') });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 14 }), async (steps) => {
        const open = new Map<string, Held<unknown>>();
        const followed = new Map<string, number>();
        let cursor = await now();
        const before = new Map(await Promise.all(ids.map(async (id) => [id, (await getSession(t.db, key(id))).version] as const)));
        const read = async (): Promise<void> => {
          const page = await follow(cursor);
          for (const [id, version] of page.seen) followed.set(id, version);
          cursor = page.cursor;
        };
        for (const { session, act } of steps) {
          const id = ids[session] ?? 'x1';
          const held = open.get(id);
          if (act === 'read') await read();
          else if (act === 'begin' && held === undefined) open.set(id, await hold(t.db, rename(id)));
          else if (act === 'alone' && held === undefined) await inTransaction(t.db, rename(id));
          else if (held !== undefined && (act === 'commit' || act === 'roll-back')) {
            await (act === 'commit' ? held.commit() : held.rollBack());
            open.delete(id);
          }
        }
        for (const held of open.values()) await held.commit();
        const versions = await Promise.all(ids.map(async (id) => [id, (await getSession(t.db, key(id))).version] as const));
        const changed = versions.filter(([id, version]) => version !== before.get(id));
        await until('every change has been followed', async () => {
          await read();
          return changed.every(([id, version]) => followed.get(id) === version);
        });
      }),
      { numRuns: 12 },
    );
  });
});

describe('an upsert', () => {
  const upsert = (sessionId: string, over = {}) => ({ ...key(sessionId), session: { ...content, ...over } });

  test('and its twin make one session', async () => {
    const [first, twin] = await meet(
      t.db,
      (tx) => upsertSession(tx, upsert('twin', { metadata: { a: 1 } })),
      () => sessions().upsertSession(upsert('twin', { metadata: { a: 1 } })),
    );
    expect(first).toMatchObject({ created: true });
    expect(twin).toMatchObject({ value: { created: false, changed: false, session: { version: 1 } } });
  });

  test('whose twin rolls back makes it; one of another project is refused', async () => {
    const alone = await meetAborted(
      t.db,
      (tx) => upsertSession(tx, upsert('again')),
      () => sessions().upsertSession(upsert('again')),
    );
    expect(alone).toMatchObject({ value: { created: true } });
    const [, other] = await meet(
      t.db,
      (tx) => upsertSession(tx, upsert('border')),
      () => sessions().upsertSession(upsert('border', { projectId: 'p2' })),
    );
    expect(other).toMatchObject({ code: 'session_boundary' });
  });

  test('and the first turn of a new session make it once', async () => {
    const [, admitted] = await meet(
      t.db,
      (tx) => upsertSession(tx, upsert('first', { metadata: { title: 'Mine' } })),
      () => createRuns(t.db).admitTurn(turn('first')),
    );
    expect(admitted).toMatchObject({ value: { disposition: 'created' } });
    expect(await getSession(t.db, key('first'))).toMatchObject({ title: 'Mine', executionState: 'running', version: 2 });
  });
});

describe('a read mark', () => {
  const isUnread = async (sessionId: string) =>
    (await listSessions(t.db, { tenantId, state: 'unread', readerId: 'ann', limit: 200 })).sessions.some(
      (each) => each.sessionId === sessionId,
    );
  const mark = (sessionId: string) => markSessionRead(t.db, { ...key(sessionId), readerId: 'ann' });

  test('waits for no append and no end of a run, and does not cover the end that commits later', async () => {
    const { run, epoch } = await aClaimedTurn(t.db, 'marked');
    const append = await hold(t.db, (tx) => appendRunEvents(tx, { tenantId, runId: run.id, epoch, events: [message('x')] }));
    await mark('marked');
    await append.commit();
    expect(await isUnread('marked')).toBe(false);
    const end = await hold(t.db, (tx) => finishRun(tx, { tenantId, runId: run.id, epoch, outcome: { terminalStatus: 'completed' } }));
    await mark('marked');
    await end.commit();
    expect(await isUnread('marked')).toBe(true);
  });

  test('and its twin are one mark', async () => {
    await aTurn(t.db, 'marked-twice');
    const [, twin] = await meet(
      t.db,
      (tx) => markSessionRead(tx, { ...key('marked-twice'), readerId: 'bob' }),
      () => markSessionRead(t.db, { ...key('marked-twice'), readerId: 'bob' }),
    );
    expect(twin).toMatchObject({ value: { sessionVersion: 2 } });
  });
});

describe('storage that has expired', () => {
  async function expired(sessionId: string): Promise<void> {
    await sessions().upsertSession({ ...key(sessionId), session: { ...content, expiresAt: '2020-01-01T00:00:00Z' } });
    await sessions().refreshSessionStorage({ ...key(sessionId), storage: { kind: 'pvc', name: sessionId } });
  }
  const claim = (tx: Tx) => claimExpiredStorage(tx, { owner: 'gc' });
  afterEach(() => t.db.pool.query(`UPDATE runplane.sessions SET expires_at = NULL`));

  test('is not given to a collector while a turn is being admitted, nor afterwards', async () => {
    await expired('admitted');
    const admission = await hold(t.db, (tx) => admitTurn(tx, turn('admitted')));
    expect(await inTransaction(t.db, claim)).toEqual([]);
    await admission.commit();
    expect(await inTransaction(t.db, claim)).toEqual([]);
  });

  test('that a collector takes at that moment refuses the turn that waits for it', async () => {
    await expired('claimed');
    const [claims, admitted] = await meet(t.db, claim, () => createRuns(t.db).admitTurn(turn('claimed')));
    expect(claims).toMatchObject([{ sessionId: 'claimed' }]);
    expect(admitted).toMatchObject({ code: 'storage_evicting' });
  });

  test('is not taken for gone when another has been attached: the confirmation that waits for it is refused', async () => {
    await expired('refreshed');
    const [held] = await inTransaction(t.db, claim);
    if (held === undefined) throw new Error('no claim');
    const [, confirmed] = await meet(
      t.db,
      (tx) => refreshSessionStorage(tx, { ...key('refreshed'), storage: { kind: 'pvc', name: 'new' } }),
      () => inTransaction(t.db, (tx) => confirmStorageEvicted(tx, held)),
    );
    expect(confirmed).toMatchObject({ code: 'storage_changed', data: { storageName: 'new' } });
  });

  test('goes to one of two collectors', async () => {
    for (const id of ['one', 'two']) await expired(id);
    const first = await hold(t.db, (tx) => claimExpiredStorage(tx, { owner: 'gc1', limit: 1 }));
    const second = await inTransaction(t.db, (tx) => claimExpiredStorage(tx, { owner: 'gc2' }));
    expect(new Set([...first.value, ...second].map(({ sessionId }) => sessionId))).toEqual(new Set(['one', 'two']));
    await first.commit();
    expect(second).toHaveLength(1);
  });
});

test('a rename and the end of a turn wait for each other in one order', async () => {
  const { run, epoch } = await aClaimedTurn(t.db, 'ordered');
  const renaming = await hold(t.db, (tx) => renameSession(tx, { ...key('ordered'), title: 'Mine' }));
  const end = ending(createRuns(t.db).finishRun({ tenantId, runId: run.id, epoch, outcome: { terminalStatus: 'completed' } }));
  await waitUntilBlocked(t.db, 1);
  await renaming.commit();
  expect(await end).toMatchObject({ value: { status: 'completed' } });
  expect(await getSession(t.db, key('ordered'))).toMatchObject({ title: 'Mine', version: 4, executionState: 'terminal' });
});
