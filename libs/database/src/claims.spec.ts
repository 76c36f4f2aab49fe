import fc from 'fast-check';
import { backOffMs, decideClaim, isLive, type ClaimDecision, type Hold } from './claims';

const hold = (owner: string | null, epoch: number, expiresInMs: number | null): Hold => ({ owner, epoch, expiresInMs });

const decisions: [string, Hold, ClaimDecision][] = [
  ['what nobody has held is granted under epoch 1', hold(null, 0, null), { kind: 'grant', epoch: 1, from: null }],
  ['what was given back is granted under the next epoch', hold(null, 4, null), { kind: 'grant', epoch: 5, from: null }],
  ['a lease that has ended is taken over under the next epoch', hold('other', 4, -1), { kind: 'grant', epoch: 5, from: 'other' }],
  ['a lease ends at its last millisecond', hold('other', 4, 0), { kind: 'grant', epoch: 5, from: 'other' }],
  ['a live lease of somebody else stands', hold('other', 4, 1), { kind: 'refuse', owner: 'other', remainingMs: 1 }],
  ['a live lease of one’s own is kept, epoch and all', hold('me', 4, 1), { kind: 'keep', epoch: 4 }],
  ['an ended lease of one’s own is not prolonged but granted anew', hold('me', 4, 0), { kind: 'grant', epoch: 5, from: 'me' }],
];

it.each(decisions)('%s', (_, before, decision) => {
  expect(decideClaim(before, { owner: 'me' })).toEqual(decision);
});

it('a hold is live while its end lies ahead', () => {
  expect([null, -1, 0, 1].map(isLive)).toEqual([false, false, false, true]);
});

describe('the back-off', () => {
  const attempt = fc.integer({ min: 0, max: 10_000 });
  const limits = fc
    .tuple(fc.integer({ min: 1, max: 60_000 }), fc.integer({ min: 0, max: 86_400_000 }))
    .map(([baseMs, more]) => ({ baseMs, maxMs: baseMs + more }));
  const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

  it('is a whole number between its limits for every attempt', () => {
    fc.assert(
      fc.property(attempt, limits, random, (number, bounds, point) => {
        const delay = backOffMs(number, bounds, () => point);
        expect(Number.isInteger(delay)).toBe(true);
        expect(delay).toBeGreaterThanOrEqual(bounds.baseMs);
        expect(delay).toBeLessThanOrEqual(bounds.maxMs);
      }),
    );
  });

  it('does not shrink with the attempts', () => {
    fc.assert(
      fc.property(attempt, limits, random, (number, bounds, point) => {
        expect(backOffMs(number + 1, bounds, () => point)).toBeGreaterThanOrEqual(backOffMs(number, bounds, () => point));
      }),
    );
  });
});
