import { z } from 'zod';
import { claimDueSql, renewClaimSql, retryClaimSql, settleClaimSql, type ClaimTable, type HeldClaim } from './claims.sql';
import { column, rows } from './rows';
import { rawSql, sql, type Sql, type SqlRow } from './sql';
import { openClient, useDatabase } from './testing';

const database = useDatabase();

const table: ClaimTable = {
  table: 'public.jobs',
  key: ['tenant_id', 'id'],
  stateColumn: 'state',
  stateType: 'public.job_state',
  openStates: ['waiting', 'retry'],
  claimedState: 'working',
  attemptsMax: 3,
};
const returning = sql`t.id, t.epoch, t.attempts`;
const Claimed = z.object({ id: column.text, epoch: column.int, attempts: column.int });

beforeAll(async () => {
  await database.db.pool.query(`
    CREATE TYPE public.job_state AS ENUM ('waiting', 'retry', 'working', 'done');
    CREATE TABLE public.jobs (
      tenant_id text, id text COLLATE "C", state public.job_state NOT NULL DEFAULT 'waiting', owner text, epoch int NOT NULL DEFAULT 0,
      expires_at timestamptz(3), attempts int NOT NULL DEFAULT 0, ready_at timestamptz(3) NOT NULL DEFAULT runplane.app_now(), last_error text,
      PRIMARY KEY (tenant_id, id), CHECK ((owner IS NOT NULL) = (state = 'working')));
    CREATE INDEX jobs_due ON public.jobs (ready_at, id) WHERE state IN ('waiting', 'retry', 'working');`);
});
beforeEach(() => database.db.pool.query('TRUNCATE public.jobs'));

const run = (statement: Sql): Promise<SqlRow[]> => database.db.sql.query(statement);
const add = (...ids: string[]) => run(sql`INSERT INTO public.jobs (tenant_id, id) SELECT 't', id FROM unnest(${ids}::text[]) AS id`);
const claim = (limit = 10, { owner = 'me', leaseMs = 60_000, where }: { owner?: string; leaseMs?: number; where?: Sql } = {}) =>
  rows(database.db.sql, Claimed, claimDueSql(table, { owner, leaseMs, limit, orderBy: rawSql('ready_at, id'), returning, where }));
const held = (id: string, epoch = 1, owner = 'me'): HeldClaim => ({ key: ['t', id], owner, epoch });
/** Moves the end of every lease into the past, by the database's clock. */
const endLeases = () =>
  run(sql`UPDATE public.jobs SET expires_at = runplane.app_now(), ready_at = runplane.app_now() WHERE state = 'working'`);
const state = async (id: string) =>
  (await run(sql`SELECT state::text, owner, epoch, attempts, last_error FROM public.jobs WHERE id = ${id}::text`))[0];

