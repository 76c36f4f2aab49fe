import { randomInt } from 'node:crypto';
import { useDatabase } from '@runplane/database/testing';
import { makeTenants, TENANT } from '@runplane/runs/testing';
import { runFifoStress } from '../support/fifo-stress';

// `npm run test:stress` goes on for five minutes. A seed that was printed makes the same choices again: FIFO_SEED.

const SECONDS = Number(process.env['FIFO_SECONDS'] ?? 20);
const SEED = Number(process.env['FIFO_SEED'] ?? randomInt(1_000_000));
const t = useDatabase();
jest.setTimeout(SECONDS * 1_000 + 120_000);

test('16 claimers on 200 sessions, with aborts, expiries, re-queues and kills: of each session one at a time, always the oldest', async () => {
  await makeTenants(t.db);
  process.stdout.write(`fifo stress: ${SECONDS} s, seed ${SEED}\n`);

  const { seen, violations } = await runFifoStress({
    url: t.url,
    tenantId: TENANT,
    seed: SEED,
    ms: SECONDS * 1_000,
    claimers: 16,
    sessions: 200,
  });

  if (process.env['FIFO_SECONDS'] !== undefined) process.stdout.write(`${JSON.stringify(seen, undefined, 2)}\n`);
  expect({ seed: SEED, violations }).toEqual({ seed: SEED, violations: [] });
  for (const what of ['accepted', 'killed', 'time passed', 'requeued', 'died', 'completed: ok', 'failed: ok', 'released: ok'])
    expect([what, seen[what] ?? 0]).not.toEqual([what, 0]);
});
