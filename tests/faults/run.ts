import { parseArgs } from 'node:util';
import { runFaults, TARGETS, type Target } from './run-faults';

const USAGE = `Kills processes of a running system at random moments and looks whether everything that was acknowledged is still true.

  npm run test:faults -- [--kills 50] [--seed N] [--only runner|api|postgres] [--apis 2] [--sessions 6] [--quick] [--unsafe-commits]

--quick is six kills. --unsafe-commits lets PostgreSQL acknowledge before it has written: the test must fail then. A seed repeats the choices; the moments depend on the machine as well.`;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      kills: { type: 'string' },
      seed: { type: 'string' },
      only: { type: 'string' },
      apis: { type: 'string', default: '2' },
      sessions: { type: 'string', default: '6' },
      quick: { type: 'boolean', default: false },
      'unsafe-commits': { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  const only = TARGETS.find((target) => target === values.only);
  if (values.only !== undefined && only === undefined) throw new Error(`--only takes one of ${TARGETS.join(', ')}`);
  const { faults, summary } = await runFaults({
    kills: count('--kills', values.kills ?? (values.quick ? '6' : '50')),
    seed: count('--seed', values.seed ?? String(Math.floor(Math.random() * 1_000_000))),
    only: only satisfies Target | undefined,
    apis: count('--apis', values.apis),
    sessions: count('--sessions', values.sessions),
    runnersByHand: 2,
    unsafeCommits: values['unsafe-commits'],
    say: (line) => console.log(line),
  });
  console.log(summary);
  for (const fault of faults) console.error(fault);
  console.log(faults.length === 0 ? 'fault test: everything that was acknowledged holds' : 'fault test: FAILED');
  return faults.length === 0 ? 0 : 1;
}

function count(name: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0) throw new Error(`${name} takes a number`);
  return value;
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(error);
    process.exit(1);
  },
);
