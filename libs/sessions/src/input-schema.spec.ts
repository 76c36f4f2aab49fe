import { INPUT_SCHEMA_BYTES_MAX, isDomainError, type JsonObject, type JsonValue } from '@runplane/contracts';
import { Script } from 'node:vm';
import { requireFittingValue, requireInputSchema } from './input-schema';

const refusal = (work: () => void): { code: string; said: string } | undefined => {
  try {
    work();
    return undefined;
  } catch (error) {
    if (!isDomainError(error)) throw error;
    return { code: error.code, said: error.message };
  }
};

/** `{ allOf: [d, d] }` of `{ allOf: [d, d] }` …: a few lines that stand for 2^n checks. */
function doubling(levels: number): JsonObject {
  const $defs: JsonObject = { d0: { type: 'string' } };
  for (let n = 1; n <= levels; n += 1) $defs[`d${n}`] = { allOf: [{ $ref: `#/$defs/d${n - 1}` }, { $ref: `#/$defs/d${n - 1}` }] };
  return { $defs, $ref: `#/$defs/d${levels}` };
}

function nested(levels: number): JsonObject {
  let schema: JsonObject = { type: 'string' };
  for (let n = 0; n < levels; n += 1) schema = { type: 'array', items: schema };
  return schema;
}

test.each<[string, JsonValue, RegExp]>([
  ['is no object', [], /no object/],
  ['is no schema', { type: 'text' }, /schema is invalid/],
  ['has a keyword of the wrong type', { required: 'a' }, /schema is invalid/],
  ['refers to another document', { $ref: 'https://example.com/schema' }, /leads out of it/],
  ['refers to a file', { properties: { a: { $ref: 'other.json#/a' } } }, /leads out of it/],
  ['refers to what is not there', { $ref: '#/$defs/nothing' }, /leads nowhere/],
  ['refers to itself', { properties: { a: { $ref: '#' } } }, /leads to itself/],
  ['refers to itself over another', { $defs: { a: { items: { $ref: '#/$defs/b' } }, b: { not: { $ref: '#/$defs/a' } } }, $ref: '#/$defs/a' }, /leads to itself/], // prettier-ignore
  ['refers to itself from what depends', { $defs: { a: { dependencies: { b: { $ref: '#/$defs/a' } } } }, $ref: '#/$defs/a' }, /leads to itself/], // prettier-ignore
  ['names a part that nothing refers to', { $defs: { default: { $id: 'https://example.com/a' } } }, /\$id is not supported/],
  ['names what no keyword holds', { 'x-form': { fields: { $anchor: 'a' } } }, /\$anchor is not supported/],
  ['names itself', { $id: 'https://example.com/a' }, /\$id is not supported/],
  ['has a name in its middle', { items: { $anchor: 'a' } }, /\$anchor is not supported/],
  ['is asynchronous', { $async: true }, /\$async is not supported/],
  ['has an unknown dialect', { $schema: 'https://example.com/dialect' }, /\$schema is not known/],
  ['is too deep', nested(20), /nested deeper/],
  ['stands for too many checks', doubling(7), /more than 250 parts/],
  ['is too large', { description: 'x'.repeat(INPUT_SCHEMA_BYTES_MAX) }, /more than 16384 bytes/],
  ['has a pattern that is none', { pattern: '(' }, /no regular expression/],
  ['has a pattern of a name that is none', { patternProperties: { '[': true } }, /no regular expression/],
  ['has a pattern that is too long', { pattern: 'a'.repeat(501) }, /more than 500 characters/],
])('a schema that %s is refused', (_, schema, said) => {
  expect(refusal(() => requireInputSchema(schema))).toEqual({ code: 'invalid_input_schema', said: expect.stringMatching(said) });
});

const FORM: JsonObject = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { name: { type: 'string', pattern: '^[a-z]+$', maxLength: 5 } },
  // A property may be called like a keyword.
  properties: { $id: { $ref: '#/$defs/name' }, size: { enum: ['s', 'm'] }, mail: { type: 'string', format: 'email' } },
  required: ['$id'],
  additionalProperties: false,
};

test.each<[JsonValue, string | undefined]>([
  [{ $id: 'abc' }, undefined],
  [{ $id: 'abc', size: 'm', mail: 'not checked' }, undefined],
  [{}, 'it must have required property'],
  [{ $id: 'ABC' }, '/$id must match pattern'],
  [{ $id: 'abc', size: 'secret-1' }, '/size must be equal to one of the allowed values'],
  [{ $id: 'abc', more: 1 }, 'must NOT have additional properties'],
  ['text', 'it must be object'],
  [null, 'it must be object'],
])('an answer %j is judged by its form', (value, said) => {
  const refused = refusal(() => requireFittingValue(FORM, value));

  expect(refused).toEqual(said === undefined ? undefined : { code: 'invalid_input_value', said: expect.stringContaining(said) });
  expect(refused?.said ?? '').not.toContain('secret-1');
});

test.each<[string, JsonObject, JsonValue]>([
  ['a pattern that goes back for ever', { pattern: '^(a+)+$' }, `${'a'.repeat(50)}b`],
  ['a pattern of names that goes back for ever', { patternProperties: { '^(a|a)*$': true } }, { [`${'a'.repeat(50)}b`]: 1 }],
])('%s is stopped', (_, schema, value) => {
  expect(refusal(() => requireFittingValue(schema, value))).toEqual({
    code: 'invalid_input_value',
    said: expect.stringContaining('takes longer than 100 ms'),
  });
  expect(refusal(() => requireFittingValue({ type: 'string' }, 'next'))).toBeUndefined();
});

test('an answer that was stopped once, on a busy machine, is checked again', () => {
  const stopped = Object.assign(new Error('stopped'), { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' });
  const run = jest.spyOn(Script.prototype, 'runInContext').mockImplementationOnce(() => {
    throw stopped;
  });
  expect(refusal(() => requireFittingValue({ type: 'string' }, 'fits'))).toBeUndefined();
  expect(run).toHaveBeenCalledTimes(2);
  run.mockRestore();
});

test('an answer has a size', () => {
  expect(refusal(() => requireFittingValue({}, 'x'.repeat(64 * 1024)))?.code).toBe('payload_too_large');
});

test('a schema that makes the largest number of checks compiles in time', () => {
  const properties = Object.fromEntries(Array.from({ length: 240 }, (_, n) => [`p${n}`, { type: 'string' }]));
  expect(refusal(() => requireFittingValue({ type: 'object', properties }, { p7: 'x' }))).toBeUndefined();
  expect(refusal(() => requireFittingValue(doubling(5), 'x'))).toBeUndefined();
});
