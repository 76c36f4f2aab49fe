import { useDatabase } from '@runplane/database/testing';
import { openOurs } from './ours';

const t = useDatabase();

// The rivals run on another Node.js than this; each step of the benchmark asks their tables for the same.
test.each(['lane', 'queue'] as const)('ours puts every job in, and works every job off, claimed of a %s', async (claimed) => {
  const ours = await openOurs({ url: t.url, callersMax: 3 }, claimed);
  try {
    for (const perCall of [1, 100]) {
      const work = { jobs: perCall * 2 + 1, perCall, callers: 3 };
      await ours.enqueue(work);
      expect(await ours.waiting()).toBe(work.jobs);
      expect(await ours.workOff(work)).toBeGreaterThan(0);
      expect(await ours.waiting()).toBe(0);
    }
  } finally {
    await ours.close();
  }
});
