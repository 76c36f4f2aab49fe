import { inTransaction } from '@runplane/database';
import { eventually, useDatabase } from '@runplane/database/testing';
import timers from 'node:timers/promises';
import { listEndedReservations, type Reservation } from './reservation.sql';
import { confirmReservation, pruneReservationsOnce, releaseReservation, renewReservation, reserve } from './reservations';
import { createRuns } from './runs';
import { confirmRunnerSlot, releaseRunnerSlot, renewRunnerSlot, reserveRunnerSlot, withRunnerSlot } from './runner-slots';
import { aClaimedRun, aRun, makeTenants, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other'));

const slots = () => createRuns(t.db);
/** Lets every hold under the key end, as time would. */
const endHolds = (key: string) =>
  t.db.pool.query(
    `UPDATE runplane.reservations SET expires_at = runplane.app_now() - interval '2 min', updated_at = runplane.app_now() - interval '2 min'
     WHERE key::json ->> 1 = $1`,
    [key],
  );
const rowsOf = async (key: string) =>
  (
    await t.db.pool.query<{ slot: number; owner: string | null }>(
      `SELECT slot, owner FROM runplane.reservations WHERE key::json ->> 1 = $1`,
      [key],
    )
  ).rows;

describe('a place to make a runner in', () => {
  test('is held by one attempt; a repeat keeps it; others are told when to come again, and get the next epoch after it', async () => {
    const key = 'one';
    const first = await slots().reserveRunnerSlot({ key, owner: 'a1' });
    expect(first).toMatchObject({ key, slot: 1, owner: 'a1', epoch: 1 });
    expect(await slots().reserveRunnerSlot({ key, owner: 'a1' })).toMatchObject({ slot: 1, epoch: 1 });
    await expect(slots().reserveRunnerSlot({ key, owner: 'b1' })).rejects.toMatchObject({
      code: 'capacity_reached',
      retryable: true,
      data: { key, limit: 1, live: 0, reserved: 1, retryInMs: expect.any(Number) as number },
    });

    expect(await renewRunnerSlot(t.db, { ...held(first), leaseMs: 60_000 })).toMatchObject({ remainingMs: 60_000 });
    await slots().confirmRunnerSlot(held(first));
    for (const late of [() => slots().confirmRunnerSlot(held(first)), () => renewRunnerSlot(t.db, held(first))])
      await expect(late()).rejects.toMatchObject({ code: 'reservation_lost', data: { key, slot: 1, epoch: 1 } });
    expect(await slots().reserveRunnerSlot({ key, owner: 'b1' })).toMatchObject({ slot: 1, epoch: 3 });
    expect(await releaseRunnerSlot(t.db, held(first))).toEqual({ released: false });
  });

  test('whose lease has ended cannot be prolonged or confirmed, and the next attempt gets it', async () => {
    const key = 'ended';
    const dead = await slots().reserveRunnerSlot({ key, owner: 'dead' });
    await endHolds(key);
    await expect(renewRunnerSlot(t.db, held(dead))).rejects.toMatchObject({ code: 'reservation_lost' });
    await expect(slots().confirmRunnerSlot(held(dead))).rejects.toMatchObject({ code: 'reservation_lost' });
    expect(await slots().reserveRunnerSlot({ key, owner: 'next' })).toMatchObject({ slot: 1, epoch: dead.epoch + 1 });
    expect(await releaseRunnerSlot(t.db, held(dead))).toEqual({ released: false });
  });

  test('is one of as many as the limit says, however many ask at once, and live runs of the profile use places up', async () => {
    const key = 'crowd';
    const backendProfile = 'crowded';
    await aRun(t.db, { backendProfile }); // waits: uses nothing up
    const { run } = await aClaimedRun(t.db, { backendProfile });
    const ask = (owner: string, over = {}) =>
      slots().reserveRunnerSlot({ key, owner, limit: 4, backendProfile, tenantId: TENANT, ...over });

    const asked = await Promise.allSettled(Array.from({ length: 8 }, (_, i) => ask(`o${i}`)));
    const got = asked.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    expect(got.map(({ slot }) => slot).sort()).toEqual([1, 2, 3]);
    for (const each of asked)
      if (each.status === 'rejected') expect(each.reason).toMatchObject({ code: 'capacity_reached', data: { live: 1, reserved: 3 } });

    expect(await ask('for-the-run-itself', { runId: run.id })).toMatchObject({ slot: 4 });
    expect(await ask('elsewhere', { tenantId: 'other', limit: 1 })).toMatchObject({ slot: 1 });
  });

  test('does not take input of the wrong shape', async () => {
    for (const wrong of [{ limit: 0 }, { limit: 1.5 }, { leaseMs: 1 }, { owner: '' }, { key: '' }, { owner: undefined as never }])
      await expect(slots().reserveRunnerSlot({ key: 'k', owner: 'o', ...wrong })).rejects.toMatchObject({ code: 'invalid_request' });
    expect(await rowsOf('k')).toEqual([]);
  });
});

const held = ({ key, slot, owner, epoch }: { key: string; slot: number; owner: string; epoch: number }) => ({ key, slot, owner, epoch });

describe('making a runner in a place', () => {
  test('holds no connection, keeps the place while it takes longer than the lease, and confirms with what it settles', async () => {
    const key = 'slow';
    const realSleep = timers.setTimeout;
    const soon = jest.spyOn(timers, 'setTimeout').mockImplementation((ms, ...rest) => realSleep(ms === 10_000 ? 20 : ms, ...rest)); // renewals
    const endsAt = async () =>
      Number(
        (await t.db.pool.query('SELECT extract(epoch FROM expires_at) AS at FROM runplane.reservations WHERE key::json ->> 1 = $1', [key]))
          .rows[0].at,
      );
    const made = await withRunnerSlot(
      t.db,
      {
        key,
        leaseMs: 30_000,
        settle: async (tx, value) => {
          expect(value).toBe('runner');
          await expect(reserveRunnerSlot(tx, { key, owner: 'rival' })).rejects.toMatchObject({ code: 'capacity_reached' });
        },
      },
      async ({ signal }) => {
        for (let renewals = 1, seen = await endsAt(); renewals <= 3; renewals += 1) {
          await eventually(async () => (await endsAt()) > seen);
          seen = await endsAt();
          expect(t.db.pool.totalCount - t.db.pool.idleCount).toBeLessThanOrEqual(1);
        }
        expect(signal.aborted).toBe(false);
        return 'runner';
      },
    );
    soon.mockRestore();
    expect(made).toBe('runner');
    expect(await rowsOf(key)).toEqual([{ slot: 1, owner: null }]);
  });

  test('gives the place back when it fails, and says when the place was lost meanwhile', async () => {
    const key = 'fails';
    await expect(withRunnerSlot(t.db, { key }, () => Promise.reject(new Error('no node')))).rejects.toThrow('no node');
    expect(await rowsOf(key)).toEqual([{ slot: 1, owner: null }]);

    let reason: unknown;
    const lost = withRunnerSlot(t.db, { key, leaseMs: 1_000 }, async ({ signal }) => {
      await endHolds(key);
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      reason = signal.reason;
    });
    await expect(lost).rejects.toMatchObject({ code: 'reservation_lost' });
    expect(reason).toMatchObject({ code: 'reservation_lost' });
  });

  test('that dies with its process leaves a place that ends, and a sweeper that removes it', async () => {
    const key = 'crashed';
    await slots().reserveRunnerSlot({ key, owner: 'killed' });
    await expect(slots().reserveRunnerSlot({ key, owner: 'next' })).rejects.toMatchObject({ code: 'capacity_reached' });
    await endHolds(key);
    expect((await pruneReservationsOnce(t.db)).changed).toBeGreaterThanOrEqual(1);
    expect(await rowsOf(key)).toEqual([]);
    expect(await slots().reserveRunnerSlot({ key, owner: 'next' })).toMatchObject({ slot: 1 });
  });
});

test('a retention’s place stays when its lease ends, until somebody resumes it', async () => {
  const of = { kind: 'retention' as const, tenantId: TENANT, key: 'run-1' };
  const first = await inTransaction(t.db, (tx) => reserve(tx, { ...of, owner: 'p1', data: { act: 'fence', runId: 'run-1' } }));
  expect(first).toMatchObject({ kind: 'reserved', reservation: { slot: 1, epoch: 1 } });
  expect(await inTransaction(t.db, (tx) => reserve(tx, { ...of, owner: 'p2' }))).toMatchObject({
    kind: 'refused',
    holder: 'p1',
    reserved: 1,
  });
  await endHolds('run-1');
  await pruneReservationsOnce(t.db);
  const ended = (act: string) => listEndedReservations(t.db.sql, { kind: 'retention', act, limit: 10 });
  expect(await ended('fence')).toEqual([{ ...of, owner: 'p1', epoch: 1, data: { act: 'fence', runId: 'run-1' } }]);
  expect(await ended('remove')).toEqual([]);

  const resumed = await inTransaction(t.db, (tx) => reserve(tx, { ...of, owner: 'p2' }));
  if (resumed.kind !== 'reserved') throw new Error('not resumed');
  expect(resumed.reservation.epoch).toBe(2);
  const late: Reservation = { ...resumed.reservation, owner: 'p1', epoch: 1 };
  await expect(renewReservation(t.db, late)).rejects.toMatchObject({ code: 'reservation_lost' });
  await inTransaction(t.db, (tx) => confirmReservation(tx, resumed.reservation));
  expect(await releaseReservation(t.db, resumed.reservation)).toEqual({ released: false });
  expect(await ended('fence')).toEqual([]);
  await confirmRunnerSlotIsGone();
});

const confirmRunnerSlotIsGone = () =>
  expect(inTransaction(t.db, (tx) => confirmRunnerSlot(tx, { key: 'none', slot: 1, owner: 'o', epoch: 1 }))).rejects.toMatchObject({
    code: 'reservation_lost',
  });
