import { ensureTenant, inTransaction, sql, type Tx } from '@runplane/database';
import { waitForHorizon } from '@runplane/database/testing';
import {
  commitFeedConsumer,
  createOutbox,
  createRelayControl,
  deleteFeedConsumer,
  disableSink,
  enableSink,
  getFeedConsumer,
  getFeedStatus,
  getSinkStatus,
  listBlockedKeys,
  pruneOutboxOnce,
  readFeed,
  refused,
  registerFeedConsumer,
  registerSinks,
  republish,
  retryBlockedKeys,
  rewindFeedConsumer,
} from '@runplane/outbox';
import { appendEvents, aSinkByHand, keepShards, type SinkByHand } from '@runplane/outbox/testing';
import { pruneParkedEventsOnce } from '@runplane/runs';
import { DOCUMENTED_REFUSALS } from '../support/refusals';
import { ending, meet, meetAnyhow, openDbAhead, useRaces } from '../support/races';

// Operations on sinks and consumers that meet. Each test has a sink, a consumer and a tenant of its own.

const t = useRaces({ checkInvariants: false });
const DAY_MS = 86_400_000;
let worlds = 0;

interface World extends SinkByHand {
  /** Of the sink, of its tenant, and of its consumer. */
  readonly name: string;
  /** Where everything of it begins. */
  readonly start: string;
  /** The key at which the sink stands: its second event is parked. */
  readonly blocked: { readonly key: string; readonly cursor: string };
  append(count: number): Promise<void>;
}

async function aWorld(): Promise<World> {
  const name = `w${(worlds += 1)}`;
  await ensureTenant(t.db.sql, name);
  const sink = await aSinkByHand(t.db, {
    name,
    tenants: [name],
    answer: ({ sequence }) => (sequence === 2 ? refused('invalid', 'no') : undefined),
  });
  const { cursor: start } = await readFeed(t.db.sql, { tenantId: undefined, after: 'now' });
  await createOutbox(t.db).registerFeedConsumer({ tenantId: name, name, after: start });
  let sequence = 1;
  const append = async (count: number): Promise<void> => {
    await appendEvents(t.db.sql, { tenantId: name, sessionId: 's', sequence, count });
    sequence += count;
  };
  await append(4);
  await sink.pass();
  const [blocked] = (await listBlockedKeys(t.db, { sink: name })).keys;
  if (blocked === undefined) throw new Error('nothing is blocked');
  return { ...sink, name, start, blocked, append };
}

const end = async (): Promise<string> => {
  await waitForHorizon(t.db);
  return (await readFeed(t.db.sql, { tenantId: undefined, after: 'now' })).cursor;
};
const consumerOf = ({ name }: World) => ({ tenantId: name, name });

describe('a pass that comes to settle', () => {
  test('behind an operator’s retry leaves the key to it, and does not park it again', async () => {
    const world = await aWorld();
    await createRelayControl(t.db).retryBlockedKeys({ sink: world.name, key: world.blocked.key });
    await end();

    await meet(t.db, (tx) => retryBlockedKeys(tx, { sink: world.name, key: world.blocked.key }), world.passNow);

    expect((await listBlockedKeys(t.db, { sink: world.name })).keys).toMatchObject([{ state: 'retrying', attempts: 0 }]);
    await world.pass();
    expect((await listBlockedKeys(t.db, { sink: world.name })).keys).toMatchObject([{ state: 'parked', attempts: 1, heldCount: 3 }]);
  });

  test('behind a take-over writes nothing: the new owner sends the same again', async () => {
    const world = await aWorld();
    await appendEvents(t.db.sql, { tenantId: world.name, sessionId: 'other', sequence: 10 });
    await end();
    const takeOver = async (tx: Tx): Promise<void> => {
      await tx.query(sql`UPDATE runplane.outbox_shards SET expires_at = now() - interval '1 s' WHERE sink = ${world.name}::text`);
      await keepShards(tx, { sink: world.name, owner: 'successor', leaseMs: 60_000 });
    };

    const [, passed] = await meet(t.db, takeOver, world.passNow);

    expect(passed).toMatchObject({ value: { sent: 0, lost: [expect.anything()] } });
    expect(world.arrived('other')).toEqual([10]);
    expect(await getSinkStatus(t.db, { sink: world.name })).toMatchObject({ heldCount: 3, backlogCount: 4 });
  });

  test('behind the beginning of a range that is sent again forgets nothing of it', async () => {
    const world = await aWorld();
    await appendEvents(t.db.sql, { tenantId: world.name, sessionId: 'other', sequence: 10 });
    await world.pass();
    await appendEvents(t.db.sql, { tenantId: world.name, sessionId: 'other', sequence: 11 });
    await end();

    await meet(t.db, (tx) => republish(tx, { sink: world.name, from: world.start }), world.passNow);
    await world.pass();

    expect(world.arrived('other')).toEqual([10, 11, 10]);
    expect(await getSinkStatus(t.db, { sink: world.name })).toMatchObject({ replayingShards: 0, heldCount: 4 }); // the first of the blocked key waits behind it now
  });

  test('behind a disabled sink writes nothing', async () => {
    const world = await aWorld();
    await appendEvents(t.db.sql, { tenantId: world.name, sessionId: 'other', sequence: 10 });
    await end();

    const [, passed] = await meet(t.db, (tx) => disableSink(tx, { sink: world.name }), world.passNow);

    expect(passed).toMatchObject({ value: { sent: 0 } });
    expect(await getSinkStatus(t.db, { sink: world.name })).toMatchObject({ enabled: false, backlogCount: 4, shardsHeld: 0 });
  });
});

