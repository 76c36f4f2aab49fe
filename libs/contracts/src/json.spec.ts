import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { InvalidJson, PayloadTooLarge } from './errors';
import { normalizeJson, setOwn, type JsonValue } from './json';
import { EVENT_BYTES_MAX, JSON_DEPTH_MAX } from './limits';

/** What an injected value would show on every object. */
const polluted = () => ({}) as { role?: unknown; polluted?: unknown };

function refusal(value: unknown, options?: Parameters<typeof normalizeJson>[1]): InvalidJson {
  try {
    normalizeJson(value, options);
  } catch (error) {
    if (error instanceof InvalidJson) return error;
    throw error;
  }
  throw new Error('the value was accepted');
}

function nested(depth: number): JsonValue {
  return JSON.parse('['.repeat(depth) + ']'.repeat(depth)) as JsonValue;
}

describe('a NUL in tool output does not make the report fail for ever', () => {
  it('repairs NUL and lone surrogates in strings at any place', () => {
    const { value, text } = normalizeJson({ output: 'a\0b', list: ['\uD800', { deep: 'x\uDFFFy' }] });

    expect(value).toEqual({ output: 'a\uFFFDb', list: ['\uFFFD', { deep: 'x\uFFFDy' }] });
    expect(JSON.parse(text)).toEqual(value);
  });

  it.each(['a\0b', '\uD83D', 'x\uDE00'])('refuses the key %j and says where it stands', (key) => {
    expect(refusal({ list: [{ [key]: 1 }] }).data).toEqual({
      path: `/list/0/${key.replace(/[\0\uD83D\uDE00]/, '\uFFFD')}`,
      reason: 'the key has a NUL character or a lone surrogate',
    });
  });

  it('refuses in strict mode what it would have to repair: an approval is for what was shown', () => {
    expect(refusal({ command: 'rm \0' }, { strict: true }).data.path).toBe('/command');
    expect(normalizeJson({ command: 'rm 😀' }, { strict: true }).value).toEqual({ command: 'rm 😀' });
  });
});

describe('an over-eager repair does not delete emoji', () => {
  it.each(['😀 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪', '𠀀𠮷 会话', 'e\u0301 é', '\u200B\u202E\uFEFF', '\u0001\u007F\u2028'])('keeps %j byte for byte', (text) => {
    const given = { [text]: text };

    expect(normalizeJson(given, { strict: true })).toEqual({ value: given, text: JSON.stringify(given) });
  });
});

describe('every kind of JSON value comes back as what it was', () => {
  it.each<[JsonValue, string]>([
    [[], '[]'],
    [[1, 2], '[1,2]'],
    [['a'], '["a"]'],
    [{}, '{}'],
    ['hello', '"hello"'],
    ['', '""'],
    ['{"a":1}', '"{\\"a\\":1}"'],
    ['null', '"null"'],
    [5, '5'],
    [1.5e-7, '1.5e-7'],
    [-0, '0'],
    [Number.MAX_SAFE_INTEGER, '9007199254740991'],
    [Number.MIN_SAFE_INTEGER, '-9007199254740991'],
    [true, 'true'],
    [null, 'null'],
    [{ b: 1, a: 2, '10': 3 }, '{"10":3,"b":1,"a":2}'],
  ])('%j is written as %s', (given, text) => {
    const normalized = normalizeJson(given);

    expect(normalized.text).toBe(text);
    expect(normalized.value).toEqual(JSON.parse(text));
  });

  it('writes what JSON.stringify writes, for any JSON value, and changes nothing the second time', () => {
    fc.assert(
      fc.property(fc.jsonValue({ stringUnit: 'grapheme' }), (given) => {
        fc.pre(!/\\u0000|\d{16}|e\+/.test(JSON.stringify(given)));
        const once = normalizeJson(given);
        expect(once.text).toBe(JSON.stringify(given));
        expect(normalizeJson(once.value)).toEqual(once);
      }),
    );
  });

  it('returns a copy and leaves the input alone', () => {
    const given = Object.freeze({ list: Object.freeze(['a\0']) });

    expect(normalizeJson(given as unknown).value).not.toBe(given);
    expect(given.list[0]).toBe('a\0');
  });
});

