import { ensureTenant, inTransaction, type Tx } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import {
  assertBoundary,
  ensureSession,
  findSession,
  getSession,
  lockSession,
  resolveSessionRef,
  titleOfTurn,
  writeFeedNumber,
  writeLastRun,
  writeThread,
  writeTurnEnded,
  writeTurnStarted,
} from './index';

// No run stands behind the ids of this file: sessions knows none.
const t = useDatabase({ checkInvariants: false });
const tenantId = 'acme';
const boundary = { projectId: 'p1', backendProfile: 'demo' };
beforeAll(() => Promise.all([ensureTenant(t.db.sql, tenantId), ensureTenant(t.db.sql, 'other')]));

const run = <T>(work: (tx: Tx) => Promise<T>): Promise<T> => inTransaction(t.db, work);
const makeSession = (sessionId: string, ref: object = {}) => run((tx) => ensureSession(tx, tenantId, { sessionId, ...ref }, boundary));
const started = { runId: 'run_1', commandId: 'cmd_1', title: 'a title' };
const ended = { terminalStatus: 'completed', failureKind: null };

describe('a session', () => {
  test('is made once, by whoever names it first', async () => {
    await makeSession('s1', { conversationId: 'c1', metadata: { a: 1 } });
    await makeSession('s1', { conversationId: 'c2', metadata: { a: 2 } });
    expect(await getSession(t.db, { tenantId, sessionId: 's1' })).toMatchObject({
      ...boundary,
      conversationId: 'c1',
      metadata: { a: 1 },
      executionState: 'idle',
      activeRunId: null,
      title: null,
      version: 1,
    });
  });

  test('of another tenant is not found', async () => {
    await makeSession('s2');
    await expect(getSession(t.db, { tenantId: 'other', sessionId: 's2' })).rejects.toMatchObject({ code: 'session_not_found' });
    expect(await run((tx) => lockSession(tx, { tenantId: 'other', sessionId: 's2' }))).toBeUndefined();
  });

  test('belongs to one project and one backend profile', async () => {
    await makeSession('s3');
    const session = await findSession(t.db.sql, { tenantId, sessionId: 's3' });
    if (session === undefined) throw new Error('s3 is missing');
    expect(() => {
      assertBoundary(session, boundary);
    }).not.toThrow();
    expect(() => {
      assertBoundary(session, { ...boundary, projectId: 'p2' });
    }).toThrow(expect.objectContaining({ code: 'session_boundary', data: { sessionId: 's3', field: 'projectId' } }));
    expect(() => {
      assertBoundary(session, { ...boundary, backendProfile: 'x' });
    }).toThrow(expect.objectContaining({ data: { sessionId: 's3', field: 'backendProfile' } }));
  });

  test('keeps its own ids in the reference of a run, and takes the run’s metadata in addition', async () => {
    await makeSession('s4', { conversationId: 'c1', metadata: { a: 1, b: 1 } });
    const session = await findSession(t.db.sql, { tenantId, sessionId: 's4' });
    if (session === undefined) throw new Error('s4 is missing');
    expect(resolveSessionRef(session, { sessionId: 's4', conversationId: 'c2', threadId: 't2', metadata: { b: 2 } })).toEqual({
      sessionId: 's4',
      conversationId: 'c1',
      threadId: 't2',
      metadata: { a: 1, b: 2 },
    });
  });

  test('with a time to live lives on from its last activity', async () => {
    await makeSession('s5', { ttlSeconds: 60 });
    const made = await getSession(t.db, { tenantId, sessionId: 's5' });
    await run((tx) => writeTurnStarted(tx, { tenantId, sessionId: 's5', ...started }));
    const active = await getSession(t.db, { tenantId, sessionId: 's5' });
    for (const { expiresAt, lastActivityAt } of [made, active])
      expect(Date.parse(expiresAt as string) - Date.parse(lastActivityAt)).toBeGreaterThanOrEqual(59_000);
    expect(Date.parse(active.lastActivityAt)).toBeGreaterThan(Date.parse(made.lastActivityAt));
  });
});

