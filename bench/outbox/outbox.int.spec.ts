import { sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { assertWritten } from '../support/append-case';
import { cutOutbox } from './cut-outbox';
import { OUTBOX_PAIRS, prepareWithout } from './run';

// What is without the outbox breaks what holds with it.
const t = useDatabase({ checkInvariants: false });

test('the part of the outbox is cut out of a statement with its parameters, and nothing else', () => {
  const cut = cutOutbox(sql`WITH a AS (SELECT ${1}), out AS (INSERT ((${2}) ${3})), b AS (SELECT ${4}) SELECT ${5}`);
  expect([cut?.text, cut?.values]).toEqual(['WITH a AS (SELECT $1), b AS (SELECT $2) SELECT $3', [1, 4, 5]]);
  expect(cutOutbox(sql`SELECT ${1}`)).toBeUndefined();
});

// The others are asked by the benchmark itself, which fails when rows are missing or too many.
test.each(OUTBOX_PAIRS.filter(({ callers }) => callers > 1).map((pair) => [pair.name, pair] as const))(
  'appends to a %s without the outbox write everything else',
  async (name, pair) => {
    const callers = 2;
    const made = await prepareWithout(pair)({ url: t.url, admin: t.db.pool, callers }, pair.perCall);
    try {
      await Promise.all(made.callers.map((call) => call()));
      assertWritten({ name, perCall: pair.perCall, callers: made.callers, calls: callers }, await made.rowsWritten());
    } finally {
      await made.close();
    }
  },
);
