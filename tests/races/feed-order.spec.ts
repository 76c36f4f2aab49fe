import { joinTransaction } from '@runplane/database';
import { openClient, waitUntilBlocked } from '@runplane/database/testing';
import { admitTurn, appendRunEvents, finishRun } from '@runplane/runs';
import { aClaimedRun, aClaimedTurn, endLease, message, newTurn, TENANT } from '@runplane/runs/testing';
import { ending, hold, useRaces } from '../support/races';

// FEED-1: the order of a stream, and of the runs of a session, is that of their locks, not that of the transactions' numbers.

const t = useRaces();
const completed = { terminalStatus: 'completed' } as const;
const keyOf = (run: { id: string }) => ({ tenantId: TENANT, runId: run.id });
const turn = (sessionId: string, idempotencyKey: string) => ({ tenantId: TENANT, sessionId, idempotencyKey, turn: newTurn() });

/** The runs of the events that match, in the feed's order. */
async function placesOf(where: string, column = 'run_id'): Promise<string[]> {
  const { rows } = await t.db.pool.query(
    `SELECT ${column}::text AS place FROM runplane.outbox_events WHERE ${where} ORDER BY tx, position`,
  );
  return rows.map((row: { place: string }) => row.place);
}

test('an append in an old transaction stands behind what was appended before it', async () => {
  const { run, epoch } = await aClaimedRun(t.db);
  const theirs = await openClient(t.url);
  await theirs.query('BEGIN; SELECT pg_current_xact_id()'); // as a team's own write would do
  await appendRunEvents(t.db, { ...keyOf(run), epoch, events: [message('young')] });
  const { tx } = await joinTransaction(t.db, theirs);
  await appendRunEvents(tx, { ...keyOf(run), epoch, events: [message('old')] });
  await theirs.query('COMMIT');
  await theirs.end();
  expect(await placesOf(`stream_id = '${run.id}'`, 'sequence')).toEqual(['1', '2', '3', '4']);
});

test('a takeover in an old transaction stands behind the turn that it ends', async () => {
  const old = await aClaimedTurn(t.db, 's-old');
  await endLease(t.db, old.run.id);
  const theirs = await openClient(t.url);
  await theirs.query('BEGIN; SELECT pg_current_xact_id()');
  await appendRunEvents(t.db, { ...keyOf(old.run), epoch: old.epoch, events: [message('young')] });
  const { tx } = await joinTransaction(t.db, theirs);
  const next = await admitTurn(tx, turn('s-old', 'k2'));
  await theirs.query('COMMIT');
  await theirs.end();
  const order = await placesOf(`session_id = 's-old'`);
  expect(order.lastIndexOf(old.run.id)).toBeLessThan(order.indexOf(next.run.id));
});

test('a run whose transaction is older than the end of the run before stands behind it in the feed', async () => {
  // A run that does not hold its session: it has no turn.
  const before = await aClaimedRun(t.db, { sessionRef: { sessionId: 's-feed' } });
  const theirs = await openClient(t.url);
  await theirs.query('BEGIN; SELECT pg_current_xact_id()'); // as a team's own write would do

  const finish = await hold(t.db, (tx) => finishRun(tx, { ...keyOf(before.run), epoch: before.epoch, outcome: completed }));
  const { tx } = await joinTransaction(t.db, theirs);
  const after = ending(admitTurn(tx, turn('s-feed', 'k')));
  await waitUntilBlocked(t.db, 1);
  await finish.commit();
  const admitted = await after;
  await theirs.query('COMMIT');
  await theirs.end();

  expect(admitted).toMatchObject({ value: { disposition: 'created' } });
  const order = await placesOf(`session_id = 's-feed'`);
  expect(order.lastIndexOf(before.run.id)).toBeLessThan(order.indexOf('value' in admitted ? admitted.value.run.id : ''));
});