describe('retention', () => {
  /** Everything is old enough, but for what somebody needs. */
  const prune = () => pruneOutboxOnce(t.db, { keepMs: 0 });

  test('waits for a sink that is just told to begin at the oldest event, and keeps that', async () => {
    const world = await aWorld();
    await deleteFeedConsumer(t.db, consumerOf(world));
    await createRelayControl(t.db).disableSink({ sink: world.name });
    await end();

    await meet(t.db, (tx) => enableSink(tx, { sink: world.name, start: 'oldest' }), prune);

    expect((await getSinkStatus(t.db, { sink: world.name })).backlogCount).toBeGreaterThanOrEqual(4);
  });

  test('that has just lifted the floor refuses a sink and a consumer that would begin below it', async () => {
    const world = await aWorld();
    await end();
    const lift = (tx: Tx) =>
      tx.query(
        sql`UPDATE runplane.outbox_floor SET (tx, position) = (SELECT tx, position FROM runplane.outbox_events ORDER BY tx DESC, position DESC LIMIT 1)`,
      );
    const late = (start: string) => registerSinks(t.db, [{ name: `late-${world.name}`, kind: 'memory', start }]);

    const [, refusal] = await meet(t.db, lift, () => late(world.start));

    expect(refusal).toMatchObject({ code: 'cursor_expired' });
    expect(await ending(late('oldest'))).toEqual({ value: undefined });
    const rewound = ending(createOutbox(t.db).rewindFeedConsumer({ ...consumerOf(world), to: world.start }));
    expect(await rewound).toMatchObject({ code: 'cursor_expired' });
  });

  test('beside a commit that is not there yet keeps what the consumer may still need', async () => {
    const world = await aWorld();
    const to = await end();

    const met = await meetAnyhow(t.db, (tx) => commitFeedConsumer(tx, { ...consumerOf(world), from: world.start, to }), prune);

    expect(met).toMatchObject({ waited: false });
    expect(await getFeedConsumer(t.db, consumerOf(world))).toMatchObject({ cursor: to, isExpired: false });
    expect((await getFeedStatus(t.db, { tenantId: undefined })).rebaseNeeded).toBe(false);
  });

  test('of parked events finds nothing behind an operator’s retry', async () => {
    const world = await aWorld();
    const later = await openDbAhead(t.url, 31 * DAY_MS);

    const [, pruned] = await meet(
      t.db,
      (tx) => retryBlockedKeys(tx, { sink: world.name }),
      () => pruneParkedEventsOnce(later, { tenantId: world.name, policy: { archive: false } }),
    );
    await later.close();

    expect(pruned).toMatchObject({ value: { changed: 0, failed: 0 } });
    expect((await listBlockedKeys(t.db, { sink: world.name })).keys).toMatchObject([{ state: 'retrying', heldCount: 3 }]);
  });
});

