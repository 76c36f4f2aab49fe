import { ensureTenant, inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { claimDispatchIntents, retryDispatchIntent } from './dispatch-intents';
import { getDispatchStatus } from './dispatch-status';
import { aTurn, makeTenants, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db));

test('the status of dispatch counts waiting, launching and failing intents, of one tenant or of all', async () => {
  const empty = { backlogCount: 0, isExact: true, dueCount: 0, oldestPendingAt: null, maxAttemptCount: 0, firstError: null };
  expect(await getDispatchStatus(t.db, { tenantId: TENANT })).toMatchObject(empty);

  for (let turn = 0; turn < 3; turn += 1) await aTurn(t.db, undefined, { dispatch: {} });
  const [first] = await claimDispatchIntents(t.db, { owner: 'd', limit: 2 });
  if (first === undefined) throw new Error('nothing was claimed');
  const claim = { ...first, intentId: first.id, owner: 'd' };
  await inTransaction(t.db, (tx) => retryDispatchIntent(tx, claim, { error: 'no room', delayMs: 60_000 }));

  const status = {
    queue: 'runner-dispatch',
    backlogCount: 3,
    isExact: true,
    dueCount: 1,
    dispatchingCount: 1,
    retryingCount: 1,
    oldestPendingAt: expect.any(String),
    oldestPendingForMs: expect.any(Number),
    maxAttemptCount: 1,
    firstError: 'no room',
    valuesPrinted: false,
  };
  expect(await getDispatchStatus(t.db, { tenantId: TENANT })).toEqual(status);
  expect(await getDispatchStatus(t.db)).toEqual(status);

  await ensureTenant(t.db.sql, 'other');
  expect(await getDispatchStatus(t.db, { tenantId: 'other' })).toMatchObject(empty);
});
