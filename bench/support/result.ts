import { writeFile } from 'node:fs/promises';
import type { Measured } from './measure';

/** One line of a benchmark's JSON file; the same for every benchmark. */
export interface Result {
  readonly case: string;
  readonly callers: number;
  readonly perCall: number;
  /** Events, not calls. */
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** perSecond against the floor's at the same number of callers. */
  readonly ratio: number;
}

export function resultsOf(measured: readonly Measured[], floor: string): Result[] {
  const base = measured.find(({ contestant }) => contestant.name === floor)?.perSecond ?? Number.NaN;
  return measured.map(({ contestant, perSecond, p50Ms, p99Ms }) => ({
    case: contestant.name,
    callers: contestant.callers.length,
    perCall: contestant.perCall,
    perSecond: round(perSecond, 1),
    p50Ms: round(p50Ms, 3),
    p99Ms: round(p99Ms, 3),
    ratio: round(perSecond / base, 3),
  }));
}

export const writeJson = (file: string, results: readonly Result[]): Promise<void> =>
  writeFile(file, `${JSON.stringify(results, null, 2)}\n`);

/** Columns in the order of the first row's keys. */
export function tableOf(rows: readonly object[]): string {
  const columns = Object.keys(rows[0] ?? {});
  const lines = [columns, ...rows.map((row) => columns.map((column) => shown((row as Record<string, string | number>)[column] ?? '')))];
  const widths = columns.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0)));
  return lines
    .map((line) => line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  '))
    .join('\n');
}

const shown = (value: string | number): string => (typeof value === 'string' ? value : value >= 100 ? value.toFixed(0) : String(value));

const round = (value: number, digits: number): number => Number(value.toFixed(digits));

/** What the project promises of a benchmark, judged by its results. */
export interface Expectation {
  readonly what: string;
  readonly found: number;
  readonly atLeast?: number;
  readonly atMost?: number;
}

export const isMet = ({ found, atLeast = -Infinity, atMost = Infinity }: Expectation): boolean => found >= atLeast && found <= atMost;

export function expectationLine(expectation: Expectation): string {
  const { what, found, atLeast, atMost } = expectation;
  const bound = atLeast === undefined ? `at most ${atMost}` : `at least ${atLeast}`;
  return `${isMet(expectation) ? 'met    ' : 'NOT MET'}  ${what}: ${found.toFixed(2)}, expected ${bound}`;
}
