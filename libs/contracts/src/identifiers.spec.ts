import fc from 'fast-check';
import { InvalidIdentifier } from './errors';
import { identifier, isIdentifier, newId, requireIdentifier } from './identifiers';

describe('isIdentifier', () => {
  it.each(['a', '会话', 'session 1', 'a  b', 'tenant/run:1@host', 'é', 'e\u0301', '😀', '\uE000', 'x'.repeat(200), '会'.repeat(66)])(
    'takes %j',
    (text) => {
      expect(isIdentifier(text)).toBe(true);
      expect(identifier.safeParse(text).success).toBe(true);
      expect(requireIdentifier(text, 'sessionId')).toBe(text);
    },
  );

  it.each([
    ['nothing', ''],
    ['201 bytes', 'x'.repeat(201)],
    ['201 bytes in 67 characters', '会'.repeat(67)],
    ['NUL', 'a\0b'],
    ['a line break', 'a\nb'],
    ['a tab', 'a\tb'],
    ['DEL', 'a\u007F'],
    ['a C1 control', 'a\u0085b'],
    ['a zero-width space', 'a\u200Bb'],
    ['a zero-width joiner', 'a\u200Db'],
    ['a byte order mark', '\uFEFFa'],
    ['a direction override', 'a\u202Eb'],
    ['a soft hyphen', 'a\u00ADb'],
    ['a tag character', 'a\u{E0041}'],
    ['a no-break space', 'a\u00A0b'],
    ['an ideographic space', 'a\u3000b'],
    ['a line separator', 'a\u2028b'],
    ['a paragraph separator', 'a\u2029b'],
    ['a high surrogate', 'a\uD83D'],
    ['a low surrogate', '\uDE00a'],
    ['a leading space', ' a'],
    ['a trailing space', 'a '],
    ['only a space', ' '],
  ])('refuses %s, and repairs nothing', (_name, text) => {
    expect(isIdentifier(text)).toBe(false);
    expect(identifier.safeParse(text).success).toBe(false);
    expect(() => requireIdentifier(text, 'sessionId')).toThrow(InvalidIdentifier);
  });

  it('says in the refusal which one is meant and what it must be', () => {
    expect(() => requireIdentifier('', 'idempotencyKey')).toThrow(/^idempotencyKey must be 1 to 200 bytes of UTF-8/);
  });

  it('takes any text of letters and digits that fits', () => {
    fc.assert(fc.property(fc.stringMatching(/^[\p{L}\p{N}]{1,50}$/u), (text) => isIdentifier(text)));
  });
});

describe('newId', () => {
  it('is the prefix and a version 7 UUID, and itself an identifier', () => {
    const id = newId('run');

    expect(id).toMatch(/^run_[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(isIdentifier(id)).toBe(true);
  });

  it('is new each time', () => {
    expect(new Set(Array.from({ length: 10_000 }, () => newId('evt'))).size).toBe(10_000);
  });
});
