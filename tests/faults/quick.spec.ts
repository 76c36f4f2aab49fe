import { runFaults } from './run-faults';

// The short form of `npm run test:faults`, which needs the programs that `npm run build` makes.

jest.setTimeout(300_000);

test('six kills of runners, APIs and PostgreSQL under load: everything that was acknowledged holds, and every run ends by itself', async () => {
  const seed = Math.floor(Math.random() * 1_000_000);
  const said: string[] = [];

  const { faults } = await runFaults({ kills: 6, seed, apis: 2, sessions: 3, runnersByHand: 1, say: (line) => said.push(line) });

  if (faults.length > 0) throw new Error(`seed ${seed}\n${[...said, ...faults].join('\n')}`);
});

test('a PostgreSQL that acknowledges commits before they are safe is found out', async () => {
  // The feed never tells what is lost: to wait for it finds nothing more.
  const load = { apis: 1, sessions: 0, runnersByHand: 4, drainMs: 3_000, quietMs: 1_000, keep: false };
  const { faults } = await runFaults({ kills: 3, seed: 1, only: 'postgres', ...load, unsafeCommits: true, say: () => undefined });

  expect(faults.join('\n')).toMatch(/was acknowledged/);
});