describe('a commit of a consumer', () => {
  test('behind a rewind is told where it stands now; a rewind behind a commit wins', async () => {
    const world = await aWorld();
    await world.append(1); // so that its end is not its start
    const to = await end();
    const commit = { ...consumerOf(world), from: world.start, to };
    const rewind = { ...consumerOf(world), to: 'start' };

    const [{ cursor }, refusal] = await meet(
      t.db,
      (tx) => rewindFeedConsumer(tx, rewind),
      () => commitFeedConsumer(t.db, commit),
    );
    expect(refusal).toMatchObject({ code: 'feed_consumer_moved', data: { cursor } });

    const [, rewound] = await meet(
      t.db,
      (tx) => commitFeedConsumer(tx, { ...commit, from: cursor }),
      () => createOutbox(t.db).rewindFeedConsumer(rewind),
    );
    expect(rewound).toMatchObject({ value: { cursor } });
  });

  test('behind its deletion finds nobody; a deletion behind a commit tells where it stood', async () => {
    const [first, second] = [await aWorld(), await aWorld()];
    const to = await end();

    const [, refusal] = await meet(
      t.db,
      (tx) => deleteFeedConsumer(tx, consumerOf(first)),
      () => commitFeedConsumer(t.db, { ...consumerOf(first), from: first.start, to }),
    );
    const [, deleted] = await meet(
      t.db,
      (tx) => commitFeedConsumer(tx, { ...consumerOf(second), from: second.start, to }),
      () => deleteFeedConsumer(t.db, consumerOf(second)),
    );

    expect(refusal).toMatchObject({ code: 'feed_consumer_not_found' });
    expect(deleted).toMatchObject({ value: { cursor: to } });
  });
});

/** What may meet over the rows of a sink, or of a consumer: in a transaction that waits before its commit, and beside it. */
type Sides = Record<string, { call?: (tx: Tx, world: World) => Promise<unknown>; alone?: (world: World) => Promise<unknown> }>;
const OVER_FLOOR: Sides = {
  'new sink': { alone: ({ name }) => registerSinks(t.db, [{ name: `new-${name}`, kind: 'memory', start: 'oldest' }]) },
  prune: { alone: () => pruneOutboxOnce(t.db, { keepMs: DAY_MS }) },
};
const OVER: Record<'sink' | 'consumer', Sides> = {
  sink: {
    ...OVER_FLOOR,
    pass: { alone: (world) => world.passNow() },
    'sign of life': { alone: ({ name }) => keepShards(t.db.lane, { sink: name, owner: 'another', leaseMs: 1 }) },
    skip: {
      alone: ({ name, blocked }) => createRelayControl(t.db).skipBlockedEvent({ sink: name, key: blocked.key, cursor: blocked.cursor }),
    },
    'giving up': { alone: ({ name }) => pruneParkedEventsOnce(t.db, { tenantId: name, policy: { parkedDays: 1, archive: false } }) },
    retry: { call: (tx, { name }) => retryBlockedKeys(tx, { sink: name }) },
    republish: { call: (tx, { name, start }) => republish(tx, { sink: name, from: start }) },
    disable: { call: (tx, { name }) => disableSink(tx, { sink: name }) },
    enable: { call: (tx, { name, start }) => enableSink(tx, { sink: name, start }) },
  },
  consumer: {
    ...OVER_FLOOR,
    register: { call: (tx, { name }) => registerFeedConsumer(tx, { tenantId: name, name: 'new' }) },
    commit: { call: (tx, world) => commitFeedConsumer(tx, { ...consumerOf(world), from: world.start, to: world.start }) },
    rewind: { call: (tx, world) => rewindFeedConsumer(tx, { ...consumerOf(world), to: world.start }) },
    delete: { call: (tx, world) => deleteFeedConsumer(tx, consumerOf(world)) },
  },
};

test.each(['sink', 'consumer'] as const)(
  'over a %s every operation beside every other ends in order, with a documented refusal at most',
  async (kind) => {
    const sides = OVER[kind];
    const world = await aWorld();
    let met = 0;
    for (const [first, { call }] of Object.entries(sides)) {
      if (call === undefined) continue;
      for (const [second, side] of Object.entries(sides)) {
        if (kind === 'sink') await createRelayControl(t.db).enableSink({ sink: world.name });
        else await createOutbox(t.db).registerFeedConsumer({ ...consumerOf(world), after: world.start });
        const alone = side.alone ?? ((w: World) => inTransaction(t.db, async (tx) => side.call?.(tx, w)));
        const meeting = await meetAnyhow(
          t.db,
          (tx) => call(tx, world),
          () => alone(world),
        );
        if (meeting === undefined) continue; // what came before has left nothing to do for the first
        met += 1;
        const { other } = meeting;
        if ('code' in other && !DOCUMENTED_REFUSALS.has(other.code)) throw new Error(`${first} beside ${second}: refused as ${other.code}`);
      }
    }
    expect(met).toBeGreaterThan(15);
  },
);
