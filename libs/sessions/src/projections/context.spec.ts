import { CARRIED_ITEMS_MAX, InvalidRequest, NOTE_BYTES_MAX, PayloadTooLarge, type JsonObject, type JsonValue } from '@runplane/contracts';
import { emptyContext, told, type Told } from '../testing/told';
import fc from 'fast-check';
import { contextProjection, type ContextState } from './context';
import { carriedItems, textIn } from './context-history';
import { storedWindows, windowOf } from './context-windows';

const start = (loaded?: unknown, windowId: string | null = null): ContextState =>
  contextProjection.initial(loaded, { ...emptyContext, head: { ...emptyContext.head, windowId, firstWindowId: windowId } });
const foldOf = (entries: readonly Told[], from = start()): ContextState =>
  told(...entries).reduce((state, event) => contextProjection.apply(state, event), from);
const said = (content: JsonValue = 'x'): Told => ['user/message', { content }];
const windowStarts = (data: JsonObject = {}): Told => ['context/window-started', data];
const carries = (windowId: string, ...carriedEventSequences: JsonValue[]): Told => [
  'compaction/checkpoint',
  { windowId, carriedEventSequences },
];
const placesOf = (state: ContextState): Record<number, string> =>
  Object.fromEntries(state.history.added.map(({ sequence, windowId }) => [sequence, windowOf(windowId, state)]));

describe('the text in a value', () => {
  it.each<[JsonValue, string]>([
    ['x', 'x'],
    [7, ''],
    [true, ''],
    [null, ''],
    [{}, ''],
    [[], ''],
    [{ content: 'hi' }, 'hi'],
    [{ text: 'b', content: 'a' }, 'b\na'],
    [
      {
        role: 'user',
        content: [
          { type: 'text', text: 'x' },
          { type: 'image', url: 'u' },
          { type: 'text', text: 'y' },
        ],
      },
      'x\n\ny',
    ],
    [{ name: 'n', arguments: { text: 'deep', other: 1 }, id: 3 }, 'n\ndeep'],
    [[['a'], 'b', 1], 'a\nb\n'],
    [JSON.parse('{"__proto__": {"text": "no"}, "text": "yes"}') as JsonValue, 'yes'],
  ])('of %j is %j', (value, text) => {
    expect(textIn(value)).toBe(text);
  });

  it('of something endlessly deep is nothing', () => {
    let deep: JsonValue = 'x';
    for (let i = 0; i < 50_000; i += 1) deep = { text: deep };
    expect(textIn(deep)).toBe('');
  });
});

