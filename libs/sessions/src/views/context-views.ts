import {
  contentHash,
  defineCursor,
  ListContextHistory,
  ListPage,
  NoteNotFound,
  NotePath,
  PAGE_BYTES_MAX,
  parseInput,
  SearchContextHistory,
  type ContextItemList,
  type ContextMatchList,
  type ContextNote,
  type ContextNoteList,
  type SessionContextWindowList,
} from '@runplane/contracts';
import { executorOf, sql, type At } from '@runplane/database';
import { z } from 'zod';
import { cutPage } from '../page.sql';
import { legacyWindow, storedWindow, storedWindows, windowOf } from '../projections/context-windows';
import type { HeadRow } from '../session-head.sql';
import type { SessionKey } from '../session.sql';
import { findNote, listItemRows, listNoteRows, listWindowRows, type ItemRow } from './context-view.sql';
import { decodePlace, encodePlace, placeText } from './page';
import { requireOpenLog } from './require-open-log';
import { searchSql } from './search.sql';

// Reads of a session's context. Cursors are bound to the life of its id. All of them: SessionNotFound, SessionDeleted, InvalidCursor, InvalidRequest; no lock, nothing is written.

/** Of contents that one search looks at. */
const SEARCH_BYTES_MAX = 16 * 1024 * 1024;

const sequence = z.int();
const windowPlace = defineCursor('context-windows', z.strictObject({ startedSequence: sequence, eventSequence: sequence }));

/** Context windows, the current one first. */
export async function listContextWindows(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & z.input<typeof ListPage>,
): Promise<SessionContextWindowList> {
  const { cursor, limit } = parseInput(ListPage, input);
  const key = { tenantId, sessionId };
  const on = executorOf(at);
  const { windowId: current, incarnation } = await requireOpenLog(on, key);
  const filterHash = contentHash({ ...key, incarnation }).hash;
  const after = cursor === undefined ? undefined : windowPlace.decode(cursor, filterHash);
  const { shown, last } = cutPage(await listWindowRows(on, key, { after, limit: limit + 1 }), limit);
  return {
    windows: shown.map(({ eventSequence: _, ...window }) => ({ ...window, isCurrent: window.windowId === current })),
    cursor:
      last === undefined
        ? null
        : windowPlace.encode({ startedSequence: last.startedSequence, eventSequence: last.eventSequence }, filterHash),
  };
}

/** One note with its content. Errors besides: NoteNotFound. */
export async function getContextNote(at: At, { tenantId, sessionId, path }: SessionKey & { path: string }): Promise<ContextNote> {
  const key = { tenantId, sessionId };
  const named = parseInput(NotePath, path);
  const on = executorOf(at);
  await requireOpenLog(on, key);
  const note = await findNote(on, key, named);
  if (note === undefined) throw new NoteNotFound(`Session ${sessionId} has no note at this path.`, { sessionId });
  return note;
}

const notePlace = defineCursor('context-notes', z.strictObject({ path: placeText }));

/** Notes by path, without their content. */
export async function listContextNotes(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & z.input<typeof ListPage>,
): Promise<ContextNoteList> {
  const { cursor, limit } = parseInput(ListPage, input);
  const key = { tenantId, sessionId };
  const on = executorOf(at);
  const { incarnation } = await requireOpenLog(on, key);
  const filterHash = contentHash({ ...key, incarnation }).hash;
  const after = cursor === undefined ? undefined : decodePlace(notePlace.decode(cursor, filterHash).path);
  const { shown, last } = cutPage(await listNoteRows(on, key, { after, limit: limit + 1 }), limit);
  return {
    notes: shown,
    cursor: last === undefined ? null : notePlace.encode({ path: encodePlace(last.path) }, filterHash),
  };
}

const itemPlace = defineCursor('context-items', z.strictObject({ sequence }));
/** With the window as it is stored: pages go on in the window that they have begun in, whichever is current by then. */
const windowItemPlace = defineCursor('context-window-items', z.strictObject({ sequence, window: z.string().regex(/^[^\0]*$/) }));

/**
 * What stands in a window (the one that is current at the first page unless told otherwise), oldest first. A page may be short and have a cursor: of long items it has fewer,
 * and with a role it looks at 10,000 at most.
 */
export async function listContextHistory(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & ListContextHistory,
): Promise<ContextItemList> {
  const { cursor, limit, windowId, role } = parseInput(ListContextHistory, input);
  const key = { tenantId, sessionId };
  const on = executorOf(at);
  const head = await requireOpenLog(on, key);
  const filterHash = contentHash({ ...key, incarnation: head.incarnation, windowId: windowId ?? null, role: role ?? null }).hash;
  const after = cursor === undefined ? undefined : windowItemPlace.decode(cursor, filterHash);
  const window = after === undefined ? (windowId ?? head.windowId ?? legacyWindow(sessionId)) : windowOf(after.window, head);
  const { items, scannedTo } = await listItemRows(on, key, {
    windowIds: storedWindows(window, head),
    role,
    order: 'oldest-first',
    after: after?.sequence,
    limit: limit + 1,
    bytesMax: PAGE_BYTES_MAX,
    matches: undefined,
    shown: sql`p.content`,
  });
  const { shown, last } = cutPage(items, limit);
  const next = last?.sequence ?? scannedTo;
  return {
    items: shown.map(({ shown: content, ...item }) => ({ ...identified(item, head), content })),
    cursor: next === undefined ? null : windowItemPlace.encode({ sequence: next, window: storedWindow(window, head) }, filterHash),
  };
}

/**
 * Items of a session's history that contain a text (`literal`: as it is, case and all; the empty one is everywhere) or words (`words`: PostgreSQL's
 * web search, without stemming), newest first, in all windows or one. A page may be short and have a cursor: a call looks at 10,000 items and 16 MiB
 * at most, of one item at its first 131,072 characters for words.
 *
 * Source: the original's search_context_history, which returned sequences.
 */
export async function searchContextHistory(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & SearchContextHistory,
): Promise<ContextMatchList> {
  const { cursor, limit, query, mode, windowId, role } = parseInput(SearchContextHistory, input);
  const key = { tenantId, sessionId };
  const on = executorOf(at);
  const head = await requireOpenLog(on, key);
  const filterHash = contentHash({
    ...key,
    incarnation: head.incarnation,
    query,
    mode,
    windowId: windowId ?? null,
    role: role ?? null,
  }).hash;
  const after = cursor === undefined ? undefined : itemPlace.decode(cursor, filterHash).sequence;
  const windowIds = windowId === undefined ? undefined : storedWindows(windowId, head);
  const scan = { windowIds, role, order: 'newest-first', after, limit: limit + 1, bytesMax: SEARCH_BYTES_MAX } as const;
  const { items, scannedTo } = await listItemRows(on, key, { ...scan, ...searchSql(mode, query) });
  const { shown, last } = cutPage(items, limit);
  const next = last?.sequence ?? scannedTo;
  return {
    matches: shown.map(({ shown: excerpt, ...item }) => ({ ...identified(item, head), excerpt })),
    cursor: next === undefined ? null : itemPlace.encode({ sequence: next }, filterHash),
  };
}

type Item = Omit<ItemRow, 'shown'>;
const identified = (item: Item, head: HeadRow): Item & { itemId: string } => ({
  itemId: `item-${item.sequence}`,
  ...item,
  windowId: windowOf(item.windowId, head),
});
