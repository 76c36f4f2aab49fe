import { randomUUID } from 'node:crypto';
import { ensureTenant, openDb, type Db } from '@runplane/database';
import { acquireSessionLease, appendSessionEvents, createSessions, openSessionWriter } from '@runplane/sessions';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { HISTORY_TYPES, turnsOf, type TurnEvent } from './turn-events';

// The library's doors: input checks, the JSON rule, the fence, every guard and view, the outbox, the hints to waiters.

const TENANT = 'bench';

/** In a worker of this process, which holds lease and head: one statement per append. `wrap` makes of the opened handle the one that appends. */
export const doorOfWriters = (wrap: (db: Db) => Db = (db) => db) =>
  door(async (db, sessionId) => {
    const writer = await openSessionWriter(db, { tenantId: TENANT, sessionId });
    return {
      append: (events) => writer.append(events, { expectedSequence: writer.lastSequence + 1 }),
      close: () => writer.close(),
    };
  }, wrap);
export const prepareWriter = doorOfWriters();

/** Each append looks at the head first, as a call that comes by HTTP does. */
export const prepareAppend = door(async (db, sessionId) => {
  const { epoch } = await acquireSessionLease(db, { tenantId: TENANT, sessionId, owner: 'bench', leaseMs: 600_000 });
  let expectedSequence = 0;
  return {
    append: async (events) => {
      const { lastSequence } = await appendSessionEvents(db, { tenantId: TENANT, sessionId, epoch, expectedSequence, events });
      expectedSequence = lastSequence + 1;
    },
    close: () => Promise.resolve(),
  };
});

interface OpenedSession {
  append(events: TurnEvent[]): Promise<unknown>;
  close(): Promise<void>;
}

function door(open: (db: Db, sessionId: string) => Promise<OpenedSession>, wrap: (db: Db) => Db = (db) => db) {
  return async ({ url, admin, callers }: CaseSetting, perCall: number): Promise<AppendCase> => {
    const db = await openDb({
      url,
      applicationName: `bench-session-append-${perCall}`,
      poolMax: Math.max(callers, 2),
      onError: () => undefined,
    });
    await db.hub.start();
    await ensureTenant(db.sql, TENANT);
    const appending = wrap(db);
    const sessionIds = Array.from({ length: callers }, () => `session-${randomUUID()}`);
    const opened = await Promise.all(
      sessionIds.map(async (id) => {
        await createSessions(db).createSession({ tenantId: TENANT, header: { id } });
        return open(appending, id);
      }),
    );
    return {
      callers: opened.map((session) => {
        const take = turnsOf();
        return () => session.append(take(perCall));
      }),
      rowsWritten: () => countRows(admin, COUNT_ROWS, [sessionIds, HISTORY_TYPES]),
      close: async () => {
        await Promise.all(opened.map((session) => session.close()));
        await db.close();
      },
    };
  };
}

const of = (what: string, from: string): string =>
  `SELECT ${what} AS n FROM runplane.${from} WHERE session_id = ANY ($1) AND $2::text[] IS NOT NULL`;
const COUNT_ROWS = {
  session_events: of('count(*)', 'session_events'),
  'outbox_events.events': of('sum(events)', 'outbox_events'),
  'session_heads.last_sequence': of('sum(last_sequence + 1)', 'session_heads'),
  'context_history and events that leave none': of(
    `count(*) + (SELECT count(*) FROM runplane.session_events WHERE session_id = ANY ($1) AND type <> ALL ($2))`,
    'context_history',
  ),
};