describe('the active pair', () => {
  const key = (sessionId: string) => ({ tenantId, sessionId });

  test('is given to a turn only while nobody has it', async () => {
    await makeSession('p1');
    await run((tx) => writeTurnStarted(tx, { ...key('p1'), ...started }));
    await expect(run((tx) => writeTurnStarted(tx, { ...key('p1'), ...started, runId: 'run_2' }))).rejects.toThrow('touched 0 rows');
    expect(await getSession(t.db, key('p1'))).toMatchObject({
      executionState: 'running',
      activeRunId: 'run_1',
      activeCommandId: 'cmd_1',
      version: 2,
    });
  });

  test('is taken from a turn only by its own end', async () => {
    await makeSession('p2');
    await run((tx) => writeTurnStarted(tx, { ...key('p2'), ...started }));
    expect(await run((tx) => writeTurnEnded(tx, { ...key('p2'), runId: 'run_0', commandId: null, ...ended }))).toBe(false);
    expect(await run((tx) => writeTurnEnded(tx, { ...key('p2'), runId: 'run_1', commandId: 'cmd_0', ...ended }))).toBe(false);
    expect(await run((tx) => writeTurnEnded(tx, { tenantId: 'other', sessionId: 'p2', runId: 'run_1', commandId: null, ...ended }))).toBe(
      false,
    );
    expect(await getSession(t.db, key('p2'))).toMatchObject({ activeRunId: 'run_1' });
    expect(await run((tx) => writeTurnEnded(tx, { ...key('p2'), runId: 'run_1', commandId: 'cmd_1', ...ended }))).toBe(true);
    expect(await getSession(t.db, key('p2'))).toMatchObject({
      executionState: 'terminal',
      activeRunId: null,
      activeCommandId: null,
      lastRunId: 'run_1',
      lastCommandId: 'cmd_1',
      terminalStatus: 'completed',
    });
    expect(await run((tx) => writeTurnEnded(tx, { ...key('p2'), runId: 'run_1', commandId: 'cmd_1', ...ended }))).toBe(false);
  });

  test('forgets the last outcome when the next turn begins', async () => {
    await makeSession('p3');
    await run((tx) => writeTurnStarted(tx, { ...key('p3'), ...started }));
    await run((tx) =>
      writeTurnEnded(tx, { ...key('p3'), runId: 'run_1', commandId: null, terminalStatus: 'failed', failureKind: 'timeout' }),
    );
    await run((tx) => writeTurnStarted(tx, { ...key('p3'), ...started, runId: 'run_2' }));
    expect(await getSession(t.db, key('p3'))).toMatchObject({ executionState: 'running', terminalStatus: null, failureKind: null });
  });

  test('guards the thread: a run that does not own the session leaves it alone', async () => {
    await makeSession('p4');
    await run((tx) => writeTurnStarted(tx, { ...key('p4'), ...started }));
    expect(await run((tx) => writeThread(tx, { ...key('p4'), runId: 'run_0', threadId: 'stale', turnId: null }))).toBe(false);
    expect(await run((tx) => writeThread(tx, { ...key('p4'), runId: 'run_1', threadId: 'th', turnId: 'tu' }))).toBe(true);
    expect(await getSession(t.db, key('p4'))).toMatchObject({ threadId: 'th', metadata: { lastTurnId: 'tu' } });
  });

  test('and the newest run are told apart: a run without a turn moves no version', async () => {
    await makeSession('p5');
    await run((tx) => writeLastRun(tx, { ...key('p5'), runId: 'run_9' }));
    expect(await getSession(t.db, key('p5'))).toMatchObject({ lastRunId: 'run_9', version: 1, executionState: 'idle' });
  });
});

test('a session remembers the greatest feed number of whoever held it, and never a smaller one', async () => {
  await makeSession('f1');
  const key = { tenantId, sessionId: 'f1' };
  await run(async (tx) => {
    tx.feed.raise(2n ** 62n);
    await writeFeedNumber(tx, key);
  });
  await run((tx) => writeLastRun(tx, { ...key, runId: 'run_1' }));
  const floor = await run(async (tx) => {
    await lockSession(tx, key);
    return tx.feed.value;
  });
  expect(floor).toBe(2n ** 62n);
});

describe('a title', () => {
  test.each([
    ['the first line of the first turn', { text: '\n  Fix the build  \nplease' }, 'Fix the build'],
    ['cut at 120 code points, without breaking one', { text: '𝒳'.repeat(121) }, expect.stringMatching(/^𝒳+…?$/u)],
    ['nothing of a turn without words', { text: ' \n ' }, null],
    ['nothing of a turn without text', { blocks: [] }, null],
  ])('is %s', (_what, payload, title) => {
    expect(titleOfTurn(payload)).toEqual(title);
  });

  test('is the metadata’s when it names one, and no turn renames a session', async () => {
    await makeSession('n1', { metadata: { title: '  Mine ' } });
    await run((tx) => writeTurnStarted(tx, { tenantId, sessionId: 'n1', ...started }));
    expect((await getSession(t.db, { tenantId, sessionId: 'n1' })).title).toBe('Mine');
    await makeSession('n2', { metadata: { title: 7 } });
    await run((tx) => writeTurnStarted(tx, { tenantId, sessionId: 'n2', ...started }));
    expect((await getSession(t.db, { tenantId, sessionId: 'n2' })).title).toBe('a title');
  });
});
