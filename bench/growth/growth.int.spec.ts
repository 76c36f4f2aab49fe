import { openClient, useDatabase } from '@runplane/database/testing';
import { recording } from '../support/statements';
import { GROWTH_CASES } from './cases';
import { loadGrowth } from './load';
import { scannedTables } from './plans';
import { growthExpectations } from './run';

const t = useDatabase({ checkInvariants: false }); // rows by hand, without what outbox and feed would have
const size = { runs: 400, events: 4_000 };

test('a store of any size is loaded, and every case runs on it', async () => {
  const client = await openClient(t.url);
  try {
    await loadGrowth(client, size, () => undefined);
    const { rows } =
      await client.query(`SELECT (SELECT count(*) FROM runplane.runs) AS runs, (SELECT count(*) FROM runplane.run_events) AS events,
      (SELECT count(*) FROM pg_indexes WHERE schemaname = 'runplane' AND tablename = 'runs') AS indexes`);
    expect(rows[0]).toEqual({ runs: '410', events: '4000', indexes: expect.stringMatching(/^1\d$/) });
  } finally {
    await client.end();
  }
  const found = await t.violations();
  expect(found.filter(({ invariant }) => invariant === 'VIEW-1' || invariant === 'LOG-1')).toEqual([]);

  const { db, statements } = recording(t.db);
  for (const { prepare } of GROWTH_CASES) {
    const call = await prepare(db, size, 2);
    await call();
    await call();
  }
  expect(statements.size).toBeGreaterThan(25);
  const [first] = statements.values();
  if (first === undefined) throw new Error('no statement');
  expect(await scannedTables(t.db.pool, first)).toEqual(expect.any(Array));
});

test('what is bounded may take twice the time, and nothing is read from end to end', () => {
  const result = (name: string, ratio: number) => ({ case: name, callers: 1, perCall: 1, perSecond: 1, p50Ms: 1, p99Ms: 1, ratio });
  const results = [result('small: facets', 1), result('big: facets', 2.5), result('big: list: first page with total', 9)];
  expect(growthExpectations({ results, scans: ['runs'] })).toEqual([
    { what: 'facets, big against small', found: 2.5, atMost: 2 },
    { what: 'big tables read from end to end', found: 1, atMost: 0 },
  ]);
});
