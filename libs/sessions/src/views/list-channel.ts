import {
  contentHash,
  defineCursor,
  identifier,
  ListDeliveries,
  ListPage,
  parseInput,
  type ChannelBindingList,
  type ChannelDeliveryList,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import { cutPage } from '../page.sql';
import type { SessionKey } from '../session.sql';
import { listBindingRows, listDeliveryRows } from './channel-view.sql';
import { decodePlace, encodePlace, placeText } from './page';
import { requireOpenLog } from './require-open-log';

const bindingPlace = defineCursor('channel-bindings', z.strictObject({ address: placeText }));

/** Addresses that are bound to a session, with what bound them; a page with much of it is short. Errors: SessionNotFound, SessionDeleted, InvalidCursor. Reads only. */
export async function listChannelBindings(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & z.input<typeof ListPage>,
): Promise<ChannelBindingList> {
  const { cursor, limit } = parseInput(ListPage, input);
  const key = { tenantId, sessionId };
  const on = executorOf(at);
  const { incarnation } = await requireOpenLog(on, key);
  const filterHash = contentHash({ ...key, incarnation }).hash;
  const after = cursor === undefined ? undefined : decodePlace(bindingPlace.decode(cursor, filterHash).address);
  const { shown, last } = cutPage(await listBindingRows(on, key, { after, limit: limit + 1 }), limit);
  return {
    bindings: shown,
    cursor: last === undefined ? null : bindingPlace.encode({ address: encodePlace(last.address) }, filterHash),
  };
}

const deliveryPlace = defineCursor('channel-deliveries', z.strictObject({ deliveryId: identifier }));

/**
 * Messages that go out through a session's channels, by id: with what was queued, how it ended, and why it failed. Ended ones are kept for a time
 * only. A page with a state, or with large messages, may be short and have a cursor. Errors: SessionNotFound, SessionDeleted, InvalidCursor. Reads only.
 */
export async function listChannelDeliveries(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & z.input<typeof ListDeliveries>,
): Promise<ChannelDeliveryList> {
  const { cursor, limit, state } = parseInput(ListDeliveries, input);
  const key = { tenantId, sessionId };
  const on = executorOf(at);
  const { incarnation } = await requireOpenLog(on, key);
  const filterHash = contentHash({ ...key, incarnation, state: state ?? null }).hash;
  const after = cursor === undefined ? undefined : deliveryPlace.decode(cursor, filterHash).deliveryId;
  const { deliveries, scannedTo } = await listDeliveryRows(on, key, { state, after, limit: limit + 1 });
  const { shown, last } = cutPage(deliveries, limit);
  const next = last?.deliveryId ?? scannedTo;
  return { deliveries: shown, cursor: next === undefined ? null : deliveryPlace.encode({ deliveryId: next }, filterHash) };
}