describe('a claim', () => {
  it('takes due rows in order, up to its limit, and counts the attempt', async () => {
    await add('a', 'b', 'c');
    await run(sql`UPDATE public.jobs SET ready_at = runplane.app_now() - interval '1 s' WHERE id = 'c'`);
    const claimed = await claim(2);
    expect(claimed.map(({ id }) => id).sort()).toEqual(['a', 'c']);
    expect(claimed).toContainEqual({ id: 'c', epoch: 1, attempts: 1 });
    expect(await state('c')).toEqual({ state: 'working', owner: 'me', epoch: 1, attempts: 1, last_error: null });
  });

  it('leaves what is not due, done, or held under a live lease', async () => {
    await add('later', 'done', 'held');
    await run(sql`UPDATE public.jobs SET ready_at = runplane.app_now() + interval '1 h' WHERE id = 'later'`);
    await run(sql`UPDATE public.jobs SET state = 'done' WHERE id = 'done'`);
    await claim(10, { owner: 'other' });
    expect(await claim()).toEqual([]);
  });

  it('takes over what a dead holder left, under the next epoch', async () => {
    await add('a');
    await claim(1, { owner: 'other' });
    await endLeases();
    expect(await claim()).toEqual([{ id: 'a', epoch: 2, attempts: 2 }]);
  });

  it('passes a row over once its attempts are used up', async () => {
    await add('a');
    for (let attempt = 1; attempt <= 3; attempt += 1) {
      expect(await claim()).toHaveLength(1);
      await endLeases();
    }
    expect(await claim()).toEqual([]);
  });

  it('takes only rows that its filter names', async () => {
    await add('a', 'b');
    expect((await claim(10, { where: sql`id = ANY(${['b']}::text[])` })).map(({ id }) => id)).toEqual(['b']);
  });

  it('passes over rows that somebody has locked, without a wait', async () => {
    await add('a', 'b');
    const client = await openClient(database.url);
    await client.query(`BEGIN; SELECT FROM public.jobs WHERE id = 'a' FOR UPDATE`);
    try {
      expect((await claim()).map(({ id }) => id)).toEqual(['b']);
    } finally {
      await client.end();
    }
  });

  it('by many at once gives each row to one', async () => {
    await add(...Array.from({ length: 50 }, (_, number) => `job-${String(number).padStart(2, '0')}`));
    const claimed = (await Promise.all(Array.from({ length: 20 }, (_, number) => claim(5, { owner: `worker-${number}` })))).flat();
    expect(new Set(claimed.map(({ id }) => id)).size).toBe(claimed.length);
    expect(claimed.every(({ epoch }) => epoch === 1)).toBe(true);
  });

  it('judges by the database’s clock, not by this process’s', async () => {
    await add('a');
    const clock = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + 600_000);
    expect(await claim(1, { leaseMs: 300_000 })).toHaveLength(1);
    expect(await claim()).toEqual([]);
    clock.mockRestore();
  });

  const switches = ['seqscan', 'indexscan', 'bitmapscan', 'hashjoin', 'mergejoin', 'nestloop', 'material', 'sort'];
  it.each(switches.flatMap((one) => switches.filter((two) => two > one).map((two) => [one, two])))(
    'keeps its limit with enable_%s and enable_%s off',
    async (one, two) => {
      await add(...Array.from({ length: 40 }, (_, number) => `job-${number}`));
      const client = await openClient(database.url);
      await client.query(`SET enable_${one} = off; SET enable_${two} = off`);
      const { text, values } = claimDueSql(table, { owner: 'me', leaseMs: 60_000, limit: 3, orderBy: rawSql('ready_at, id'), returning });
      expect((await client.query(text, values)).rows).toHaveLength(3);
      expect((await client.query(`SELECT FROM public.jobs WHERE state = 'working'`)).rowCount).toBe(3);
      await client.end();
    },
  );

  it('finds the due rows by the index, not by looking at every waiting one', async () => {
    await run(
      sql`INSERT INTO public.jobs (tenant_id, id, ready_at) SELECT 't', 'job-' || n, runplane.app_now() + n * interval '1 h' FROM generate_series(-5, 20000) AS n`,
    );
    await database.db.pool.query('ANALYZE public.jobs');
    const { text, values } = claimDueSql(table, { owner: 'me', leaseMs: 60_000, limit: 3, orderBy: rawSql('ready_at, id'), returning });
    const { rows: plan } = await database.db.pool.query(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ${text}`, values);
    const explained = JSON.stringify(plan);
    expect(explained).toContain('"Index Name":"jobs_due"');
    expect(explained).toMatch(/"Index Cond":"\(ready_at <= /);
    expect(explained).not.toMatch(/"Rows Removed by Filter":[1-9]/);
  });
});

describe('a holder', () => {
  beforeEach(async () => {
    await add('a');
    await claim();
  });

  const renewal = (who: HeldClaim) => run(renewClaimSql(table, who, { leaseMs: 60_000, returning: sql`t.id` }));
  const settlement = (who: HeldClaim) => run(settleClaimSql(table, who, { set: sql`state = 'done'`, returning: sql`t.id` }));
  const retry = (who: HeldClaim, delayMs = 0) =>
    run(retryClaimSql(table, who, { state: 'retry', delayMs, lastError: 'no', returning: sql`t.id` }));

  it.each([
    ['renews', renewal],
    ['settles', settlement],
    ['gives back', retry],
  ])('%s what it holds, and nothing once its owner, epoch, lease or state is not current', async (_, act) => {
    expect(await act(held('a', 1, 'other'))).toEqual([]);
    expect(await act(held('a', 2))).toEqual([]);
    expect(await act(held('b'))).toEqual([]);

    expect(await act(held('a'))).toEqual([{ id: 'a' }]);

    await run(sql`UPDATE public.jobs SET state = 'working', owner = 'me', epoch = 1, expires_at = runplane.app_now()`);
    expect(await act(held('a'))).toEqual([]);
    await run(sql`UPDATE public.jobs SET state = 'done', owner = NULL, expires_at = runplane.app_now() + interval '1 h'`);
    expect(await act(held('a'))).toEqual([]);
  });

  it('that was waiting for the row while its lease ended is refused: the clock is judged after the wait', async () => {
    const client = await openClient(database.url);
    await run(
      sql`UPDATE public.jobs SET expires_at = runplane.app_now() + interval '200 ms', ready_at = runplane.app_now() + interval '200 ms'`,
    );
    await client.query(`BEGIN; SELECT FROM public.jobs FOR UPDATE`);
    const late = settlement(held('a'));
    await client.query('SELECT pg_sleep(0.3)');
    await client.query('COMMIT');
    await client.end();
    expect(await late).toEqual([]);
  });

  it('moves the moment of the next claim when it renews', async () => {
    await run(sql`UPDATE public.jobs SET expires_at = runplane.app_now() + interval '1 s', ready_at = runplane.app_now() + interval '1 s'`);
    await renewal(held('a'));
    expect(
      await run(sql`SELECT (ready_at = expires_at AND ready_at > runplane.app_now() + interval '50 s') AS moved FROM public.jobs`),
    ).toEqual([{ moved: true }]);
  });

  it('that gives back is fenced before the next claim, and the delay counts', async () => {
    await retry(held('a'), 60_000);
    expect(await state('a')).toEqual({ state: 'retry', owner: null, epoch: 2, attempts: 1, last_error: 'no' });
    expect(await claim()).toEqual([]);
    await run(sql`UPDATE public.jobs SET ready_at = runplane.app_now()`);
    expect(await claim()).toEqual([{ id: 'a', epoch: 3, attempts: 2 }]);
  });
});

it.each(['x y', 'x;', `x'`, 'X', 'a.b.c'])('a name that is none (%s) reaches no statement', (bad) => {
  expect(() => claimDueSql({ ...table, stateColumn: bad }, { owner: 'o', leaseMs: 1, limit: 1, orderBy: sql`id`, returning })).toThrow(
    'is not a name',
  );
  expect(() => claimDueSql({ ...table, claimedState: bad }, { owner: 'o', leaseMs: 1, limit: 1, orderBy: sql`id`, returning })).toThrow(
    /is not a (word|name)/,
  );
});
