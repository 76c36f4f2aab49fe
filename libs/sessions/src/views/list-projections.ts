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
import { executorOf, type At, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import { channelProjection } from '../projections/channel';
import type { SessionKey } from '../session.sql';
import { cutPage } from './page';
import { requireOpenLog } from './require-open-log';
import { listChannelSessions, listChannelStates, listViewsOfKey, listViewsOfSession, type ChannelRow } from './session-view.sql';

const CHANNEL_KEY = 'channelState';
const place = defineCursor('projections', z.strictObject({ sessionId: identifier }));

/**
 * The values of one projection over all sessions of a tenant, by session id: `subagentIdentity`, `channelState`, or one that a team registers.
 *
 * Returns   pages; one may be short, or empty, and have a cursor, where only few sessions have a channel: a call looks at 10,000. `channelState` is
 *           made on read of the newest 200 rows of each of its parts; deliveries that have ended and messages are kept for a time only.
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
  const { found, scannedTo } =
    key === CHANNEL_KEY
      ? await channelPage(on, { tenantId, after, limit: limit + 1 })
      : { found: await listViewsOfKey(on, { tenantId, key, after, limit: limit + 1 }), scannedTo: undefined };
  const { shown, last } = cutPage(found, limit);
  const next = last?.sessionId ?? scannedTo;
  return { projections: [...shown], cursor: next === undefined ? null : place.encode({ sessionId: next }, filterHash) };
}

async function channelPage(
  on: SqlExecutor,
  page: { tenantId: string; after: string | undefined; limit: number },
): Promise<{ found: ProjectedValue[]; scannedTo: string | undefined }> {
  const { sessionIds, scannedTo } = await listChannelSessions(on, page);
  const states = await listChannelStates(on, { tenantId: page.tenantId, sessionIds });
  return { found: states.map(toChannelState), scannedTo };
}

const toChannelState = (row: ChannelRow): ProjectedValue => ({
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
  const channels = await listChannelStates(on, { tenantId: key.tenantId, sessionIds: [key.sessionId] });
  return { projections: [...channels.map(toChannelState), ...views], cursor: null };
}
