import {
  cursorTime,
  defineCursor,
  identifier,
  LIST_ROWS_DEFAULT,
  WEBHOOK_DELIVERIES_KEPT_MS,
  type DELIVERY_OUTCOMES,
  type WebhookDeliveryPage,
} from '@runplane/contracts';
import { executorOf, type At, type Db } from '@runplane/database';
import { z } from 'zod';
import { requireSink } from '../relay/require-sink';
import type { Delivery } from './delivery';
import { deleteDeliveries, insertDeliveries, listDeliveries } from './delivery.sql';

/**
 * Writes down what a webhook was told and answered, for WebhookHooks: one statement per call of the publisher. What cannot be written is reported, and
 * holds no event back.
 */
export function webhookDeliveryLog(
  db: Db,
  { sink, onError }: { sink: string; onError: (error: unknown) => void },
): (deliveries: readonly Delivery[]) => Promise<void> {
  return (deliveries) => insertDeliveries(db.sql, sink, deliveries).catch(onError);
}

export interface ListWebhookDeliveries {
  readonly sink: string;
  readonly outcome?: (typeof DELIVERY_OUTCOMES)[number] | undefined;
  /** Of one `<tenant>/<session or run>`. */
  readonly key?: string | undefined;
  readonly cursor?: string | undefined;
  readonly limit?: number | undefined;
}

const pageCursor = defineCursor('webhook-deliveries', z.strictObject({ triedAt: cursorTime, id: identifier }));

/**
 * Tries of a webhook, the newest first: what was posted, what the endpoint said, how long it took. They are kept for a week.
 *
 * Errors    SinkNotFound, InvalidCursor.   Repeat: safe; reads only.
 */
export async function listWebhookDeliveries(
  at: At,
  { sink, outcome, key, cursor, limit = LIST_ROWS_DEFAULT }: ListWebhookDeliveries,
): Promise<WebhookDeliveryPage> {
  const on = executorOf(at);
  await requireSink(on, sink);
  const filter = JSON.stringify([sink, outcome ?? null, key ?? null]);
  const after = cursor === undefined ? null : pageCursor.decode(cursor, filter);
  const found = await listDeliveries(on, { sink, outcome: outcome ?? null, key: key ?? null, after, limit: limit + 1 });
  const deliveries = found.slice(0, limit);
  const last = deliveries.at(-1);
  return {
    deliveries,
    cursor: found.length > limit && last !== undefined ? pageCursor.encode({ triedAt: last.triedAt, id: last.id }, filter) : null,
  };
}

/** Of one pass. */
const ROWS_MAX = 5_000;

/** Removes tries that are over a week old, so many at a time. Repeat: safe, also by several processes. */
export async function pruneWebhookDeliveriesOnce(
  db: Db,
  { olderThanMs = WEBHOOK_DELIVERIES_KEPT_MS, limit = ROWS_MAX }: { olderThanMs?: number | undefined; limit?: number | undefined } = {},
): Promise<{ changed: number }> {
  return { changed: await deleteDeliveries(db.sql, { olderThanMs, limit }) };
}
