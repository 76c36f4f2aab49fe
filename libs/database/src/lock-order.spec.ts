import { compareC, inLockOrder, LOCK_RANK, LockLedger, LockOrderError, type LockRankName } from './lock-order';

type Step = ['takes' | 'inserted', LockRankName, ...string[]];

function walk(steps: readonly Step[]): void {
  const ledger = new LockLedger();
  for (const [what, rank, ...ids] of steps) {
    if (what === 'takes') ledger.taking(rank, ids);
    else for (const id of ids) ledger.inserted(rank, id);
  }
}

const takes = (rank: LockRankName, ...ids: string[]): Step => ['takes', rank, ...ids];
const inserted = (rank: LockRankName, id: string): Step => ['inserted', rank, id];

const allowed: [string, Step[]][] = [
  ['ranks may be taken upwards', [takes('newKey', 'k'), takes('run', 'r'), takes('command', 'c'), takes('session', 's')]],
  ['ids of a rank may be taken upwards, in one call', [takes('run', 'r1', 'r2', 'r3')]],
  ['ids of a rank may be taken upwards, in several calls', [takes('run', 'r1'), takes('run', 'r2')]],
  ['a lower rank after a higher one is free when it is held already', [takes('run', 'r1'), takes('session', 's1'), takes('run', 'r1')]],
  ['the same id twice in a call is one lock', [takes('run', 'r1', 'r1')]],
  ['an own insert is free below the highest rank', [takes('session', 's1'), inserted('run', 'r1'), takes('run', 'r1')]],
  ['an own insert does not raise the rank', [inserted('outboxShard', 'o1'), takes('outboxShard', 'o1'), takes('newKey', 'k')]],
  ['a call that needs no lock says nothing', [takes('session', 's1'), takes('run')]],
  ['ids beyond the basic plane come after all others, as bytes do', [takes('session', '\u{ffff}', '\u{10000}')]],
];

const refused: [string, Step[]][] = [
  ['a lower rank after a higher one', [takes('session', 's1'), takes('run', 'r1')]],
  ['a lower id of the same rank', [takes('run', 'r2'), takes('run', 'r1')]],
  ['ids of one call out of order', [takes('run', 'r2', 'r1')]],
  ['one unknown id among held ones', [takes('run', 'r1'), takes('session', 's1'), takes('run', 'r1', 'r2')]],
  ['another row of a rank in which a row was inserted', [takes('session', 's1'), inserted('run', 'r1'), takes('run', 'r2')]],
  ['ids in the order of UTF-16 units, which is not that of bytes', [takes('session', '\u{10000}', '\u{ffff}')]],
  ['capitals after small letters', [takes('run', 'a', 'B')]],
];

describe('the lock ledger', () => {
  it.each(allowed)('%s', (_, steps) => {
    expect(() => {
      walk(steps);
    }).not.toThrow();
  });

  it.each(refused)('refuses %s', (_, steps) => {
    expect(() => {
      walk(steps);
    }).toThrow(LockOrderError);
  });

  it('names both locks, so that the reader finds the place', () => {
    const wrong = (): void => {
      walk([takes('session', 's1'), takes('run', 'r1')]);
    };
    expect(wrong).toThrow('run r1 is locked after session s1');
    expect(wrong).toThrow(expect.objectContaining({ code: 'lock_order' }));
  });

  it.each(Object.keys(LOCK_RANK) as LockRankName[])('compares %s with every other rank by its number', (rank) => {
    for (const other of Object.keys(LOCK_RANK) as LockRankName[]) {
      const both = (): void => {
        walk([takes(rank, 'a'), takes(other, 'b')]);
      };
      if (LOCK_RANK[other] >= LOCK_RANK[rank]) expect(both).not.toThrow();
      else expect(both).toThrow(LockOrderError);
    }
  });
});

it('ids are put in lock order once each, by their bytes', () => {
  expect(inLockOrder(['b', '\u{10000}', 'a', '\u{ffff}', 'B', 'a'])).toEqual(['B', 'a', 'b', '\u{ffff}', '\u{10000}']);
  expect(compareC('', 'a')).toBeLessThan(0);
});
