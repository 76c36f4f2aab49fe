import fc from 'fast-check';
import { cutText, isStorableText, repairText, utf8Bytes } from './text';

/** Text that is well-formed and looks strange: nothing in it may change on the way through the store. */
const WELL_FORMED = [
  'plain',
  'emoji 😀 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 👍🏽',
  'CJK extension B 𠀀𠮷, 会话',
  'combining e\u0301 and é stay different',
  'right to left \u202E and zero width \u200B\u200D\uFEFF',
  'noncharacters \uFFFE\uFFFF and \u{10FFFF}',
  'controls \u0001\u001F\u007F\u0085 \t\r\n\u2028\u2029',
  'already repaired \uFFFD',
  '',
];

describe('repairText', () => {
  it.each([
    ['a\0b', 'a\uFFFDb'],
    ['\0\0', '\uFFFD\uFFFD'],
    ['high \uD83D alone', 'high \uFFFD alone'],
    ['low \uDE00 alone', 'low \uFFFD alone'],
    ['swapped \uDE00\uD83D', 'swapped \uFFFD\uFFFD'],
    ['at the end \uD83D', 'at the end \uFFFD'],
    ['😀\uD83D😀', '😀\uFFFD😀'],
  ])('replaces NUL and lone surrogates in %j', (text, repaired) => {
    expect(repairText(text)).toBe(repaired);
    expect(isStorableText(text)).toBe(false);
    expect(isStorableText(repaired)).toBe(true);
  });

  it.each(WELL_FORMED)('does not eat valid emoji or normalise text: %j', (text) => {
    expect(repairText(text)).toBe(text);
    expect(isStorableText(text)).toBe(true);
  });

  it('makes any text storable, once and for all', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.integer({ min: 0, max: 0xffff }), (text, unit) => {
        const repaired = repairText(text + String.fromCharCode(unit) + text);
        expect(repaired).not.toContain('\0');
        expect(Buffer.from(repaired, 'utf8').toString('utf8')).toBe(repaired);
        expect(repairText(repaired)).toBe(repaired);
      }),
    );
  });
});

describe('cutText', () => {
  it.each([
    ['short', 5, 'short'],
    ['longer', 5, 'long…'],
    ['😀😀😀', 3, '😀😀😀'],
    ['😀😀😀😀', 3, '😀😀…'],
    ['a😀', 1, '…'],
    ['ab', 0, ''],
    ['', 0, ''],
  ])('cuts %j to %i code points: %j', (text, max, cut) => {
    expect(cutText(text, max)).toBe(cut);
  });

  it('never splits a pair, never exceeds the length and keeps what fits', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.nat(20), (text, max) => {
        const cut = cutText(text, max);
        expect(Array.from(cut).length).toBeLessThanOrEqual(max);
        expect(isStorableText(cut) || text.includes('\0')).toBe(true);
        if (Array.from(text).length <= max) expect(cut).toBe(text);
        else expect(text.startsWith(cut.slice(0, -1))).toBe(true);
      }),
    );
  });
});

it('utf8Bytes counts bytes, not units', () => {
  expect(utf8Bytes('aé€😀')).toBe(1 + 2 + 3 + 4);
});
