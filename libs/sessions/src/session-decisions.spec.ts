import { matchesListState, SESSION_LIST_STATES } from '@runplane/contracts';
import { decideEvicted, decideUpsert, holdsStorage, storageHeldMs, titleFrom } from './session-decisions';
import type { SessionRow } from './session.sql';

const session = (over: Partial<SessionRow> = {}): SessionRow =>
  ({
    conversationId: 'c1',
    threadId: null,
    metadata: { a: 1, b: { c: 2 } },
    summary: {},
    title: 'Old',
    expiresAt: null,
    ttlSeconds: null,
    rolloutSubdir: 'sessions',
    storageKind: 'folder',
    storageName: 'f',
    storageVersion: 3,
    storageLeaseOwner: null,
    storageLeaseEpoch: 4,
    storageLeaseInMs: null,
    ...over,
  }) as SessionRow;

const END = '2030-01-01T00:00:00.000Z';

describe('an upsert of a session that is there', () => {
  test.each([
    ['that says nothing', session(), {}],
    [
      'that says what is there',
      session({ expiresAt: END }),
      { conversationId: 'c1', threadId: null, expiresAt: '2030-01-01T01:00:00+01:00' },
    ],
    ['whose metadata has another order of keys', session(), { metadata: { b: { c: 2 }, a: 1 } }],
    ['with the same time to live', session({ ttlSeconds: 60, expiresAt: END }), { ttlSeconds: 60 }],
    ['whose metadata names a title that a rename replaced', session({ metadata: { title: 'New' } }), { metadata: { title: 'New' } }],
  ])('%s changes nothing', (_what, stored, wanted) => {
    expect(decideUpsert(stored, wanted)).toEqual({ kind: 'keep' });
  });

  test.each([
    ['clears with null', session(), { conversationId: null }, { conversationId: null, metadata: { a: 1, b: { c: 2 } } }],
    ['replaces metadata whole', session(), { metadata: { z: 1 } }, { metadata: { z: 1 }, title: 'Old' }],
    ['gives a title where there is none', session({ title: null }), { metadata: { title: ' New ' } }, { title: 'New' }],
    ['counts a time to live from now', session(), { ttlSeconds: 60 }, { ttlSeconds: 60, livesFromNow: true }],
    [
      'puts a fixed end in its place',
      session({ ttlSeconds: 60, expiresAt: null }),
      { expiresAt: END },
      { ttlSeconds: null, expiresAt: END },
    ],
    [
      'stops the time to live, and keeps the end',
      session({ ttlSeconds: 60, expiresAt: END }),
      { ttlSeconds: null },
      { ttlSeconds: null, expiresAt: END },
    ],
    [
      'lets a session live for ever',
      session({ ttlSeconds: 60, expiresAt: END }),
      { expiresAt: null },
      { ttlSeconds: null, expiresAt: null },
    ],
  ])('%s', (_what, stored, wanted, change) => {
    expect(decideUpsert(stored, wanted)).toMatchObject({ kind: 'apply', change });
  });
});

test.each([
  [' a \n b ', 'a b'],
  ['𝒳'.repeat(120), '𝒳'.repeat(120)],
  ['𝒳'.repeat(121), undefined],
  [' \t\n', undefined],
])('a rename to %j makes the title %j', (text, title) => {
  expect(titleFrom(text)).toBe(title);
});

describe('a report that storage is gone', () => {
  const report = { name: 'f', storageVersion: 3 };
  test.each([
    ['of what is attached', session(), 'apply'],
    ['of what was attached under another name', session({ storageName: 'g' }), 'refuse'],
    ['of an older version of the same name', session({ storageVersion: 4 }), 'refuse'],
    ['that was told before', session({ storageKind: 'evicted', storageVersion: 4 }), 'keep'],
    ['of something older than what was evicted since', session({ storageKind: 'evicted', storageVersion: 6 }), 'refuse'],
    ['of a session without any', session({ storageKind: 'none' }), 'refuse'],
  ] as const)('%s: %3$s', (_what, stored, decision) => {
    expect(decideEvicted(stored, report)).toBe(decision);
  });
});

test('a deletion is held by owner and epoch, and keeps others away while its lease lives', () => {
  const held = session({ storageLeaseOwner: 'me', storageLeaseInMs: -1 });
  expect(holdsStorage(held, { owner: 'me', epoch: 4 })).toBe(true);
  expect(holdsStorage(held, { owner: 'me', epoch: 3 })).toBe(false);
  expect(holdsStorage(held, { owner: 'other', epoch: 4 })).toBe(false);
  expect([null, -1, 0, 5].map((storageLeaseInMs) => storageHeldMs(session({ storageLeaseInMs })))).toEqual([
    undefined,
    undefined,
    undefined,
    5,
  ]);
});

test('a list of each state shows what it says', () => {
  const seen = {
    executionState: 'terminal',
    lastRunId: 'r',
    storageKind: 'none',
    deletedAt: null,
    reader: { readerId: 'x', unread: true, readVersion: 1 },
  } as const;
  const statesOf = (over: object) => SESSION_LIST_STATES.filter((state) => matchesListState({ ...seen, ...over }, state));
  expect(statesOf({})).toEqual(['default', 'unread', 'terminal', 'all']);
  expect(statesOf({ storageKind: 'evicted', reader: null })).toEqual(['terminal', 'all']);
  expect(statesOf({ executionState: 'idle', lastRunId: null, reader: { ...seen.reader, unread: false } })).toEqual(['idle', 'all']);
  expect(statesOf({ executionState: 'running', reader: null })).toEqual(['default', 'running', 'all']);
});
