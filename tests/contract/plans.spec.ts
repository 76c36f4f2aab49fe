import type pg from 'pg';
import { openClient, useDatabase } from '@runplane/database/testing';
import { aRun } from '@runplane/runs/testing';
import { explain, nodesOf, PAGES_MAX, pagesOf, scansOf, statementOf, type Hot } from '../support/plans';
import { feedStatements, findFeedPlaces } from './plans/feed';
import { findQueuePlaces, queueStatements } from './plans/queue';
import { beginRelay, fillRelay, findRelayPlaces, relayStatements } from './plans/relay';
import { findRunPlaces, runStatements } from './plans/runs';
import { findViewPlaces, viewStatements } from './plans/session-views';
import { findSessionPlaces, sessionStatements } from './plans/sessions';
import { begin, fill, ROWS } from './plans/store';
import { submissionStatements } from './plans/submissions';

// Plans that cannot flip: each hot statement, as operations send it, on an empty store and on a filled one, planned for its parameters and for
// any (a prepared statement may get either). What counts is how many pages it touches, whatever the size of the store. The statements stand in
// plans/, by area; one file runs them all, since a store is filled once.

if (ROWS > 100_000) jest.setTimeout(1_200_000);
/** With a million rows an index is a level deeper. */
const DEEPER = ROWS > 100_000 ? 1.25 : 1;
const t = useDatabase({ checkInvariants: false });

const HOT: Record<string, Hot> = {
  ...queueStatements,
  ...submissionStatements,
  ...sessionStatements,
  ...viewStatements,
  ...runStatements,
  ...feedStatements,
  ...relayStatements,
};

let client: pg.Client;
beforeAll(async () => {
  client = await openClient(t.url);
  await begin(t.db, client);
  await beginRelay();
});
afterAll(() => client.end());

const planOf = async (hot: Hot, settings: Record<string, string>) => explain(client, await statementOf(t.db, hot), settings);

const PLANNING = [
  ['its parameters', { plan_cache_mode: 'force_custom_plan' }],
  ['any parameters', { plan_cache_mode: 'force_generic_plan' }],
] as const;

describe('on an empty store', () => {
  test.each(Object.entries(HOT).filter(([, { needsRows }]) => needsRows !== true))('%s can use indexes', async (_name, hot) => {
    expect(scansOf(await planOf(hot, { enable_seqscan: 'off' }))).toEqual([]);
  });

  // On its first day a table has no statistics, and plans of that day stay in use: no other index may look as good as the primary key.
  const byKey = Object.entries(HOT).filter(([, { index }]) => index === 'runs_pkey' || index === 'session_heads_pkey');
  test.each(byKey)('%s finds its row by the key', async (_name, hot) => {
    for (let i = 0; i < 20; i += 1) await aRun(t.db, { sessionRef: { sessionId: `first-${i}` } });
    const plan = await planOf(hot, { plan_cache_mode: 'force_generic_plan' });
    expect(nodesOf(plan).map((node) => node['Index Name'])).toContain(hot.index);
  });
});

describe(`on a store of ${ROWS} of everything`, () => {
  beforeAll(async () => {
    await fillRelay();
    await fill();
    for (const find of [findQueuePlaces, findSessionPlaces, findViewPlaces, findRunPlaces, findFeedPlaces, findRelayPlaces]) await find();
  });

  describe.each(PLANNING)('planned for %s', (_planning, settings) => {
    test.each(Object.entries(HOT))('%s', async (_name, hot) => {
      const mayReadAll = (hot.counts ?? 0) >= ROWS;
      const plan = await planOf(hot, { ...settings, ...(mayReadAll && { enable_seqscan: 'off' }) });
      expect(scansOf(plan)).toEqual([]);
      if (hot.index !== undefined) expect(nodesOf(plan).map((node) => node['Index Name'])).toContain(hot.index);
      expect(pagesOf(plan)).toBeLessThan((hot.pagesMax ?? PAGES_MAX) * DEEPER);
    });
  });
});
