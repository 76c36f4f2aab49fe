import { readFile } from 'node:fs/promises';
import { version as pgVersion } from 'pg/package.json';
import { compareAppends, type Contender } from '../support/append-case';
import { resultsOf, type Expectation, type Result } from '../support/result';
import { describeMachine, startBenchStore } from '../support/store';
import { prepareEmmett } from './emmett';
import { prepareFloor } from './floor';
import { prepareOriginal } from './original';
import { prepareAppend, prepareWriter } from './ours';

const CASES = { writer: prepareWriter, append: prepareAppend, floor: prepareFloor, original: prepareOriginal, emmett: prepareEmmett };
const PER_CALL = [1, 20] as const;

export const SESSION_APPEND_CASES: readonly Contender[] = PER_CALL.flatMap((perCall) =>
  Object.entries(CASES).map(([name, prepare]) => ({ name, perCall, prepare })),
);

/** Sixteen connections that come back plan each of their statements five times; while they do, nothing is worth counting. */
const LEAD_IN_MS = 1_500;

export interface SessionAppendBench {
  /** How many sessions are appended to at the same time, one comparison each. */
  readonly sessions: readonly number[];
  /** Only cases of these names; the floor always runs. */
  readonly cases?: readonly string[] | undefined;
  readonly rounds: number;
  readonly seconds: number;
  readonly say: (line: string) => void;
}

/** Appends a turn's events to sessions in several ways, on one database. Throws when a case has not written what it says it has. */
export async function runSessionAppendBench({ sessions, cases, rounds, seconds, say }: SessionAppendBench): Promise<Result[]> {
  const contenders = SESSION_APPEND_CASES.filter(({ name }) => name === 'floor' || (cases?.includes(name) ?? true));
  const store = await startBenchStore({ max_connections: String(100 + contenders.length * Math.max(...sessions)) });
  try {
    say(await describeMachine(store.admin));
    say(await describeCases());
    const results: Result[] = [];
    for (const callers of sessions) {
      const measured = await compareAppends({ ...store, callers }, contenders, {
        rounds,
        seconds,
        leadInMs: LEAD_IN_MS,
        onTurn: (round, { name, perCall }) => {
          say(`round ${round} of ${rounds}, ${callers} sessions: ${name}, ${perCall} a call`);
        },
      });
      for (const perCall of PER_CALL) {
        results.push(
          ...resultsOf(
            measured.filter(({ contestant }) => contestant.perCall === perCall),
            'floor',
          ),
        );
      }
    }
    return results;
  } finally {
    await store.stop();
  }
}

/** Versions and settings that the cases bring; the server's are told with the machine. */
async function describeCases(): Promise<string> {
  const versionOf = async (name: string): Promise<string> => {
    // The package file is not among what these packages let others load.
    const [root] = require.resolve(name).split('/dist/');
    const { version } = JSON.parse(await readFile(`${root}/package.json`, 'utf8')) as { version: string };
    return `${name} ${version}`;
  };
  const versions = await Promise.all(['@event-driven-io/emmett', '@event-driven-io/emmett-postgresql'].map(versionOf));
  return `${versions.join(', ')}, pg ${pgVersion}; a pool of one connection per session for each case`;
}

/** What the project promises of session appends; of cases that have run. */
export function sessionAppendExpectations(results: readonly Result[]): Expectation[] {
  const rateOf = (name: string, { callers, perCall }: Result): number =>
    results.find((result) => result.case === name && result.callers === callers && result.perCall === perCall)?.perSecond ?? Number.NaN;
  return results
    .filter(({ case: name }) => name === 'writer')
    .flatMap((writer) => {
      const where = `${writer.callers === 1 ? 'one session' : `${writer.callers} sessions`}, ${writer.perCall === 1 ? 'one event' : `${writer.perCall} events`} a call`;
      return [
        { what: `${where}: a writer against the original`, atLeast: 5, found: writer.perSecond / rateOf('original', writer) },
        {
          what: `${where}: a writer against emmett`,
          atLeast: writer.perCall === 1 ? 1 : 1.5,
          found: writer.perSecond / rateOf('emmett', writer),
        },
      ];
    })
    .filter(({ found }) => !Number.isNaN(found));
}
