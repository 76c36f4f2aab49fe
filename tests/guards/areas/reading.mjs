// What readers see: the feed (FEED-1) and lists.
import { MIGRATION, RUNS, eventPages, feed, lists, races } from '../places.mjs';

export const readingGuards = [
  // The feed (FEED-1).
  {
    name: 'nothing is read beyond the horizon',
    file: MIGRATION,
    text: 'SELECT pg_snapshot_xmin(pg_current_snapshot())',
    replacement: 'SELECT pg_snapshot_xmax(pg_current_snapshot())',
    test: feed('is held back by a transaction that may still write below it'),
  },
  {
    name: 'a stream keeps its order in an old transaction',
    file: `${RUNS}/run-event.sql.ts`,
    text: 'last_tx = greatest(last_tx, ${String(floor)}::bigint, ${feedTx})',
    replacement: 'last_tx = greatest(${String(floor)}::bigint, ${feedTx})',
    test: races('feed-order', 'an append in an old transaction stands behind what was appended before it'),
  },
  {
    name: 'a session passes its feed number on',
    file: 'libs/sessions/src/session.sql.ts',
    text: 'if (session !== undefined) tx.feed.raise(session.lastTx);',
    replacement: '',
    test: races('feed-order', 'a run whose transaction is older than the end of the run before'),
  },
  {
    name: 'a run that does not hold its session leaves its feed number there',
    file: `${RUNS}/close-run.ts`,
    text: 'if (!freed) await writeFeedNumber(tx, { tenantId, sessionId });',
    replacement: '',
    test: races('feed-order', 'a run whose transaction is older than the end of the run before'),
  },
  {
    name: 'a cursor of another store is refused',
    file: 'libs/outbox/src/feed-cursor.ts',
    text: 'if (cursor.storeId !== bounds.storeId || cursor.tx > bounds.horizon)',
    replacement: 'if (cursor.tx > bounds.horizon)',
    test: feed('of another store is refused with the place to go on from'),
  },
  {
    name: 'a cursor beyond the horizon is refused',
    file: 'libs/outbox/src/feed-cursor.ts',
    text: 'if (cursor.storeId !== bounds.storeId || cursor.tx > bounds.horizon)',
    replacement: 'if (cursor.storeId !== bounds.storeId)',
    test: feed('beyond the horizon (a restored copy) is refused'),
  },
  {
    name: 'a cursor behind which events have been removed is refused',
    file: 'libs/outbox/src/feed-cursor.ts',
    text: 'if (isBefore(cursor, floor))',
    replacement: 'if (isBefore(cursor, floor) && cursor === undefined)',
    test: { file: 'libs/outbox/src/feed-consumers.int.spec.ts', name: 'a cursor below it is told where to go on' },
  },
  {
    name: 'a filtered page says how far it has looked',
    file: 'libs/outbox/src/read-feed.ts',
    text: 'if (scanTx !== null && scanPosition !== null) return { place: { tx: scanTx, position: scanPosition }, more: true };',
    replacement: '',
    test: feed('of a quiet tenant looks at 10,000 rows a call'),
  },

  // Lists: nothing is skipped, nothing told twice, nothing of another tenant.
  {
    name: 'a page of runs that ends short says where its walk stood',
    file: `${RUNS}/run-list.sql.ts`,
    text: 'WHEN w.fits OR w.is_last THEN',
    replacement: 'WHEN w.fits THEN',
    test: lists('a page that has looked at its rows is short and says where to go on; only the end has no cursor'),
  },
  {
    name: 'later pages leave out what has moved since the first',
    file: `${RUNS}/run-list.sql.ts`,
    text: 'AND r.updated_at <= (SELECT as_of FROM bound) AND (r.updated_at, r.id) >',
    replacement: 'AND (r.updated_at, r.id) >',
    test: lists('a run that moves is not told twice, one that stays is never missed'),
  },
  {
    name: 'a search takes its characters as they are',
    file: `${RUNS}/run-search.ts`,
    text: '.replace(/[\\\\%_]/g, (special) => `\\\\${special}`)',
    replacement: '',
    test: lists('looks through what names a run, in any case, and takes its characters as they are'),
  },
  {
    name: 'the search index finds runs of the tenant alone',
    file: `${RUNS}/run-list.sql.ts`,
    text: 'WHERE t.tenant_id = ${tenantId}::text AND t.text',
    replacement: 'WHERE t.text',
    test: lists('by the index finds what the walk finds, with every filter, order and place'),
  },
  {
    name: 'a page of chosen events goes on behind what it has read',
    file: `${RUNS}/event-pages.sql.ts`,
    text: 'first.goesOn === null ? null : first.goesOn - 1',
    replacement: 'null',
    test: eventPages('a page that finds little is short and goes on where it stood, to the very end'),
  },
  {
    name: 'a session shows its own runs alone',
    file: `${RUNS}/event-pages.sql.ts`,
    text: 'AND r.session_id = ${sessionId}::text`;',
    replacement: '`;',
    test: eventPages('of one run, the named, the active or the last is shown, and later pages stay with it'),
  },
  {
    name: 'counts that somebody holds are left alone',
    file: `${RUNS}/run-facets.sql.ts`,
    text: 'LIMIT ${rowsMax}::int FOR UPDATE SKIP LOCKED',
    replacement: 'LIMIT ${rowsMax}::int',
    test: {
      file: `${RUNS}/run-facets.int.spec.ts`,
      name: 'counts are summed while runs come and go, by several at a time, and rows that somebody holds are left alone',
    },
  },
  {
    name: 'a waiter ends with its connection',
    file: 'apps/api/src/http/waiters.ts',
    text: "socket.once('close', gone);",
    replacement: "reply.raw.once('close', gone);",
    test: { file: 'apps/api/src/http/waiters.spec.ts', name: 'a waiter ends with its connection' },
  },
  {
    name: 'whoever has gone does not wait',
    file: 'apps/api/src/http/waiters.ts',
    text: 'if (socket.destroyed) gone();',
    replacement: 'void socket.destroyed;',
    test: { file: 'apps/api/src/http/waiters.spec.ts', name: 'whoever has gone before it waits does not wait' },
  },
  {
    name: 'answers are forgotten with their connection',
    file: 'apps/api/src/http/open-answers.ts',
    text: 'this.#count -= open.size;',
    replacement: '',
    test: { file: 'apps/api/src/http/open-answers.spec.ts', name: 'none is open of a connection that has closed' },
  },
  {
    name: 'a stream from now tells where that is',
    file: 'apps/api/src/http/follow-feed.ts',
    text: 'if (tellsStart) yield',
    replacement: 'if (tellsStart && signal.aborted) yield',
    test: { file: 'tests/contract/http-feed.spec.ts', name: 'from now on tells its place at once' },
  },
];