describe('a value that is not JSON is refused and does not collapse to {}', () => {
  class Custom {
    field = 1;
  }
  it.each<[string, unknown]>([
    ['undefined', undefined],
    ['a function', () => 1],
    ['a symbol', Symbol('s')],
    ['a bigint', 9007199254740993n],
    ['NaN', NaN],
    ['1e400', Infinity],
    ['a big integer that JSON.parse has rounded', JSON.parse('9007199254740993')],
    ['1e300', 1e300],
    ['a Date', new Date(0)],
    ['a Map', new Map([['a', 1]])],
    ['a Set', new Set([1])],
    ['a Buffer', Buffer.from('a')],
    ['a RegExp', /a/],
    ['an Error', new Error('e')],
    ['a boxed string', Object('a')],
    ['a class instance', new Custom()],
    ['an object with a toJSON function', { toJSON: () => 1 }],
    ['an object with a symbol key', { [Symbol('s')]: 1 }],
  ])('%s, alone, in an object and in an array', (_name, value) => {
    expect(refusal(value).data.path).toMatch(/^(\/toJSON)?$/);
    expect(refusal({ a: value }).data.path).toMatch(/^\/a/);
    expect(refusal([0, value]).data.path).toMatch(/^\/1/);
  });

  it('refuses holes in arrays', () => {
    expect(refusal(new Array(3)).data).toEqual({ path: '/0', reason: 'undefined is not a JSON value' });
  });

  it('takes plain objects of another realm', () => {
    expect(normalizeJson(runInNewContext('({ a: [1, { b: null }] })')).text).toBe('{"a":[1,{"b":null}]}');
  });

  it('says what is wrong and where, in a message of bounded length', () => {
    expect(refusal({ 'a/b': { '~': [NaN] } }).message).toBe('Invalid JSON at /a~1b/~0/0: the number is not finite.');
    expect(refusal({ ['k'.repeat(3000)]: NaN }).message.length).toBeLessThan(300);
  });
});

describe('deep or huge input ends in a typed error, not in a stack overflow', () => {
  it(`takes ${JSON_DEPTH_MAX} levels and refuses one more`, () => {
    expect(normalizeJson(nested(JSON_DEPTH_MAX)).text).toHaveLength(2 * JSON_DEPTH_MAX);
    expect(refusal(nested(JSON_DEPTH_MAX + 1)).data.reason).toBe(`the value is nested deeper than ${JSON_DEPTH_MAX} levels`);
  });

  it('refuses depth 5000 and a cycle in the same way', () => {
    const cycle: Record<string, unknown> = {};
    cycle['self'] = cycle;

    expect(refusal(nested(5000)).code).toBe('invalid_json');
    expect(refusal(cycle).code).toBe('invalid_json');
  });

  it.each([
    ['ASCII', 'a', EVENT_BYTES_MAX - 2],
    ['three-byte characters', '€', Math.floor((EVENT_BYTES_MAX - 2) / 3)],
    ['characters that JSON escapes', '"', EVENT_BYTES_MAX / 2 - 1],
  ])('counts bytes of UTF-8 after the repair: %s', (_name, character, fitting) => {
    expect(() => normalizeJson(character.repeat(fitting))).not.toThrow();
    expect(() => normalizeJson(character.repeat(fitting + 1))).toThrow(PayloadTooLarge);
  });

  it('counts a repaired NUL as the three bytes of U+FFFD', () => {
    expect(() => normalizeJson('\0', { bytesMax: 5 })).not.toThrow();
    expect(() => normalizeJson('\0', { bytesMax: 4 })).toThrow(PayloadTooLarge);
  });

  it('takes the limit of the call', () => {
    expect(() => normalizeJson('abc', { bytesMax: 5 })).not.toThrow();
    expect(() => normalizeJson('abcd', { bytesMax: 5 })).toThrow('larger than 5 bytes');
  });

  it('stops early when few objects are reachable along exponentially many paths', () => {
    let value: JsonValue = 'x';
    for (let level = 0; level < JSON_DEPTH_MAX - 1; level += 1) value = [value, value];

    expect(() => normalizeJson(value)).toThrow(PayloadTooLarge);
  });
});

describe('a key named __proto__ is data: neither lost nor a prototype', () => {
  const body =
    '{"__proto__":{"role":"admin"},"constructor":{"prototype":{"polluted":1}},"toString":1,"hasOwnProperty":2,"list":[{"__proto__":null}]}';

  it('keeps it with its place in the order', () => {
    expect(normalizeJson(JSON.parse(body) as unknown).text).toBe(body);
  });

  it('shows no injected property', () => {
    const { value } = normalizeJson(JSON.parse(body) as unknown);

    expect((value as { role?: unknown }).role).toBeUndefined();
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    expect(polluted().role).toBeUndefined();
    expect(polluted().polluted).toBeUndefined();
  });

  it('setOwn writes it as an own property', () => {
    const object: Record<string, unknown> = {};
    setOwn(object, '__proto__', { role: 'admin' });

    expect(Object.keys(object)).toEqual(['__proto__']);
    expect(object['role']).toBeUndefined();
  });
});
