import type pg from 'pg';
import { measureInTurns, type Caller, type Contestant, type Measured, type Turns } from './measure';

export interface CaseSetting {
  readonly url: string;
  readonly admin: pg.Pool;
  /** Also the size of the case's pool. Each caller writes to a stream of its own. */
  readonly callers: number;
}

/** One way to append events. */
export interface Contender {
  readonly name: string;
  readonly perCall: number;
  readonly prepare: (setting: CaseSetting, perCall: number) => Promise<AppendCase>;
}

/** One that is made ready. */
export interface AppendCase {
  readonly callers: readonly Caller[];
  /** Rows in the database by table, besides those of the set-up, counted when all calls are done; each must be the number of events. */
  rowsWritten(): Promise<Readonly<Record<string, number>>>;
  close(): Promise<void>;
}

export async function countRows(
  on: pg.Pool,
  counts: Readonly<Record<string, string>>,
  values: readonly unknown[] = [],
): Promise<Record<string, number>> {
  const found: Record<string, number> = {};
  for (const [table, text] of Object.entries(counts)) {
    const { rows } = await on.query<{ n: string }>(text, [...values]);
    found[table] = Number(rows[0]?.n);
  }
  return found;
}

/** Measures them in turns on one database. Throws when one has not written what it says it has. */
export async function compareAppends(setting: CaseSetting, contenders: readonly Contender[], turns: Turns): Promise<Measured[]> {
  const made: { appendCase: AppendCase; contestant: Contestant }[] = [];
  try {
    for (const { name, perCall, prepare } of contenders) {
      const appendCase = await prepare(setting, perCall);
      made.push({ appendCase, contestant: { name, perCall, callers: appendCase.callers, calls: 0 } });
    }
    const measured = await measureInTurns(
      made.map(({ contestant }) => contestant),
      turns,
    );
    for (const { appendCase, contestant } of made) assertWritten(contestant, await appendCase.rowsWritten());
    return measured;
  } finally {
    for (const { appendCase } of made) await appendCase.close();
  }
}

/** Fails a benchmark whose rows are not those that its calls were told of. */
export function assertWritten({ name, perCall, calls }: Contestant, rows: Readonly<Record<string, number>>): void {
  const expected = calls * perCall;
  const wrong = Object.entries(rows).filter(([, count]) => count !== expected);
  if (wrong.length === 0) return;
  throw new Error(
    `${name}, ${perCall} a call: ${expected} events were acknowledged, found ${wrong.map(([table, count]) => `${count} in ${table}`).join(', ')}`,
  );
}
