import { SESSION_EVENT_TYPES } from '@runplane/contracts';
import * as database from '@runplane/database';
import * as outbox from '@runplane/outbox';
import * as queue from '@runplane/queue';
import * as runs from '@runplane/runs';
import * as sessions from '@runplane/sessions';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

// docs/coverage-*.md say where each operation of the replaced stores lives and which test keeps its promise. What they name exists.

const root = path.resolve(__dirname, '../..');
const DOORS: Record<string, object> = { database, outbox, queue, runs, sessions };
const HEADER = /^\| (Operation|Event|Fault) \| Ours \| Its promise, and the test of it \|$/;

interface Row {
  readonly kind: string;
  readonly operation: string;
  readonly ours: string;
  readonly test: string;
}

function rowsOf(file: string): Row[] {
  const lines = readFileSync(path.join(root, 'docs', file), 'utf8').split('\n');
  const tables = lines.flatMap((line, at) => {
    const kind = HEADER.exec(line)?.[1];
    return kind === undefined ? [] : [{ at, kind }];
  });
  return tables.flatMap(({ at, kind }) => {
    const end = lines.findIndex((line, index) => index > at && !line.startsWith('|'));
    return lines.slice(at + 2, end === -1 ? undefined : end).map((line) => {
      const [operation = '', ours = '', test = ''] = line.split(/(?<!\\)\|/).slice(1, -1).map((cell) => cell.trim()); // prettier-ignore
      return { kind, operation, ours, test };
    });
  });
}

const files = readdirSync(path.join(root, 'docs')).filter((name) => /^coverage-.*\.md$/.test(name));

test('there are tables to read', () => {
  expect(files).toEqual(expect.arrayContaining(['coverage-runs.md', 'coverage-sessions.md']));
});

describe.each(files)('%s', (file) => {
  const rows = rowsOf(file);

  test('has no empty cell and names each operation once', () => {
    expect(rows.length).toBeGreaterThan(0);
    expect(rows.filter((row) => Object.values(row).some((cell) => cell === ''))).toEqual([]);
    expect(new Set(rows.map(({ operation }) => operation)).size).toBe(rows.length);
  });

  test('names exports that the doors have', () => {
    const named = rows.flatMap(({ ours }) => [...ours.matchAll(/`(\w+)\.(\w+)`/g)].map(([, door = '', name = '']) => ({ door, name })));
    const isOurs = ({ kind, ours }: Row): boolean => /`\w+\.\w+`/.test(ours) || (kind === 'Event' && /\[[\w-]+\.ts\]\(/.test(ours));
    expect(rows.filter((row) => !isOurs(row))).toEqual([]);
    expect(named.filter(({ door, name }) => !(name in (DOORS[door] ?? {})))).toEqual([]);
  });

  test('names tests that exist', () => {
    const links = rows.flatMap(({ operation, test: cell }) => {
      const found = [...cell.matchAll(/\[([^\]]+)\]\(\.\.\/([^)]+)\)/g)].map(([, title = '', at = '']) => ({ operation, title, at }));
      return found.length > 0 ? found : [{ operation, title: 'no test named', at: '' }];
    });
    expect(links.filter(({ title, at }) => !hasTitle(at, title))).toEqual([]);
  });
});

describe('coverage-sessions.md', () => {
  const rows = rowsOf('coverage-sessions.md');
  const wordsOf = (kind: string): string[] =>
    rows.filter((row) => row.kind === kind).flatMap(({ operation }) => [...operation.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word));

  test('has every event type that the code knows', () => {
    expect(SESSION_EVENT_TYPES.filter((type) => !wordsOf('Event').includes(type))).toEqual([]);
  });

  test('has every fault of the list, in its order', () => {
    const counts = { A: 11, B: 10, C: 14, D: 6, E: 6, F: 4, G: 7 };
    const faults = Object.entries(counts).flatMap(([part, count]) => Array.from({ length: count }, (_, n) => `${part}${n + 1}`));
    expect(rows.filter(({ kind }) => kind === 'Fault').map(({ operation }) => operation.split(' ')[0])).toEqual(faults);
  });

  test('names modules that exist', () => {
    const links = rows.flatMap(({ ours }) => [...ours.matchAll(/\]\(\.\.\/([^)]+)\)/g)].map(([, file = '']) => file));
    expect(links.filter((file) => !existsSync(path.join(root, file)))).toEqual([]);
  });
});

const texts = new Map<string, string>();

function hasTitle(file: string, title: string): boolean {
  if (!file.endsWith('.spec.ts') || !existsSync(path.join(root, file))) return false;
  const text = texts.get(file) ?? readFileSync(path.join(root, file), 'utf8');
  texts.set(file, text);
  return ["'", '`', '"'].some(
    (quote) => text.includes(`${quote}${title.replaceAll("'", "\\'")}${quote}`) || text.includes(`${quote}${title}${quote}`),
  );
}
