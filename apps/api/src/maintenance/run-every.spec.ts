import { setTimeout as sleep } from 'node:timers/promises';
import { runEvery } from './run-every';

const until = async (holds: () => boolean): Promise<void> => {
  for (const late = Date.now() + 60_000; !holds();) {
    if (Date.now() > late) throw new Error('it never came to that');
    await sleep(5);
  }
};

describe('a background loop', () => {
  test('never runs two passes at a time', async () => {
    let running = 0;
    let most = 0;
    const loop = runEvery({
      name: 'slow',
      intervalMs: 1,
      pass: async () => {
        running += 1;
        most = Math.max(most, running);
        await sleep(10);
        running -= 1;
        return { changed: 1 };
      },
      onError: () => undefined,
    });

    await until(() => loop.stats.passes >= 5);
    await loop.stop();

    expect(most).toBe(1);
    expect(loop.stats.changed).toBe(loop.stats.passes);
  });

  test('reports an error with its name and goes on', async () => {
    const errors: string[] = [];
    const loop = runEvery({
      name: 'sweep',
      intervalMs: 5,
      pass: async () => {
        if (errors.length < 2) throw new Error('no database');
        return { changed: 0 };
      },
      onError: (error, name) => errors.push(`${name}: ${(error as Error).message}`),
    });

    await until(() => loop.stats.passes >= 4);
    await loop.stop();

    expect(errors).toEqual(['sweep: no database', 'sweep: no database']);
    expect(loop.stats.failures).toBe(2);
  });

  test('is not driven by hints while it fails', async () => {
    let passes = 0;
    const loop = runEvery({
      name: 'dispatch',
      intervalMs: 60_000,
      pass: async () => {
        passes += 1;
        throw new Error('no database');
      },
      pause: async () => 'changed', // somebody always has news
      onError: () => undefined,
    });

    await sleep(100);
    await loop.stop();

    expect(passes).toBe(1);
  });

  test('goes on at once after a full pass', async () => {
    let left = 50;
    const loop = runEvery({
      name: 'batch',
      intervalMs: 60_000,
      fullPass: 10,
      pass: async () => {
        const changed = Math.min(left, 10);
        left -= changed;
        return { changed };
      },
      onError: () => undefined,
    });

    await until(() => left === 0);
    await loop.stop();
  });

  test('ends when told, after the pass that runs', async () => {
    let finished = false;
    const loop = runEvery({
      name: 'pass',
      intervalMs: 60_000,
      pass: async () => {
        await sleep(50);
        finished = true;
        return { changed: 0 };
      },
      onError: () => undefined,
    });

    await loop.stop();

    expect(finished).toBe(true);
    expect(loop.stats.passes).toBe(1);
  });
});