describe('history', () => {
  it.each<[Told, JsonObject | undefined]>([
    [['user/message', { message: { content: 'a' } }], { role: 'user', toolName: null, content: 'a' }],
    [['assistant/message', { message: [{ text: 'a' }, 'b'], content: 'not this' }], { role: 'assistant', content: 'a\nb' }],
    [['tool/call', { name: 'sh', arguments: '{"a": 1}' }], { role: 'tool', toolName: 'sh', content: '{"a": 1}' }],
    [['tool/call', { arguments: { a: [1, 'é'] } }], { role: 'tool', toolName: null, content: '{"a":[1,"é"]}' }],
    [['tool/call', { name: 7 }], { role: 'tool', toolName: null, content: '' }],
    [['tool/result', { message: { content: 'a\0b\uD800' } }], { role: 'tool', toolName: null, content: 'a\uFFFDb\uFFFD' }],
    ['turn/start', undefined],
  ])('%j adds %j', (event, item) => {
    const state = foldOf([event]);
    expect(state.history.added).toMatchObject(item === undefined ? [] : [{ sequence: 0, ...item }]);
    expect(placesOf(state)).toEqual(item === undefined ? {} : { 0: 'legacy-s' });
  });

  it('moves into the first window, and with a checkpoint into another; new items stand in the latest window', () => {
    const log = [
      said(),
      windowStarts({ windowId: 'w1' }),
      said(),
      carries('w2', 2, true, 'x'),
      said(),
      windowStarts({ windowId: 'w2', previousWindowId: 'w1' }),
      said(),
    ];
    const state = foldOf(log);
    expect(placesOf(state)).toEqual({ 0: 'w1', 2: 'w2', 4: 'w1', 6: 'w2' });
    expect(contextProjection.head?.(state)).toEqual({ windowId: 'w2', firstWindowId: 'w1' });
  });

  it('says of stored items where they go, each once', () => {
    const stored = [
      said(),
      said(),
      said(),
      said(),
      carries('w9', 0, 1),
      carries('w8', 1, 77),
      windowStarts({ windowId: 'w1' }),
      carries('w9', 3, -1, 0.5),
      said(),
    ];
    const { history, firstWindowId } = told(...stored)
      .slice(4)
      .reduce((state, event) => contextProjection.apply(state, event), start());
    expect(firstWindowId).toBe('w1');
    expect(history).toMatchObject({ legacyTo: undefined, added: [{ sequence: 8, windowId: 'w1' }] });
    expect([...carriedItems(history)]).toEqual([
      [0, 'w9'],
      [1, 'w8'],
      [3, 'w9'],
    ]);
  });

  it('that a checkpoint has put back into the legacy window goes with it', () => {
    const { history } = foldOf([windowStarts({ windowId: 'w1' }), said(), carries('legacy-s', 1), windowStarts({ windowId: 'w2' })]);
    expect(history.added).toMatchObject([{ windowId: 'w2' }]);
  });

  it('stands where moving every item would have put it, in whatever batches the events come', () => {
    const window = fc.constantFrom('a', 'b', 'legacy-s');
    const entry = fc.oneof(
      { weight: 3, arbitrary: fc.constant(said()) },
      { weight: 2, arbitrary: fc.record({ windowId: window, startedSequence: fc.nat(12) }, { requiredKeys: [] }).map(windowStarts) },
      fc.tuple(window, fc.array(fc.nat(15), { maxLength: 4 })).map(([into, sequences]) => carries(into, ...sequences)),
    );
    fc.assert(
      fc.property(fc.array(entry, { maxLength: 16 }), fc.integer({ min: 1, max: 16 }), (entries, batch) => {
        const events = told(...entries);
        // The stored rows, as the statement of an append writes them.
        const rows = new Map<number, string>();
        let state = start();
        for (let from = 0; from < events.length; from += batch) {
          const { windowId, firstWindowId } = state;
          const windows = [...state.windows.values()].map((w) => ({
            ...w,
            startedSequence: String(w.startedSequence),
            eventSequence: String(w.eventSequence),
          }));
          state = contextProjection.initial({ windows }, { ...emptyContext, head: { ...emptyContext.head, windowId, firstWindowId } });
          state = events.slice(from, from + batch).reduce((before, event) => contextProjection.apply(before, event), state);
          const { added, legacyTo } = state.history;
          const carried = carriedItems(state.history);
          for (const [sequence, stored] of rows) {
            rows.set(sequence, carried.get(sequence) ?? (stored === 'legacy-s' ? (legacyTo ?? stored) : stored));
          }
          for (const item of added) rows.set(item.sequence, item.windowId);
        }

        // The rule by its letter: each start moves what stands in the legacy window.
        const places = new Map<number, string>();
        const started = new Map<string, readonly [number, number]>();
        const current = (): string => {
          const latest = [...started].sort(([, a], [, b]) => b[0] - a[0] || b[1] - a[1]);
          return latest[0]?.[0] ?? 'legacy-s';
        };
        for (const { sequence, type, data } of events) {
          const named = (data['windowId'] as string | undefined) ?? current();
          if (type === 'user/message') places.set(sequence, current());
          else if (type === 'compaction/checkpoint') {
            for (const carried of data['carriedEventSequences'] as number[]) if (places.has(carried)) places.set(carried, named);
          } else {
            started.set(named, [(data['startedSequence'] as number | undefined) ?? sequence, sequence]);
            for (const [at, place] of places) if (place === 'legacy-s') places.set(at, named);
          }
        }
        expect(new Map([...rows].map(([sequence, stored]) => [sequence, windowOf(stored, state)]))).toEqual(places);
        for (const [sequence, place] of places) expect(storedWindows(place, state)).toContain(rows.get(sequence));
      }),
    );
  });

  it('is carried over by one append up to a bound', () => {
    const guard = (before: number, more: number): void => {
      const state = foldOf([carries('w', ...Array.from({ length: before }, (_, i) => i - before))]);
      for (const event of told(carries('w', ...Array<number>(more).fill(1)))) contextProjection.guard?.(state, event);
    };
    expect(() => { guard(0, CARRIED_ITEMS_MAX); }).not.toThrow(); // prettier-ignore
    expect(() => { guard(0, CARRIED_ITEMS_MAX + 1); }).toThrow(InvalidRequest); // prettier-ignore
    const full = { ...start(), history: { ...start().history, moves: [{ sequences: new Set([1, 2]), windowId: 'w' }] } };
    const [next] = told(carries('w', ...Array<number>(CARRIED_ITEMS_MAX - 1).fill(1)));
    expect(() => next && contextProjection.guard?.(full, next)).toThrow(/no more than 10000/);
  });

  it('of any length is taken over by the first window without a row of it being written', () => {
    const { history } = foldOf([windowStarts({ windowId: 'w1' })]);
    expect(history).toMatchObject({ added: [], moves: [], legacyTo: undefined });
  });
});

