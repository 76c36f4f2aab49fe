import { inTransaction, joinTransaction } from '@runplane/database';
import { openClient, useDatabase, waitForHorizon } from '@runplane/database/testing';
import { commitFeedConsumer, createOutbox, deleteFeedConsumer, getFeedConsumer, readFeed } from '@runplane/outbox';
import { admitTurn, appendRunEvents, claimRun, createRuns, finishRun } from '@runplane/runs';
import { aClaimedRun, aClaimedTurn, endLease, makeTenants, message, newTurn, TENANT } from '@runplane/runs/testing';
import fc from 'fast-check';
import { setTimeout as delay } from 'node:timers/promises';
import { search, SEARCH_TIMEOUT_MS } from '../support/properties';

// FEED-1: whatever transactions overlap, take long or roll back, a reader that follows its cursor sees every committed event once and none
// twice, those of one stream in order, and the runs of one session one after another.

jest.setTimeout(SEARCH_TIMEOUT_MS);
const t = useDatabase();
const tenantId = TENANT;
const completed = { terminalStatus: 'completed' } as const;
beforeAll(() => makeTenants(t.db));

interface Seen {
  readonly stream: string;
  readonly sequence: number;
  readonly eventId: string;
}

/** Follows the feed from `from` until it is stopped and has come to a horizon beyond everything written. */
function follow(from: string, limit: number): { stop(): Promise<Seen[]> } {
  const seen: Seen[] = [];
  let stopping = false;
  const reading = (async () => {
    for (let cursor = from; ;) {
      const last = stopping; // told before the page, which then has all there will be
      const page = await readFeed(t.db.sql, { tenantId: undefined, after: cursor, limit });
      seen.push(...page.events.map(({ streamId: stream, sequence, eventId }) => ({ stream, sequence, eventId })));
      cursor = page.cursor;
      if (page.more) continue;
      if (last) return;
      await delay(2);
    }
  })();
  return {
    async stop() {
      await waitForHorizon(t.db);
      stopping = true;
      await reading;
      return seen;
    },
  };
}

let consumers = 0;

/**
 * Two processes under one consumer's name. Each begins where the store says, reads, handles, and then may crash instead of the commit: it begins anew.
 * What is handled, is so at least once.
 */
async function consume(from: string, limit: number, crashes: readonly boolean[]): Promise<{ stop(): Promise<Seen[]> }> {
  const key = { tenantId: undefined, name: `consumer-${(consumers += 1)}` };
  await createOutbox(t.db).registerFeedConsumer({ ...key, after: from });
  const handled: Seen[] = [];
  let stopping = false;
  let pages = 0;
  const work = async (): Promise<void> => {
    for (;;) {
      const last = stopping;
      const { cursor } = await getFeedConsumer(t.db, key);
      const page = await readFeed(t.db.sql, { tenantId: undefined, after: cursor, limit });
      handled.push(...page.events.map(({ streamId: stream, sequence, eventId }) => ({ stream, sequence, eventId })));
      if (last && page.events.length === 0 && !page.more) return;
      if (crashes[(pages += 1) % crashes.length] === true) continue;
      await commitFeedConsumer(t.db, { ...key, from: cursor, to: page.cursor }).catch((error: unknown) => {
        if ((error as { code?: string }).code !== 'feed_consumer_moved') throw error;
      });
      await delay(page.events.length === 0 ? 2 : 0);
    }
  };
  const working = Promise.all([work(), work()]);
  return {
    async stop() {
      await waitForHorizon(t.db);
      stopping = true;
      await working;
      await deleteFeedConsumer(t.db, key);
      return handled.filter(({ eventId }, at) => handled.findIndex((each) => each.eventId === eventId) === at);
    },
  };
}

/** The horizon, beyond everything written so far. */
async function head(): Promise<string> {
  await waitForHorizon(t.db);
  return (await readFeed(t.db.sql, { tenantId: undefined, after: 'now' })).cursor;
}

/** Everything that was committed behind the given sequences, per stream in order. */
async function committedOf(streams: readonly string[], after: number): Promise<Seen[]> {
  const { rows } = await t.db.pool.query(
    `SELECT run_id AS stream, seq::int AS sequence, id AS "eventId" FROM runplane.run_events WHERE run_id = ANY ($1) AND seq > $2 ORDER BY run_id, seq`,
    [streams, after],
  );
  return rows as Seen[];
}

function assertEachOnceInOrder(seen: readonly Seen[], committed: readonly Seen[]): void {
  const streams = new Set(committed.map(({ stream }) => stream));
  for (const stream of streams)
    expect(seen.filter((each) => each.stream === stream)).toEqual(committed.filter((each) => each.stream === stream));
  expect(seen.filter(({ stream }) => streams.has(stream))).toHaveLength(committed.length);
}

/** A ring of moments: who waits for one goes on when all before it have passed. */
function clock(): { at(tick: number): Promise<void>; run(ticks: number): Promise<void> } {
  const waiting = new Map<number, (() => void)[]>();
  let now = -1;
  return {
    at: (tick) => (tick <= now ? Promise.resolve() : new Promise((resolve) => waiting.set(tick, [...(waiting.get(tick) ?? []), resolve]))),
    async run(ticks) {
      for (now = 0; now <= ticks; now += 1) {
        for (const resolve of waiting.get(now) ?? []) resolve();
        await delay(1); // lets statements of several transactions come between each other
      }
    },
  };
}

