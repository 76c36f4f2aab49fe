import { useDatabase } from '@runplane/database/testing';
import * as queue from '@runplane/queue';
import * as runs from '@runplane/runs';
import * as sessions from '@runplane/sessions';
import { Credentials } from '../access/credentials';
import { startLoops } from './loops';

const store = useDatabase();

test('every bounded pass of the libraries is hosted by a loop: nothing that time ends is forgotten', async () => {
  const passes = Object.keys({ ...queue, ...runs, ...sessions }).flatMap((name) => /^(\w+)Once$/.exec(name)?.[1] ?? []);
  const launcher: runs.Launcher = { kind: 'none', launch: () => Promise.reject(new Error('nothing to launch')) };

  const collector: runs.StorageCollector = { kinds: ['folder'], collect: () => Promise.reject(new Error('nothing to delete')) };

  const loops = startLoops({
    db: store.db,
    credentials: new Credentials(store.db),
    launcher,
    collector,
    retention: { archive: undefined },
    owner: 'test',
    onError: () => undefined,
  });
  await Promise.all(loops.map((loop) => loop.stop()));

  expect(loops.map(({ name }) => name)).toEqual(expect.arrayContaining(passes));
  expect(passes).toContain('failExhaustedIntents');
});
