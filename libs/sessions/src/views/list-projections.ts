import {
  contentHash,
  defineCursor,
  identifier,
  ListPage,
  parseInput,
  ProjectionKey,
  type ProjectedValue,
  type ProjectedValueList,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import { cutPage } from '../page.sql';
import { channelProjection } from '../projections/channel';
import type { SessionKey } from '../session.sql';
import { requireOpenLog } from './require-open-log';
import { listChannelSessions, listChannelStates, listViewsOfKey, listViewsOfSession, type ChannelRow } from './session-view.sql';

const CHANNEL_KEY = 'channelState';
const place = defineCursor('projections', z.strictObject({ sessionId: identifier }));

/**
 * The values of one projection over all sessions of a tenant, by session id: `subagentIdentity`, `channelState`, or one that a team registers.
 *
 * Returns   pages. `channelState` is made on read of the newest 200 rows of each of its parts, and of no more than a megabyte; deliveries that have
 *           ended, and messages, are kept for a time only. A page of large values, or without a deleted session, may be short and have a cursor.
 * Errors    InvalidCursor, InvalidRequest.   Reads only.   Source: the original's list_projections, which had no limit.
 */
export async function listProjections(
  at: At,
  { tenantId, key: given, ...input }: { tenantId: string; key: string } & z.input<typeof ListPage>,
): Promise<ProjectedValueList> {
  const on = executorOf(at);
  const { cursor, limit } = parseInput(ListPage, input);
  const key = parseInput(ProjectionKey, given);
  const filterHash = contentHash({ tenantId, key }).hash;
  const after = cursor === undefined ? undefined : place.decode(cursor, filterHash).sessionId;
  if (key === CHANNEL_KEY) {
    const sessionIds = await listChannelSessions(on, { tenantId, after, limit });
    const { shown, last } = cutPage(await listChannelStates(on, { tenantId, sessionIds }), limit);
    const next = last?.sessionId ?? (sessionIds.length < limit ? undefined : sessionIds.at(-1));
    return { projections: shown.map(toChannelState), cursor: cursorBehind(next) };
  }
  const { shown, last } = cutPage(await listViewsOfKey(on, { tenantId, key, after, limit: limit + 1 }), limit);
  return { projections: shown, cursor: cursorBehind(last?.sessionId) };

  function cursorBehind(sessionId: string | undefined): string | null {
    return sessionId === undefined ? null : place.encode({ sessionId }, filterHash);
  }
}

const toChannelState = (row: Omit<ChannelRow, 'found'>): ProjectedValue => ({
  ...row,
  key: CHANNEL_KEY,
  version: channelProjection.version,
  staleReason: null,
});

/**
 * All values of projections for one session, by key. Errors: SessionNotFound, SessionDeleted. Reads only.
 */
export async function listSessionProjections(at: At, key: SessionKey): Promise<ProjectedValueList> {
  const on = executorOf(at);
  await requireOpenLog(on, key);
  const views = await listViewsOfSession(on, key);
  const channels = cutPage(await listChannelStates(on, { tenantId: key.tenantId, sessionIds: [key.sessionId] }), 1);
  return { projections: [...channels.shown.map(toChannelState), ...views], cursor: null };
}