describe('windows', () => {
  it.each<[string, Told[], string]>([
    ['the one that started last', [windowStarts({ windowId: 'a' }), windowStarts({ windowId: 'b' })], 'b'],
    [
      'the one with the greatest startedSequence',
      [windowStarts({ windowId: 'a', startedSequence: 9 }), windowStarts({ window_id: 'b' })],
      'a',
    ],
    [
      'of equals the later event',
      [windowStarts({ windowId: 'a', startedSequence: 9 }), windowStarts({ windowId: 'b', startedSequence: 9 })],
      'b',
    ],
    [
      'another, where the current starts again earlier',
      [
        windowStarts({ windowId: 'a' }),
        windowStarts({ windowId: 'b' }),
        windowStarts({ windowId: 'b', startedSequence: 0 }),
        windowStarts({ windowId: 'a' }),
      ],
      'a',
    ],
    ['the legacy one, named by nobody', [windowStarts()], 'legacy-s'],
    [
      'the one there was, where a start names something that is no id',
      [windowStarts({ windowId: 'a' }), windowStarts({ windowId: 7 }), windowStarts({ windowId: '' })],
      'a',
    ],
  ])('current is %s', (_, entries, windowId) => {
    expect(foldOf(entries).windowId).toBe(windowId);
  });

  it('falls back to a stored window where the current one starts again before it', () => {
    const loaded = {
      windows: [
        { windowId: 'b', previousWindowId: 'a', startedSequence: '8', eventSequence: '8', trigger: 'x' },
        { windowId: 'a', previousWindowId: null, startedSequence: '4', eventSequence: '4', trigger: 'initial' },
      ],
    };
    const state = foldOf([windowStarts({ windowId: 'b', startedSequence: 1, trigger: 'redo' })], start(loaded, 'b'));
    expect(state).toMatchObject({ windowId: 'a', startedWindows: new Set(['b']) });
    expect(state.windows.get('b')).toEqual({
      windowId: 'b',
      previousWindowId: null,
      startedSequence: 1,
      eventSequence: 0,
      trigger: 'redo',
    });
  });
});

describe('notes', () => {
  const write = (text: string, path = 'p'): Told => ['context/note-written', { path, text }];
  const append = (text: string, path = 'p'): Told => ['context/note-appended', { path, text }];

  it.each<[Told[], JsonObject]>([
    [[write('a'), append('b')], { isWhole: true, text: 'ab' }],
    [[append('a'), append('b')], { isWhole: false, text: 'ab' }],
    [[append('a'), write('b'), append('c')], { isWhole: true, text: 'bc' }],
    [[['context/note-written', { path: 'p', text: 7 }]], { isWhole: true, text: '' }],
  ])('%j is %j', (entries, change) => {
    expect(foldOf(entries).notes.changes.get('p')).toMatchObject(change);
  });

  it('may not grow beyond their bound, whatever is stored', () => {
    const loaded = { notes: [{ path: 'p', bytes: NOTE_BYTES_MAX - 2 }] };
    const guard = (entry: Told): void => {
      for (const event of told(entry)) contextProjection.guard?.(start(loaded), event);
    };
    for (const entry of [append('é'), write('éé'), append('éé', 'q')]) expect(() => guard(entry)).not.toThrow();
    expect(() => guard(append('é!'))).toThrow(PayloadTooLarge);
  });

  it('without a path that a key could hold change nothing', () => {
    expect(foldOf([write('a', 'x'.repeat(1025))]).notes.changes.size).toBe(0);
  });
});

it('reads only what a batch needs, so that most appends are one statement', () => {
  const session = { tenantId: 't', sessionId: 's' };
  const load = (...entries: Told[]): string | undefined => contextProjection.load(told(...entries), session)?.sql;
  expect(load(said(), ['context/note-written', {}], carries('w', 1))).toBeUndefined();
  expect(load(windowStarts())).toContain('context_windows');
  expect(load(['context/note-appended', {}])).toContain('context_notes');
});
