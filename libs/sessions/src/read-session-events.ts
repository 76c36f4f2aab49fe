import {
  EVENT_LIST_ROWS_DEFAULT,
  EVENT_LIST_ROWS_MAX,
  OtherIncarnation,
  parseInput,
  ReadSessionEvents,
  type JsonObject,
  type SessionEvent,
  type SessionEventPage,
} from '@runplane/contracts';
import { executorOf, waitFor, type At, type Db, type SqlExecutor, type Wait } from '@runplane/database';
import { requireHead } from './create-session';
import { assertOpen } from './judge-append';
import { sessionNotFound } from './session';
import { readLogPage, sessionStream, toSessionEvent, type LogPage, type LogPlace } from './session-event.sql';
import type { SessionKey } from './session.sql';

/**
 * Events of a session's log, ascending and without a gap: `from` a sequence on, behind one (`after`), or the last ones `before` one; none: from the
 * start. Fewer than `limit` where their data is large: of `before` those next to it. With `incarnation`, that a page has told, only of that life of
 * the id. One statement, no lock.
 * Errors: SessionNotFound, SessionDeleted, OtherIncarnation, InvalidRequest.   Source: the originals' read_from, read_after, read_before.
 */
export async function readSessionEvents(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & ReadSessionEvents,
): Promise<SessionEventPage> {
  const { from, after, before, limit, incarnation } = parseInput(ReadSessionEvents, input);
  const place: LogPlace = before === undefined ? { from: from ?? (after ?? -1) + 1 } : { before };
  const page = await requirePage(executorOf(at), { tenantId, sessionId, incarnation }, place, limit);
  return { events: page.rows.map(toSessionEvent), lastSequence: page.lastSequence, incarnation: page.incarnation };
}

/** The same, waiting for the first event up to `waitMs`. Holds no connection while it waits, writes nothing. */
export function waitForSessionEvents(
  db: Db,
  { waitMs, signal, ...request }: SessionKey & ReadSessionEvents & Wait,
): Promise<SessionEventPage> {
  let { incarnation } = request;
  return waitFor(db, sessionStream(request), { waitMs, signal }, async () => {
    const page = await readSessionEvents(db, { ...request, incarnation });
    incarnation = page.incarnation; // the life that was found is the one that is waited for
    return { value: page, done: page.events.length > 0 || request.before !== undefined };
  });
}

/** A life of a session's id; without an incarnation, whichever is there. */
export interface SessionLife extends SessionKey {
  readonly incarnation?: string | undefined;
}

async function requirePage(
  on: SqlExecutor,
  { tenantId, sessionId, incarnation }: SessionLife,
  place: LogPlace,
  limit: number,
): Promise<LogPage> {
  const page = await readLogPage(on, { tenantId, sessionId }, place, limit);
  if (page === undefined) throw sessionNotFound(sessionId);
  assertOpen({ sessionId, ...page });
  assertSameLife({ sessionId, incarnation }, page.incarnation);
  return page;
}

/** Errors: OtherIncarnation. */
export function assertSameLife({ sessionId, incarnation }: Pick<SessionLife, 'sessionId' | 'incarnation'>, found: string): void {
  if (incarnation === undefined || incarnation === found) return;
  throw new OtherIncarnation(`Session ${sessionId} was deleted and made again: read it from its start.`, { sessionId, incarnation: found });
}

export interface LoadedSession {
  readonly header: JsonObject;
  /** Of the log when it was loaded; −1: it is empty. */
  readonly lastSequence: number;
  /** All events up to there, in order, page by page while they are asked for. Errors: a plain Error where one is missing. */
  readonly events: AsyncIterable<SessionEvent>;
}

/**
 * The whole of a session: header and all events, however many; no more than a page of them is held. That every sequence is there, once and in order,
 * is checked while they are read.
 * Errors: SessionNotFound, SessionDeleted.   Source: the originals' load and inspect, which held all of it.
 */
