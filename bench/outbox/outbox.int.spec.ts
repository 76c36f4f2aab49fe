import { sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { assertWritten } from '../support/append-case';
import { cutOutbox } from './cut-outbox';
import { OUTBOX_PAIRS, prepareWith, prepareWithout } from './run';

// What is without the outbox breaks what holds with it.
const t = useDatabase({ checkInvariants: false });

test('the part of the outbox is cut out of a statement with its parameters, and nothing else', () => {
  const cut = cutOutbox(sql`WITH a AS (SELECT ${1}), out AS (INSERT ((${2}) ${3})), b AS (SELECT ${4}) SELECT ${5}`);
  expect([cut?.text, cut?.values]).toEqual(['WITH a AS (SELECT $1), b AS (SELECT $2) SELECT $3', [1, 4, 5]]);
  expect(cutOutbox(sql`SELECT ${1}`)).toBeUndefined();
});

test.each(OUTBOX_PAIRS.map((pair) => [pair.name, Math.min(pair.callers, 3), pair.perCall, pair] as const))(
  'append to a %s, %i callers, %i a call: the same is written with and without, but for the outbox',
  async (name, callers, perCall, pair) => {
    for (const prepare of [prepareWith(pair), prepareWithout(pair)]) {
      const made = await prepare({ url: t.url, admin: t.db.pool, callers }, perCall);
      try {
        await Promise.all(made.callers.map((call) => call()));
        assertWritten({ name, perCall, callers: made.callers, calls: callers }, await made.rowsWritten());
      } finally {
        await made.close();
      }
    }
  },
);
