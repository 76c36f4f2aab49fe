import fc from 'fast-check';
import { z } from 'zod';
import { CURSOR_CHARS_MAX, decodeCursor, defineCursor, encodeCursor } from './cursor';
import { InvalidCursor } from './errors';

const encodeText = (text: string) => Buffer.from(text, 'utf8').toString('base64url');

it('a cursor comes back as what went in, text as text and numbers as numbers', () => {
  fc.assert(
    fc.property(
      fc.dictionary(
        fc.stringMatching(/^[a-z][a-zA-Z]{0,8}$/),
        fc.oneof(fc.string({ maxLength: 50 }), fc.maxSafeInteger(), fc.constant(null)),
        { maxKeys: 8 },
      ),
      fc.option(fc.stringMatching(/^[0-9a-f]{64}$/), { nil: undefined }),
      (parts, filterHash) => {
        const cursor = encodeCursor('runs', parts, filterHash);
        expect(cursor).toMatch(/^[\w-]+$/);
        expect(decodeCursor('runs', cursor, filterHash)).toEqual(parts);
      },
    ),
  );
});

it('positions 9, 10 and 100 stay numbers: nobody compares them as text', () => {
  const positions = [100, 9, 10].map((position) => decodeCursor('runs', encodeCursor('runs', { position }))['position'] as number);

  expect(positions.sort((left, right) => left - right)).toEqual([9, 10, 100]);
});

it('positions beyond 2^53 travel as text and lose no digit', () => {
  expect(decodeCursor('feed', encodeCursor('feed', { tx: '9007199254740993' }))).toEqual({ tx: '9007199254740993' });
});

describe('a cursor that does not fit is refused with what to do', () => {
  it.each([
    ['nothing', ''],
    ['no base64url', 'a+b='],
    ['a NUL', 'a\0b'],
    ['no JSON', encodeText('hello')],
    ['half a cursor', encodeCursor('runs', { id: 'run_1' }).slice(0, -6)],
    ['another version', encodeText('[2,"runs",null,{}]')],
    ['no parts', encodeText('[1,"runs",null]')],
    ['parts that are a list', encodeText('[1,"runs",null,[]]')],
    ['a nested part', encodeText('[1,"runs",null,{"id":{"a":1}}]')],
    ['too many parts', encodeText(`[1,"runs",null,{${Array.from({ length: 9 }, (_, index) => `"p${index}":1`).join()}}]`)],
    ['too deep JSON', encodeText('['.repeat(700) + ']'.repeat(700))],
    ['too long a text', 'A'.repeat(CURSOR_CHARS_MAX + 1)],
    ['a cursor of another list', encodeCursor('sessions', { id: 'ses_1' })],
    ['a cursor of a filter', encodeCursor('runs', { id: 'run_1' }, 'f'.repeat(64))],
  ])('%s', (_name, text) => {
    expect(() => decodeCursor('runs', text)).toThrow(InvalidCursor);
    expect(() => decodeCursor('runs', text)).toThrow('or start again without one');
  });

  it('a cursor under another filter', () => {
    const cursor = encodeCursor('runs', { id: 'run_1' }, 'a'.repeat(64));

    expect(() => decodeCursor('runs', cursor, 'b'.repeat(64))).toThrow('another filter');
    expect(() => decodeCursor('runs', cursor)).toThrow('another filter');
  });

  it('any text at all ends in parts or in InvalidCursor', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.base64String(), fc.json().map(encodeText)), (text) => {
        try {
          decodeCursor('runs', text);
        } catch (error) {
          expect(error).toBeInstanceOf(InvalidCursor);
        }
      }),
    );
  });

  it('a list never hands out a cursor that it would refuse', () => {
    expect(() => encodeCursor('runs', { id: 'x'.repeat(CURSOR_CHARS_MAX) })).toThrow('encodeCursor');
  });
});

describe('defineCursor', () => {
  const runs = defineCursor('runs', z.object({ createdAt: z.string(), id: z.string() }));

  it('gives the parts their types', () => {
    expect(runs.decode(runs.encode({ createdAt: '2026-01-01T00:00:00.000Z', id: 'run_1' }, 'f'), 'f').id).toBe('run_1');
  });

  it.each([{ createdAt: 1, id: 'run_1' }, { id: 'run_1' }, {}])('a forged cursor with the parts %j never reaches SQL', (parts) => {
    expect(() => runs.decode(encodeCursor('runs', parts as Record<string, string>))).toThrow(InvalidCursor);
  });
});
