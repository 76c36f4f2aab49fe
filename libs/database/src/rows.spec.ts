import { z } from 'zod';
import { column, maybeRow, oneRow, rows } from './rows';
import { joinSql, parametersOf, rawSql, sql, statementName, textLines, type SqlExecutor, type SqlRow, type SqlValue } from './sql';

const returning = (...found: SqlRow[]): SqlExecutor => ({ query: () => Promise.resolve(found) });
const any = sql`SELECT 1`;

const decoded: [string, z.ZodType, SqlValue, unknown][] = [
  ['text', column.text, 'x', 'x'],
  ['int', column.int, 7, 7],
  ['bool', column.bool, false, false],
  ['the greatest exact integer', column.int8, '9007199254740991', 9007199254740991],
  ['a bigint beyond it', column.bigint, '9007199254740993', 9007199254740993n],
  ['a negative bigint', column.bigint, '-1', -1n],
  ['a JSON scalar', column.json, '"x"', 'x'],
  ['JSON null, which is not SQL null', column.json, 'null', null],
  ['a JSON object', column.jsonObject, '{"a":[1]}', { a: [1] }],
  ['a time', column.time, '2026-01-02T03:04:05.006Z', '2026-01-02T03:04:05.006Z'],
  ['a state', column.state(['open', 'closed']), 'open', 'open'],
  ['no value in a nullable column', column.json.nullable(), null, null],
];

it.each(decoded)('the codec reads %s', async (_, type, value, expected) => {
  expect(await oneRow(returning({ value }), z.object({ value: type }), any)).toEqual({ value: expected });
});

const wrong: [string, z.ZodType, SqlValue][] = [
  ['a number for text', column.text, 1],
  ['an integer that a double would round', column.int8, '9007199254740992'],
  ['a fraction', column.int8, '1.5'],
  ['an empty text for a number', column.bigint, ''],
  ['broken JSON', column.json, '{'],
  ['an array for an object', column.jsonObject, '[]'],
  ['a time with an offset', column.time, '2026-01-02T03:04:05.006+00:00'],
  ['a time in microseconds', column.time, '2026-01-02T03:04:05.000006Z'],
  ['a word that is no state', column.state(['open']), 'opened'],
  ['no value in a column that always has one', column.text, null],
];

it.each(wrong)('the codec refuses %s, naming the column', async (_, type, value) => {
  await expect(rows(returning({ value }), z.object({ value: type }), any)).rejects.toThrow(/at value/);
});

it('a statement for one row that finds none or two is a bug', async () => {
  const shape = z.object({ value: column.int });
  expect(await maybeRow(returning(), shape, any)).toBeUndefined();
  await expect(oneRow(returning(), shape, any)).rejects.toThrow('returned none');
  await expect(maybeRow(returning({ value: 1 }, { value: 2 }), shape, any)).rejects.toThrow('returned 2');
});

it('statements compose, and their parameters stay apart from the text', () => {
  const inner = sql`b = ANY(${['x']}::text[])`;
  const whole = sql`SELECT ${rawSql('a')} FROM t WHERE ${joinSql([sql`a = ${1}::int`, inner], ' AND ')}`;
  expect(whole.text).toBe('SELECT a FROM t WHERE a = $1::int AND b = ANY($2::text[])');
  expect(parametersOf(whole)).toEqual([1, ['x']]);
});

it('a list of lines is one text, with nulls as empty lines; what would not come back is refused', () => {
  const list = textLines(['a', null, '{"b": "c"}']);
  expect(list.text).toBe("string_to_array($1::text, chr(10), '')");
  expect(parametersOf(list)).toEqual(['a\n\n{"b": "c"}']);
  expect(() => textLines(['a', ''])).toThrow(TypeError);
  expect(() => textLines(['a\nb'])).toThrow(TypeError);
});

it.each([undefined, 1.5, NaN, 2 ** 31, 1n, new Date(), {}, [['a']], [undefined]])(
  'a parameter that drivers would guess about (%p) is refused',
  (value) => {
    expect(() => parametersOf(sql`SELECT ${value}::text`)).toThrow(TypeError);
  },
);

it('a text has one short name, and texts without end have none', () => {
  expect(statementName('SELECT 1')).toBe(statementName('SELECT 1'));
  expect(statementName('SELECT 1')).toMatch(/^rp_[0-9a-f]{24}$/);
  for (let number = 0; number < 1_100; number += 1) statementName(`SELECT ${number}, 2`);
  expect(statementName('SELECT 1')).toBeDefined();
  expect(statementName('one more')).toBeUndefined();
});
