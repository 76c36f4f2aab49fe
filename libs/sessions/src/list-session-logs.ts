import {
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  parseInput,
  type SessionLogList,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import { toSessionLog } from './create-session';
import { listHeads } from './session-head.sql';

const logCursor = defineCursor('session-logs', z.strictObject({ createdAt: cursorTime, sessionId: identifier }));
const Page = z.strictObject({ cursor: z.string().optional(), limit: z.int().min(1).max(LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT) });
export type ListSessionLogs = z.input<typeof Page>;

/**
 * Headers of all sessions and where their logs end, newest first, page by page. Errors: InvalidRequest, InvalidCursor.
 * Source: the originals' list_headers, which had no limit.
 */
export async function listSessionLogs(at: At, { tenantId, ...input }: { tenantId: string } & ListSessionLogs): Promise<SessionLogList> {
  const { cursor, limit } = parseInput(Page, input);
  const filterHash = contentHash({ tenantId }).hash;
  const after = cursor === undefined ? undefined : logCursor.decode(cursor, filterHash);
  const found = await listHeads(executorOf(at), tenantId, after, limit + 1);
  const shown = found.slice(0, limit);
  const last = shown.at(-1);
  return {
    sessions: shown.map(toSessionLog),
    cursor:
      found.length > limit && last !== undefined
        ? logCursor.encode({ createdAt: last.createdAt, sessionId: last.sessionId }, filterHash)
        : null,
  };
}