export async function loadSession(at: At, key: SessionKey): Promise<LoadedSession> {
  const on = executorOf(at);
  const head = await requireHead(on, key);
  assertOpen(head);
  return {
    header: head.header,
    lastSequence: head.lastSequence,
    events: {
      async *[Symbol.asyncIterator]() {
        for await (const rows of pagesOf(on, { ...key, incarnation: head.incarnation }, 0, head.lastSequence))
          yield* rows.map(toSessionEvent);
      },
    },
  };
}

/**
 * A session as lines of JSON, each with its line break: the header, marked with the type `session`, then one line per event, its data verbatim, and
 * of imported events the very line that came. Streamed and checked like loadSession. Errors: SessionNotFound, SessionDeleted.
 * Source: the originals' read_raw.
 */
export async function* readSessionLines(at: At, key: SessionKey): AsyncGenerator<string> {
  const on = executorOf(at);
  const head = await requireHead(on, key);
  assertOpen(head);
  yield `{"type":"session",${JSON.stringify(head.header).slice(1)}\n`;
  for await (const rows of pagesOf(on, { ...key, incarnation: head.incarnation }, 0, head.lastSequence))
    for (const row of rows) yield `${row.line ?? lineOf(row)}\n`;
}

/** An event's wire form as text, around its data as it is stored. */
export function lineOf({ sequence, type, time, turnId, stepId, dataText, eventId }: LogPage['rows'][number]): string {
  const text = (value: string | null): string => JSON.stringify(value);
  return `{"sequence":${sequence},"type":${text(type)},"time":${text(time)},"turnId":${text(turnId)},"stepId":${text(stepId)},"data":${dataText},"eventId":${text(eventId)}}`;
}

/** Pages of a log from a sequence through another, checked to be without gap or repeat. Errors: as loadSession. */
export async function* pagesOf(on: SqlExecutor, key: SessionLife, from: number, through: number): AsyncGenerator<LogPage['rows']> {
  let next = from;
  while (next <= through) {
    const { rows } = await requirePage(on, key, { from: next }, Math.min(EVENT_LIST_ROWS_MAX, through - next + 1));
    for (const row of rows) {
      if (row.sequence !== next) throw brokenLog(key, next, row.sequence);
      next += 1;
    }
    if (rows.length === 0) throw brokenLog(key, next, null);
    yield rows;
  }
}

const brokenLog = ({ sessionId }: SessionKey, expected: number, found: number | null): Error =>
  new Error(`the log of session ${sessionId} has no event ${expected}${found === null ? '' : `, but ${found}`} (LOG-1)`);

/** How long a live stream waits for a hint before it looks by itself; the hub's safety poll is what normally wakes it. */
const LOOK_EVERY_MS = 60_000;

/**
 * A session's log, live, from behind a sequence on, page by page. A log has no end: it goes on until the signal aborts or the hub closes. Each
 * reader has its own place; nothing is held while it waits. Errors: SessionNotFound, SessionDeleted (also when it is deleted meanwhile),
 * OtherIncarnation (also when it was deleted and made again meanwhile).
 */
export async function* streamSessionEvents(
  db: Db,
  { tenantId, sessionId, incarnation, after, signal }: SessionLife & { after: number; signal: AbortSignal },
): AsyncGenerator<readonly SessionEvent[]> {
  const key = { tenantId, sessionId };
  const subscription = db.hub.subscribe(sessionStream(key));
  let seen = after;
  let life = incarnation;
  try {
    while (!signal.aborted) {
      const page = await readSessionEvents(db, { ...key, incarnation: life, after: seen, limit: EVENT_LIST_ROWS_DEFAULT });
      const { events, lastSequence } = page;
      life = page.incarnation;
      if (events.length > 0) yield events;
      seen = events.at(-1)?.sequence ?? seen;
      if (events.length > 0 && seen < lastSequence) continue; // cut by number or by size
      const woken = await subscription.next({ timeoutMs: LOOK_EVERY_MS, signal });
      if (woken === 'closed' || woken === 'aborted') return;
    }
  } finally {
    subscription.close();
  }
}
