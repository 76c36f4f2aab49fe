import pg from 'pg';
import { openDb } from './db';
import { joinTransaction } from './join-transaction';
import { sql, type Sql, type SqlExecutor, type SqlRow } from './sql';
import { openClient, useDatabase } from './testing';
import { inTransaction } from './tx';

const database = useDatabase();
let client: pg.Client;
beforeAll(async () => {
  client = await openClient(database.url);
});
afterAll(() => client.end());

/** Every way in which a statement can run. */
const executors: [string, (statement: Sql) => Promise<SqlRow[]>][] = [
  ['the pool', (statement) => database.db.sql.query(statement)],
  ['the lane', (statement) => database.db.lane.query(statement)],
  ['a transaction', (statement) => inTransaction(database.db, (tx) => tx.query(statement))],
  [
    'a joined Prisma transaction',
    (statement) => database.db.prisma.$transaction(async (theirs) => (await joinTransaction(database.db, theirs)).tx.query(statement)),
  ],
  [
    'a joined connection of pg',
    async (statement) => {
      await client.query('BEGIN');
      try {
        return await (await joinTransaction(database.db, client)).tx.query(statement);
      } finally {
        await client.query('ROLLBACK');
      }
    },
  ],
];

const strange = [
  '',
  'NULL',
  'null',
  '"',
  '\\',
  ',',
  '{}',
  ' x ',
  "it's",
  'a\nb',
  '会话 😀',
  '2026-01-02',
  'true',
  '1',
  '{"a":1}',
  '2026-01-02T03:04:05.006Z',
];

const statements: [string, Sql, SqlRow][] = [
  ['text', sql`SELECT ${'x'}::text AS v`, { v: 'x' }],
  ['text that looks like a date', sql`SELECT ${'2026-01-02T03:04:05Z'}::text AS v`, { v: '2026-01-02T03:04:05Z' }],
  ['text that looks like base64', sql`SELECT ${'aGVsbG8='}::text AS v`, { v: 'aGVsbG8=' }],
  ['text in any script', sql`SELECT ${'会话 😀 é'}::text AS v`, { v: '会话 😀 é' }],
  [
    'int4 at its ends',
    sql`SELECT ${2147483647}::int AS a, ${-2147483648}::int AS b, ${0}::int AS c`,
    { a: 2147483647, b: -2147483648, c: 0 },
  ],
  ['an int as text', sql`SELECT ${7}::int::text AS v`, { v: '7' }],
  ['bool', sql`SELECT ${true}::bool AS a, ${false}::bool AS b`, { a: true, b: false }],
  [
    'null of every type',
    sql`SELECT ${null}::text AS a, ${null}::int AS b, ${null}::bool AS c, ${null}::text[] IS NULL AS d`,
    { a: null, b: null, c: null, d: true },
  ],
  ['text[], element by element', sql`SELECT to_json(${strange}::text[])::text AS v`, { v: JSON.stringify(strange) }],
  ['text[] with nulls', sql`SELECT to_json(${['a', null, 'NULL']}::text[])::text AS v`, { v: '["a",null,"NULL"]' }],
  ['int[] with nulls', sql`SELECT to_json(${[1, null, -3]}::int[])::text AS v`, { v: '[1,null,-3]' }],
  ['bool[] with nulls', sql`SELECT to_json(${[true, null, false]}::bool[])::text AS v`, { v: '[true,null,false]' }],
  [
    'empty arrays',
    sql`SELECT cardinality(${[]}::text[]) AS a, cardinality(${[]}::int[]) AS b, cardinality(${[]}::bool[]) AS c`,
    { a: 0, b: 0, c: 0 },
  ],
  [
    'one of an array',
    sql`SELECT ${'b'}::text = ANY(${['a', 'b']}::text[]) AS a, ${'b'}::text = ANY(${[]}::text[]) AS b`,
    { a: true, b: false },
  ],
  ['bigint as text both ways', sql`SELECT (${'9007199254740992'}::bigint + 1)::text AS v`, { v: '9007199254740993' }],
  ['bigint[] as text[]', sql`SELECT to_json(${['9007199254740993']}::text[]::bigint[])::text AS v`, { v: '[9007199254740993]' }],
  ['a JSON object as text', sql`SELECT ${'{"b": 1, "a":[]}'}::json::text AS v`, { v: '{"b": 1, "a":[]}' }],
  ['a JSON string that holds JSON', sql`SELECT ${JSON.stringify('{"a":1}')}::json::text AS v`, { v: '"{\\"a\\":1}"' }],
  ['a JSON array', sql`SELECT ${'[1,"2",null]'}::json::text AS v`, { v: '[1,"2",null]' }],
  [
    'JSON scalars',
    sql`SELECT ${'1'}::json::text AS a, ${'"x"'}::json::text AS b, ${'true'}::json::text AS c, ${'null'}::json::text AS d`,
    { a: '1', b: '"x"', c: 'true', d: 'null' },
  ],
  ['jsonb', sql`SELECT ${'{"b":1,"a":2}'}::jsonb::text AS v`, { v: '{"a": 2, "b": 1}' }],
  ['an enum both ways', sql`SELECT ${'pending'}::runplane.run_state::text AS v`, { v: 'pending' }],
  ['a time', sql`SELECT runplane.wire_time(${'2026-01-02T03:04:05.678+02:00'}::timestamptz) AS v`, { v: '2026-01-02T01:04:05.678Z' }],
  [
    'milliseconds',
    sql`SELECT runplane.wire_time('2026-01-01Z'::timestamptz + ${90_000}::int * interval '1 ms') AS v`,
    { v: '2026-01-01T00:01:30.000Z' },
  ],
  ['a count', sql`SELECT count(*)::int AS v FROM unnest(${['a', 'b']}::text[])`, { v: 2 }],
  ['names in camel case', sql`SELECT 1 AS "leaseRemainingMs"`, { leaseRemainingMs: 1 }],
];