const TICKS = 16;
const tick = fc.integer({ min: 0, max: TICKS });
const writers = fc.array(
  fc.record({
    /** Which runs it writes to, in lock order, and how many events each time. */
    runs: fc.subarray([0, 1, 2], { minLength: 1 }),
    events: fc.integer({ min: 1, max: 3 }),
    begin: tick,
    write: tick,
    end: tick,
    /** It has written something of its own before it waits, so that its number is old. */
    old: fc.boolean(),
    rollsBack: fc.boolean(),
  }),
  { minLength: 2, maxLength: 8 },
);

/** Which of a consumer's pages end in a crash before their commit; not all of them. */
const crashPlan = fc.array(fc.boolean(), { minLength: 1, maxLength: 5 }).map((crashes) => [...crashes, false]);

test('overlapping writers of a few runs, followed, and consumed by two processes that crash between handler and commit', async () => {
  const claims = (await Promise.all([aClaimedRun(t.db), aClaimedRun(t.db), aClaimedRun(t.db)])).sort((a, b) =>
    a.run.id < b.run.id ? -1 : 1,
  );
  const sequences = claims.map(() => 2);

  await search(
    fc.asyncProperty(writers, fc.integer({ min: 1, max: 4 }), crashPlan, async (plan, limit, crashes) => {
      const time = clock();
      const from = await head();
      const reader = follow(from, limit);
      const consumer = await consume(from, 5 - limit, crashes);
      const before = Math.min(...sequences);
      const writes = plan.map(async ({ runs, events, begin, write, end, old, rollsBack }) => {
        await time.at(begin);
        const client = await openClient(t.url);
        await client.query(old ? 'BEGIN; SELECT pg_current_xact_id()' : 'BEGIN');
        await time.at(write);
        const { tx } = await joinTransaction(t.db, client);
        for (const index of runs) {
          const { run, epoch } = claims[index] as (typeof claims)[number];
          await appendRunEvents(tx, {
            tenantId,
            runId: run.id,
            epoch,
            events: Array.from({ length: events }, (_, i) => message(String(i))),
          });
        }
        // Beyond its last tick nobody waits for anything but locks.
        await time.at(end);
        await client.query(rollsBack ? 'ROLLBACK' : 'COMMIT');
        await client.end();
      });
      await time.run(TICKS);
      await Promise.all(writes);
      const [seen, handled] = await Promise.all([reader.stop(), consumer.stop()]);

      const committed = await committedOf(
        claims.map(({ run }) => run.id),
        before,
      );
      const fresh = committed.filter(
        ({ stream, sequence }) => sequence > (sequences[claims.findIndex(({ run }) => run.id === stream)] ?? 0),
      );
      for (const { stream, sequence } of fresh) sequences[claims.findIndex(({ run }) => run.id === stream)] = sequence;
      assertEachOnceInOrder(seen, fresh);
      assertEachOnceInOrder(handled, fresh);
    }),
  );
});

const life = fc.array(
  fc.record({
    /** What ends the turn before: its runner, or the next turn that takes it over. */
    takenOver: fc.boolean(),
    /** The admission runs in a transaction that is older than the end of the turn before. */
    old: fc.boolean(),
    appends: fc.integer({ min: 0, max: 2 }),
    /** A run without a turn lives in the session at the same time and ends late. */
    besides: fc.boolean(),
  }),
  { minLength: 2, maxLength: 4 },
);

let lives = 0;

test('the runs of one session, one after another, also where a turn is taken over', async () => {
  await search(
    fc.asyncProperty(life, fc.integer({ min: 1, max: 5 }), async (turns, limit) => {
      const sessionId = `life-${(lives += 1)}`;
      const reader = follow(await head(), limit);
      let current = await aClaimedTurn(t.db, sessionId);
      const order = [current.run.id];
      const pairs: { ended: string; begun: string }[] = [];
      for (const { takenOver, old, appends, besides } of turns) {
        for (let i = 0; i < appends; i += 1)
          await appendRunEvents(t.db, { tenantId, runId: current.run.id, epoch: current.epoch, events: [message('x')] });
        const other = besides ? await aClaimedRun(t.db, { sessionRef: { sessionId } }) : undefined;
        const client = await openClient(t.url);
        await client.query(old ? 'BEGIN; SELECT pg_current_xact_id()' : 'BEGIN');
        if (takenOver) await endLease(t.db, current.run.id);
        else
          await inTransaction(t.db, (tx) => finishRun(tx, { tenantId, runId: current.run.id, epoch: current.epoch, outcome: completed }));
        if (other !== undefined)
          await createRuns(t.db).finishRun({ tenantId, runId: other.run.id, epoch: other.epoch, outcome: completed });
        const { tx } = await joinTransaction(t.db, client);
        const next = await admitTurn(tx, { tenantId, sessionId, turn: newTurn(), idempotencyKey: `key-${order.length}` });
        await client.query('COMMIT');
        await client.end();
        const { epoch } = await claimRun(t.db, { tenantId, runId: next.run.id, runnerId: 'r' });
        current = { ...next, epoch };
        order.push(next.run.id);
        if (other !== undefined) pairs.push({ ended: other.run.id, begun: next.run.id });
      }
      await createRuns(t.db).finishRun({ tenantId, runId: current.run.id, epoch: current.epoch, outcome: completed });
      const seen = await reader.stop();

      assertEachOnceInOrder(seen, await committedOf(order, 0));
      const turnsSeen = seen.filter(({ stream }) => order.includes(stream)).map(({ stream }) => stream);
      expect(turnsSeen.filter((stream, place) => stream !== turnsSeen[place - 1])).toEqual(order);
      const streams = seen.map(({ stream }) => stream);
      for (const { ended, begun } of pairs) expect(streams.lastIndexOf(ended)).toBeLessThan(streams.indexOf(begun));
    }),
  );
});
