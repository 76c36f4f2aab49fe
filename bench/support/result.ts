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

const COLUMNS = ['case', 'callers', 'perCall', 'perSecond', 'p50Ms', 'p99Ms', 'ratio'] as const;

export function tableOf(results: readonly Result[]): string {
  const lines = [COLUMNS.map(String), ...results.map((result) => COLUMNS.map((column) => shown(result[column])))];
  const widths = COLUMNS.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0)));
  return lines
    .map((line) => line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  '))
    .join('\n');
}

const shown = (value: string | number): string => (typeof value === 'string' ? value : value >= 100 ? value.toFixed(0) : String(value));

const round = (value: number, digits: number): number => Number(value.toFixed(digits));

/** What the project promises of a benchmark, judged by its results. */
export interface Expectation {
  readonly what: string;
  readonly atLeast: number;
  readonly found: number;
}

export const isMet = ({ atLeast, found }: Expectation): boolean => found >= atLeast;

export const expectationLine = (expectation: Expectation): string =>
  `${isMet(expectation) ? 'met    ' : 'NOT MET'}  ${expectation.what}: ${expectation.found.toFixed(2)}, expected at least ${expectation.atLeast}`;