describe.each(executors)('%s', (_, query) => {
  it.each(statements)('passes %s as every other executor does', async (_kind, statement, expected) => {
    const [row] = await query(statement);
    expect(row).toStrictEqual(expected);
    expect(Object.keys(row ?? {})).toEqual(Object.keys(expected));
  });

  it('gives no rows for a statement that returns none', async () => {
    expect(await query(sql`SELECT 1 AS v WHERE false`)).toEqual([]);
    expect(await query(sql`UPDATE runplane.store SET timeline = timeline WHERE false`)).toEqual([]);
  });

  it.each([
    ['bigint', sql`SELECT 1::bigint AS v`],
    ['timestamptz', sql`SELECT now() AS v`],
    ['json', sql`SELECT '{}'::json AS v`],
    ['numeric', sql`SELECT 1.5 AS v`],
    ['text[]', sql`SELECT ARRAY['a'] AS v`],
  ])('refuses a column of type %s, which drivers read differently', async (_type, statement) => {
    await expect(query(statement)).rejects.toThrow(/column "v" is neither text, int4 nor bool/);
  });

  it('refuses a parameter that drivers write differently', async () => {
    await expect(query(sql`SELECT ${1.5}::text AS v`)).rejects.toThrow(TypeError);
  });
});

it('parsers that somebody sets on pg.types change nothing', async () => {
  const { types } = pg;
  const before = types.getTypeParser(types.builtins.INT4);
  types.setTypeParser(types.builtins.INT4, () => 'changed');
  try {
    expect(await database.db.sql.query(sql`SELECT 7 AS v`)).toEqual([{ v: 7 }]);
  } finally {
    types.setTypeParser(types.builtins.INT4, before);
  }
});

it('statements are prepared under a name, unless that is switched off', async () => {
  const prepared = async (on: SqlExecutor): Promise<unknown> =>
    (await on.query(sql`SELECT count(*) FILTER (WHERE name LIKE 'rp\\_%')::int AS named FROM pg_prepared_statements`))[0]?.['named'];
  const plain = await openDb({ url: database.url, preparedStatements: false });
  try {
    await plain.prisma.store.count();
    expect(await prepared(plain.lane)).toBe(0);
    expect(await prepared(plain.sql)).toBe(0);
    await prepared(database.db.lane);
    expect(await prepared(database.db.lane)).toBeGreaterThan(0);
  } finally {
    await plain.close();
  }
});
