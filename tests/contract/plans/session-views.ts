import type { Db } from '@runplane/database';
import {
  countStaleViews,
  getContextNote,
  getRebuildStatus,
  listChannelBindings,
  listChannelDeliveries,
  listContextHistory,
  listContextNotes,
  listContextWindows,
  listProjections,
  listRecoveryCandidates,
  readSnapshot,
  rebuildSession,
  rebuildStaleOnce,
  searchContextHistory,
} from '@runplane/sessions';
import type { Hot } from '../../support/plans';
import { store, tenantId } from './store';

const key = { tenantId, sessionId: 'log' };
const behind = (name: string) => store.places.get(`views: ${name}`);

/** Reads of the views of session logs: single rows, and pages from their middle on. */
const READS: Record<string, Hot> = {
  'a snapshot': { call: (db) => readSnapshot(db, key), statement: /"storeId"/, index: 'session_heads_pkey' },
  'a page of sessions to recover': {
    call: (db) => listRecoveryCandidates(db, { tenantId, cursor: behind('recovery') }),
    statement: /needs_recovery/,
    index: 'session_heads_recovery',
    pagesMax: 600,
  },
  'a page of a projection over all sessions': {
    call: (db) => listProjections(db, { tenantId, key: 'counter', cursor: behind('counter') }),
    statement: /FROM runplane.session_views/,
    index: 'session_views_tenant_id_key_session_id_idx',
    pagesMax: 600,
  },
  'a page of windows': {
    call: (db) => listContextWindows(db, { ...key, cursor: behind('windows') }),
    statement: /FROM runplane.context_windows/,
    index: 'context_windows_tenant_id_session_id_started_sequence_event_idx',
  },
  'one note': {
    call: (db) => getContextNote(db, { ...key, path: 'n00000007' }).catch(() => undefined),
    statement: /content AS "content"/,
    index: 'context_notes_pkey',
  },
  'a page of notes': {
    call: (db) => listContextNotes(db, { ...key, cursor: behind('notes') }),
    statement: /octet_length\(content\)/,
    index: 'context_notes_pkey',
  },
  'a page of a window’s history': {
    call: (db) => listContextHistory(db, { ...key, windowId: 'w1', cursor: behind('history') }),
    statement: /FROM runplane.context_history/,
    index: 'context_history_tenant_id_session_id_window_id_sequence_idx',
  },
  'search in the history': {
    call: (db) => searchContextHistory(db, { ...key, query: 'words', mode: 'literal', cursor: behind('search') }),
    statement: /FROM runplane.context_history/,
    index: 'context_history_pkey',
  },
  'a page of bindings': {
    call: (db) => listChannelBindings(db, { ...key, cursor: behind('bindings') }),
    statement: /FROM runplane.channel_bindings/,
    index: 'channel_bindings_pkey',
  },
  'a page of deliveries': {
    call: (db) => listChannelDeliveries(db, { ...key, cursor: behind('deliveries') }),
    statement: /FROM runplane.channel_deliveries/,
    index: 'channel_deliveries_pkey',
  },
};

/** Once for each test: the session has its turn again whatever came before. */
const rebuilding = async (db: Db): Promise<unknown> => {
  await store.db.pool.query(
    `UPDATE runplane.session_rebuilds SET state = 'waiting', attempts = 0, owner = NULL, expires_at = NULL, finished_at = NULL, ready_at = now() - interval '1 day' WHERE session_id = 's20'`,
  );
  return rebuildStaleOnce(db, { owner: 'r', limit: 1 });
};
/** Not of `log`: its rows of views have no events behind them, and would go. */
const rebuildingLog = (db: Db): Promise<unknown> => rebuildSession(db, { tenantId, sessionId: 's1' }, { owner: 'r' });

/** What finds stale views, and what builds them anew. */
const REBUILDS: Record<string, Hot> = {
  'count stale views': {
    call: (db) => countStaleViews(db),
    statement: /views_version/,
    index: 'session_heads_views_version_tenant_id_session_id_idx',
  },
  'count rebuilds': { call: (db) => getRebuildStatus(db), statement: /FROM runplane.session_rebuilds/, pagesMax: 1_000 },
  'find stale heads': {
    call: rebuilding,
    statement: /FROM runplane.session_heads\s+WHERE views_version/,
    index: 'session_heads_views_version_tenant_id_session_id_idx',
    pagesMax: 1_200,
  },
  'claim a rebuild': {
    call: rebuilding,
    statement: /session_rebuilds[\s\S]+FOR NO KEY UPDATE SKIP LOCKED/,
    index: 'session_rebuilds_due',
    needsRows: true,
  },
  'a page of a log that is folded': {
    call: rebuildingLog,
    statement: /octet_length\(p.data\)/,
    index: 'session_events_pkey',
    needsRows: true,
  },
};

export const viewStatements: Record<string, Hot> = { ...READS, ...REBUILDS };

/** Cursors from where pages of a full store go on. */
export async function findViewPlaces(): Promise<void> {
  const lists: Record<string, Promise<{ cursor: string | null }>> = {
    recovery: listRecoveryCandidates(store.db, { tenantId }),
    counter: listProjections(store.db, { tenantId, key: 'counter' }),
    windows: listContextWindows(store.db, key),
    notes: listContextNotes(store.db, key),
    history: listContextHistory(store.db, { ...key, windowId: 'w1' }),
    search: searchContextHistory(store.db, { ...key, query: 'words', mode: 'literal' }),
    bindings: listChannelBindings(store.db, key),
    deliveries: listChannelDeliveries(store.db, key),
  };
  for (const [name, list] of Object.entries(lists)) store.places.set(`views: ${name}`, (await list).cursor ?? '');
}
