import { useDatabase } from '@runplane/database/testing';
import { readFeed, refused } from '@runplane/outbox';
import { appendEvents, aSinkByHand } from '@runplane/outbox/testing';
import { runCliOn } from '../testing/run-cli';

const database = useDatabase({ checkInvariants: false });

const runplane = (...args: string[]) => runCliOn(database.url, ...args);

test('an operator sees how a sink stands and why, and retries, skips, sends again, disables and enables', async () => {
  const { pass, arrived } = await aSinkByHand(database.db, {
    name: 'two',
    tenants: ['two'],
    answer: ({ sequence }) => (sequence === 2 ? refused('invalid', 'no') : undefined),
  });
  const { cursor: start } = await readFeed(database.db.sql, { tenantId: undefined, after: 'now' });
  for (const sessionId of ['a', 'b']) await appendEvents(database.db.sql, { tenantId: 'two', sessionId, sequence: 1, count: 4 });
  await pass();

  expect((await runplane('relay', 'status')).stdout).toMatch(/two +memory +enabled +1 +32 +6 +\d+ s +0 +2 +no/);
  const listed = await runplane('relay', 'keys', 'two', '--parked');
  expect(listed.stdout).toMatch(/two\/a +parked +3 +1 +session 2 test/);
  const { keys } = JSON.parse((await runplane('relay', 'keys', 'two', '--json')).stdout) as { keys: { key: string; cursor: string }[] };
  expect((await runplane('why', 'key', 'two', 'two/a')).stdout).toContain('it is parked, and 3 events wait');
  expect((await runplane('why', 'shard', 'two', '0')).stdout).toContain('has got everything');
  expect((await runplane('relay', 'retry', 'two')).stdout).toBe('2 keys are tried again\n');
  await pass();
  expect((await runplane('relay', 'skip', 'two', 'two/a', keys.find(({ key }) => key === 'two/a')?.cursor ?? '')).stdout).toContain(
    '2 events of two/a',
  );
  await pass();
  expect([arrived('a'), arrived('b')]).toEqual([[1, 3, 4], [1]]);
  expect((await runplane('relay', 'republish', 'two', '--from', start)).stdout).toContain('2 shards are sent again');
  expect((await runplane('relay', 'disable', 'two')).stdout).toBe('two is disabled\n');
  expect((await runplane('relay', 'disable', 'two')).stdout).toBe('two was disabled already\n');
  await database.db.pool.query(
    `INSERT INTO runplane.outbox_held (sink, shard, partition_key, tx, position) SELECT 'two', 0, 'two/a', 1, i FROM generate_series(1, 10000) i`,
  );
  const enabled = await runplane('relay', 'enable', 'two', '--start', 'oldest');
  expect([enabled.stdout, enabled.stderr]).toEqual(['two is enabled\n', '10000 held events forgotten …\n']);
  expect((await runplane('relay', 'enable', 'two')).stdout).toBe('two was enabled already\n');
  expect((await runplane('relay', 'deliveries', 'two')).stdout).toBe('Nothing was posted.\n');
  for (const [args, code, advice] of [
    [['relay', 'retry', 'none'], 1, 'no sink none'],
    [['relay', 'retry', 'two', 'two/x'], 1, 'no blocked key'],
    [['relay', 'skip', 'two', 'two/a', 'x'], 1, 'cursor'],
    [['relay', 'republish', 'two'], 2, '--from'],
    [['why', 'shard', 'two', 'x'], 2, 'number of a shard'],
  ] as const) {
    const refusal = await runplane(...args);
    expect([refusal.code, refusal.stdout]).toEqual([code, '']);
    expect(refusal.stderr).toContain(advice);
  }
});
