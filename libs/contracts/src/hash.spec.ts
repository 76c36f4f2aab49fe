import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import canonicalize from 'canonicalize';
import fc from 'fast-check';
import golden from './__fixtures__/golden-hashes.json';
import { canonicalJson, contentHash, HASH_VERSION, sha256Hex } from './hash';
import { normalizeJson, setOwn, type JsonObject, type JsonValue } from './json';

const parse = (text: string) => normalizeJson(JSON.parse(text) as unknown).value;
const hashOf = (text: string) => contentHash(parse(text)).hash;

describe('canonicalJson', () => {
  it('writes the example of RFC 8785', () => {
    const given = parse(
      String.raw`{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }`.replace('1E30, ', ''),
    );

    expect(canonicalJson(given)).toBe(
      String.raw`{"literals":[null,true,false],"numbers":[333333333.3333333,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
    );
  });

  it('sorts the keys of RFC 8785 section 3.2.3 by UTF-16 code unit', () => {
    const keys = ['\u20ac', '\r', '\ufb33', '1', '\u{1f600}', '\u0080', '\u00f6'];

    const written = Object.keys(JSON.parse(canonicalJson(Object.fromEntries(keys.map((key) => [key, 0])))) as object);

    expect(written).toEqual(['1', '\r', '\u0080', '\u00f6', '\u20ac', '\u{1f600}', '\ufb33']);
  });

  it('agrees with the package canonicalize on any JSON', () => {
    fc.assert(fc.property(fc.jsonValue({ stringUnit: 'binary' }), (value) => canonicalJson(value as JsonValue) === canonicalize(value)));
  });

  it.each<[string, unknown]>([
    ['undefined', undefined],
    ['a hole', new Array(1)],
    ['a field that is undefined', { a: undefined }],
    ['a Date', new Date(0)],
    ['a Map', new Map()],
    ['a Buffer', Buffer.from('a')],
    ['a bigint', 1n],
    ['a symbol', Symbol('s')],
    ['NaN', NaN],
    ['Infinity', Infinity],
    ['too deep a value', JSON.parse('['.repeat(5000) + ']'.repeat(5000))],
  ])('refuses %s: dropped, it would make different values equal', (_name, value) => {
    expect(() => canonicalJson(value as JsonValue)).toThrow('canonicalJson');
    expect(() => canonicalJson([value] as JsonValue)).toThrow('canonicalJson');
  });
});

describe('equal payloads hash the same on every host and in every order of keys', () => {
  it('has the stored hashes of version 1', () => {
    expect(HASH_VERSION).toBe(1);
    for (const { json, hash } of golden) expect({ json, ...contentHash(parse(json)) }).toEqual({ json, hash, version: 1 });
  });

  it('hashes the same when keys are shuffled', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'binary' }), fc.integer(), (value, seed) => {
        expect(contentHash(shuffled(value as JsonValue, seed)).hash).toBe(contentHash(value as JsonValue).hash);
      }),
    );
  });

  // The child loads the source through swc, because Node 20 runs no TypeScript; Intl shows that the locale did change.
  const child = `
    const swc = require('@swc/core');
    require.extensions['.ts'] = (module, file) =>
      module._compile(swc.transformFileSync(file, { swcrc: false, module: { type: 'commonjs' }, jsc: { target: 'es2022', parser: { syntax: 'typescript' } } }).code, file);
    const { contentHash } = require('./hash.ts');
    const hashes = require('./__fixtures__/golden-hashes.json').map(({ json }) => contentHash(JSON.parse(json)).hash);
    console.log(JSON.stringify({ locale: new Intl.Collator().resolvedOptions().locale, hashes }));
  `;
  it.each([
    ['C', /^en/],
    ['sv_SE.UTF-8', /^sv/],
    ['cs_CZ.UTF-8', /^cs/],
    ['tr_TR.UTF-8', /^tr/],
  ])('hashes the same under LC_ALL=%s', (locale, collation) => {
    const env = { ...process.env, LC_ALL: locale, LANG: locale };
    const { stdout, stderr } = spawnSync(process.execPath, ['-e', child], { cwd: join(__dirname), env, encoding: 'utf8' });

    const answer = JSON.parse(stdout || JSON.stringify({ stderr })) as { locale: string; hashes: string[] };

    expect(answer.locale).toMatch(collation);
    expect(answer.hashes).toEqual(golden.map(({ hash }) => hash));
  });
});

describe('canonicaliser and JSON agree on what is the same', () => {
  it.each([
    ['the order of keys', '{"a":1,"b":2}', '{"b":2,"a":1}'],
    ['integer-like keys', '{"10":1,"9":2}', '{"9":2,"10":1}'],
    ['1.0 and 1', '[1.0]', '[1]'],
    ['1e2 and 100', '[1e2]', '[100]'],
    ['-0 and 0', '[-0]', '[0]'],
    ['white space', '{ "a" : [ ] }', '{"a":[]}'],
    ['escapes', '"\\u0041"', '"A"'],
  ])('same: %s', (_name, left, right) => {
    expect(hashOf(left)).toBe(hashOf(right));
  });

  it.each([
    ['a delimiter in a key', `{"a\\":1,\\"b":2}`, '{"a":1,"b":2}'],
    ['an absent field and null', '{}', '{"a":null}'],
    ['an absent field and its default', '{}', '{"a":false}'],
    ['a number and its text', '[1]', '["1"]'],
    ['the order of elements', '[1,2]', '[2,1]'],
    ['nesting', '[[1],2]', '[[1,2]]'],
    ['an empty object and an empty array', '{}', '[]'],
    ['an invisible character in a key', '{"ab":1}', '{"a\u200Db":1}'],
    ['composed and decomposed letters', '"é"', '"e\u0301"'],
    ['upper and lower case', '{"a":1}', '{"A":1}'],
    ['what stands under __proto__', '{"__proto__":{"role":"admin"}}', '{"__proto__":{"role":"user"}}'],
    ['__proto__ and nothing', '{"__proto__":{"role":"admin"}}', '{}'],
  ])('different: %s', (_name, left, right) => {
    expect(hashOf(left)).not.toBe(hashOf(right));
  });

  it('never sees two big integers that JSON.parse has made equal: they are refused before', () => {
    expect(() => parse('9007199254740993')).toThrow('would lose digits');
    expect(() => parse('9007199254740992')).toThrow('would lose digits');
  });
});

it('sha256Hex hashes the UTF-8 of a text', () => {
  expect(sha256Hex('')).toBe('e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855');
  expect(sha256Hex('é')).toBe(sha256Hex(Buffer.from([0xc3, 0xa9]).toString('utf8')));
});

/** The same value with the keys of its objects inserted in an order that depends on the seed. */
function shuffled(value: JsonValue, seed: number): JsonValue {
  if (Array.isArray(value)) return value.map((element) => shuffled(element, seed));
  if (typeof value !== 'object' || value === null) return value;
  const result: JsonObject = {};
  const keys = Object.keys(value).sort((left, right) => sha256Hex(`${seed}${left}`).localeCompare(sha256Hex(`${seed}${right}`)));
  for (const key of keys) setOwn(result, key, shuffled(value[key] as JsonValue, seed));
  return result;
}
