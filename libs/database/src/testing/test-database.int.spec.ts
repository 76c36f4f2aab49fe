import { assertNothingOpen, backendPid, openClient, useDatabase, waitUntilBlocked } from './index';

describe('the database of a spec file', () => {
  const database = useDatabase({ settings: { timezone: 'America/New_York' } });

  test('is migrated, and has the settings that the file asked for', async () => {
    const client = await openClient(database.url);
    const { rows } = await client.query(
      `SELECT to_regclass('runplane.tenants')::text AS tenants, setting FROM pg_db_role_setting, unnest(setconfig) AS setting
        WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())`,
    );
    await client.end();

    expect(rows).toEqual([{ tenants: 'runplane.tenants', setting: 'TimeZone=America/New_York' }]);
  });

  test('tells when the other side of a race waits for a lock', async () => {
    const holder = await openClient(database.url);
    const waiter = await openClient(database.url);
    const pid = await backendPid(waiter);

    await holder.query('BEGIN; SELECT pg_advisory_xact_lock(1)');
    const waits = waiter.query('SELECT pg_advisory_xact_lock(1)');

    expect(await waitUntilBlocked(database.db, { pid })).toEqual([pid]);
    await holder.query('COMMIT');
    await waits;
    await Promise.all([holder.end(), waiter.end()]);
  });

  test('notices a transaction that a test leaves open', async () => {
    const observer = await openClient(database.url);
    const forgetful = await openClient(database.url);
    await forgetful.query('BEGIN');

    await expect(assertNothingOpen(observer, 100)).rejects.toThrow(/left open.*idle in transaction/s);

    await forgetful.end();
    await assertNothingOpen(observer);
    await observer.end();
  });
});
