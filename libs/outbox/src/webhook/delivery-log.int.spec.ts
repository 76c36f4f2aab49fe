import { encodeCursor } from '@runplane/contracts';
import { sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { failed, refused, type PublishRecord } from '../publisher';
import { SENT } from '../publish-outcomes';
import { insertSink } from '../relay/sink.sql';
import type { Delivery } from './delivery';
import { listWebhookDeliveries, pruneWebhookDeliveriesOnce, webhookDeliveryLog } from './delivery-log';

const t = useDatabase();

const delivery = (sequence: number, fields: Partial<Delivery> = {}): Delivery => ({
  record: {
    place: { tx: 1n, position: 1n },
    topic: 'hook',
    partitionKey: 'acme/s1',
    stream: 'session',
    streamId: 's1',
    sequence,
    eventId: `e${sequence}`,
    type: 'user/message',
    tenantId: 'acme',
    data: '{}',
  } as unknown as PublishRecord,
  outcome: SENT,
  status: 200,
  durationMs: 7,
  ...fields,
});

beforeAll(() => insertSink(t.db.sql, { name: 'hook', kind: 'webhook', start: { tx: 0n, position: 0n } }));

test('tells what was tried, the newest first, page by page and by outcome and key', async () => {
  const errors: unknown[] = [];
  const log = webhookDeliveryLog(t.db, { sink: 'hook', onError: (error) => errors.push(error) });
  await log([delivery(1), delivery(2, { outcome: refused('rejected', 'HTTP 422: no'), status: 422 })]);
  await log([delivery(3, { outcome: failed('timed_out', 'no answer'), status: null })]);
  const first = await listWebhookDeliveries(t.db, { sink: 'hook', limit: 2 });
  expect(first.deliveries).toHaveLength(2);
  const second = await listWebhookDeliveries(t.db, { sink: 'hook', limit: 2, cursor: first.cursor ?? '' });
  expect(second.cursor).toBeNull();
  const all = [...first.deliveries, ...second.deliveries];
  expect(new Set(all.map(({ sequence }) => sequence))).toEqual(new Set([1, 2, 3]));
  expect(all[0]).toMatchObject({ sequence: 3, outcome: 'failed', httpStatus: null, error: 'no answer', key: 'acme/s1', durationMs: 7 });
  const refusals = await listWebhookDeliveries(t.db, { sink: 'hook', outcome: 'refused', key: 'acme/s1' });
  expect(refusals.deliveries).toMatchObject([{ sequence: 2, httpStatus: 422, error: 'HTTP 422: no' }]);
  expect((await listWebhookDeliveries(t.db, { sink: 'hook', key: 'acme/other' })).deliveries).toEqual([]);
  await expect(listWebhookDeliveries(t.db, { sink: 'hook', outcome: 'sent', cursor: first.cursor ?? '' })).rejects.toMatchObject({
    code: 'invalid_cursor',
  });
  for (const parts of [
    { triedAt: '0000-01-01T00:00:00.000Z', id: 'x' },
    { triedAt: '2026-01-01T00:00:00.000Z', id: 'x\0' },
  ]) {
    const cursor = encodeCursor('webhook-deliveries', parts, JSON.stringify(['hook', null, null]));
    await expect(listWebhookDeliveries(t.db, { sink: 'hook', cursor })).rejects.toMatchObject({ code: 'invalid_cursor' });
  }
  await expect(listWebhookDeliveries(t.db, { sink: 'none' })).rejects.toMatchObject({ code: 'sink_not_found' });
  expect(errors).toEqual([]);
});

test('what few tries fit is found without a look at those of a week', async () => {
  await t.db.pool
    .query(`INSERT INTO runplane.webhook_deliveries (id, sink, tenant_id, partition_key, stream, stream_id, sequence, type, event_id, outcome, duration_ms)
    SELECT 'd' || n, 'hook', 'globex', 'globex/' || n % 10, 'session', 's', n, 'x', 'e', 'sent', 1 FROM generate_series(1, 3000) n`);
  await t.db.pool.query('ANALYZE runplane.webhook_deliveries');
  const readBy = async (filter: { outcome?: 'refused'; key?: string }) => {
    let plan = '';
    await listWebhookDeliveries(
      {
        ...t.db,
        sql: {
          query: async (statement) => {
            if (statement.text.includes('webhook_deliveries'))
              plan = JSON.stringify((await t.db.pool.query(`EXPLAIN (FORMAT JSON) ${statement.text}`, [...statement.values])).rows);
            return t.db.sql.query(statement);
          },
        },
      },
      { sink: 'hook', limit: 2, ...filter },
    );
    return /"Index Name":"(\w+)"/.exec(plan)?.[1];
  };
  expect(await readBy({ key: 'acme/s1' })).toBe('webhook_deliveries_sink_partition_key_tried_at_id_idx');
  expect(await readBy({ outcome: 'refused' })).toBe('webhook_deliveries_sink_outcome_tried_at_id_idx');
  expect(await readBy({})).toBe('webhook_deliveries_sink_tried_at_id_idx');
  await t.db.pool.query(`DELETE FROM runplane.webhook_deliveries WHERE tenant_id = 'globex'`);
});

test('what cannot be written is reported, and holds nothing back', async () => {
  const errors: unknown[] = [];
  const log = webhookDeliveryLog(t.db, { sink: 'hook', onError: (error) => errors.push(error) });
  await log([delivery(4, { status: 2 ** 40 })]);
  expect(errors).toHaveLength(1);
});

test('goes after a week, the oldest first and so many at a time', async () => {
  const log = webhookDeliveryLog(t.db, { sink: 'hook', onError: () => undefined });
  await log([5, 6, 7].map((sequence) => delivery(sequence, { durationMs: 99 })));
  await t.db.sql.query(
    sql`UPDATE runplane.webhook_deliveries SET tried_at = runplane.app_now() - sequence * interval '2 days' WHERE duration_ms = 99 RETURNING 1 AS n`,
  );
  expect(await pruneWebhookDeliveriesOnce(t.db, { limit: 2 })).toEqual({ changed: 2 });
  expect(await pruneWebhookDeliveriesOnce(t.db)).toEqual({ changed: 1 });
  expect(await pruneWebhookDeliveriesOnce(t.db)).toEqual({ changed: 0 });
});
