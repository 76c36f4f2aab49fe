import { newId } from '@runplane/contracts';
import { type Db, type Tx } from '@runplane/database';
import { getLatestSessionResourceRun } from '@runplane/runs';
import {
  acquireSessionLease,
  appendSessionEvents,
  leaseExpiredStorage,
  listSharedStorage,
  listGcExpiredSessions,
  listSessionChanges,
  listSessionLogs,
  listSessions,
  markSessionsRead,
  readSessionEvents,
  renewSessionLease,
  sessionProbe,
  type ListSessions,
} from '@runplane/sessions';
import type { Hot } from '../../support/plans';
import { store, tenantId } from './store';

const logKey = { tenantId, sessionId: 'log' };
const said = { type: 'custom/said', data: { text: 'x' } };
const fenced = (db: Db, events = [said]) => appendSessionEvents(db, { ...logKey, epoch: store.leased.epoch, events });

/** Pages of sessions, from their middle on. `ann` has read everything up to lately, `bob` nothing, `eve` each session by itself. */
const SESSION_LISTS: Record<string, { over: Omit<ListSessions, 'tenantId'>; index: string; pagesMax?: number; needsRows?: true }> = {
  'sessions that have had a run': { over: { state: 'default' }, index: 'sessions_tenant_id_last_activity_at_session_id_idx' },
  'all sessions': { over: { state: 'all', readerId: 'ann' }, index: 'sessions_tenant_id_last_activity_at_session_id_idx', pagesMax: 600 },
  'idle sessions': { over: { state: 'idle' }, index: 'sessions_tenant_id_execution_state_last_activity_at_session_idx' },
  'sessions of a profile': { over: { backendProfile: 'b1' }, index: 'sessions_tenant_id_last_activity_at_session_id_idx' },
  'sessions unread by who has read nothing': {
    over: { state: 'unread', readerId: 'bob' },
    index: 'sessions_tenant_id_last_activity_at_session_id_idx',
    pagesMax: 600,
    needsRows: true,
  },
};

/** The log of a session, and its lease. */
const LOG: Record<string, Hot> = {
  'append an event to a session': {
    call: (db) => fenced(db),
    statement: /INSERT INTO runplane.session_events/,
    index: 'session_heads_pkey',
  },
  'append events to a session': {
    call: (db) => fenced(db, [said, said, { type: 'user/message', data: { text: 'x' } }]),
    statement: /INSERT INTO runplane.session_events/,
    index: 'session_heads_pkey',
  },
  'what an append reads first': {
    call: (db) => appendSessionEvents(db, { ...logKey, epoch: store.leased.epoch, appendId: newId('append'), events: [said] }),
    statement: /"appendedAt"/,
    index: 'session_events_append',
  },
  'acquire a session lease': {
    call: (db) => acquireSessionLease(db, { ...logKey, owner: store.leased.owner }),
    statement: /lease_epoch \+ \(NOT/,
    index: 'session_heads_pkey',
  },
  'renew a session lease': {
    call: (db) => renewSessionLease(db, { ...logKey, owner: store.leased.owner, epoch: store.leased.epoch }),
    statement: /lease_expires_at = greatest/,
    index: 'session_heads_pkey',
  },
  'a page of a session log': {
    call: (db) => readSessionEvents(db, { ...logKey, from: 3, limit: 100 }),
    statement: /"lastSequence", h/,
    index: 'session_events_pkey',
  },
  'a page of a session log from its end': {
    call: (db) => readSessionEvents(db, { ...logKey, before: 1_000_000, limit: 100 }),
    statement: /sequence DESC/,
    index: 'session_events_pkey',
  },
  'headers of sessions': {
    call: (db) => listSessionLogs(db, { tenantId, limit: 100, cursor: store.places.get('logs') }),
    statement: /FROM runplane.session_heads WHERE \(tenant_id/,
    index: 'session_heads_newest',
  },
  'probe of session logs': {
    call: (db) => sessionProbe.versionsOf(db.sql, ['acme/log', 'acme/s7']),
    statement: /unnest/,
  },
};

function controlStatements(): Record<string, Hot> {
  const pages = Object.entries(SESSION_LISTS).map(([name, { over, index, ...more }]): [string, Hot] => [
    `read a late page of ${name}`,
    {
      call: (db) => listSessions(db, { tenantId, ...over, cursor: store.places.get(`sessions: ${name}`) }),
      statement: /scanTime/,
      index,
      ...more,
    },
  ]);
  return {
    ...Object.fromEntries(pages),
    'count sessions changed since a reader has read all': {
      call: (db) => listSessions(db, { tenantId, state: 'unread', readerId: 'ann' }),
      statement: /count\(\*\)::int AS "n"/,
      index: 'sessions_tenant_id_changed_tx_session_id_idx',
    },
    'read sessions unread by who has read nearly everything': {
      call: (db) => listSessions(db, { tenantId, state: 'unread', readerId: 'ann' }),
      statement: /WITH changed AS/,
      index: 'sessions_tenant_id_changed_tx_session_id_idx',
      pagesMax: 1_000,
      needsRows: true,
    },
    'mark all sessions read': {
      call: (db) => markSessionsRead(db, { tenantId, readerId: 'new', all: true }),
      statement: /INSERT INTO runplane.session_readers/,
      index: 'sessions_tenant_id_changed_tx_session_id_idx',
    },
    'mark some sessions read': {
      call: (db) => markSessionsRead(db, { tenantId, readerId: 'new', sessionIds: ['s1', 's2', 's3'] }),
      statement: /INSERT INTO runplane.session_read_cursors/,
      index: 'sessions_pkey',
      needsRows: true,
    },
    'read a page of changes of sessions': {
      call: (db) => listSessionChanges(db, { tenantId, after: store.places.get('changes') }),
      statement: /feed_horizon/,
      index: 'sessions_tenant_id_changed_tx_session_id_idx',
    },
    'lease expired storage': {
      call: (db) => leaseExpiredStorage(db.sql as unknown as Tx, { owner: 'gc', leaseMs: 1_000, limit: 10, kinds: ['pvc', 'folder'] }),
      statement: /SKIP LOCKED/,
      index: 'sessions_storage_expiry',
    },
    'find who shares a storage': {
      call: (db) => listSharedStorage(db.sql, [{ tenantId, sessionId: 's1', kind: 'folder', name: 'a/b' }]),
      statement: /string_to_array/,
      index: 'sessions_storage_name',
    },
    'list expired storage': {
      call: (db) => listGcExpiredSessions(db, {}),
      statement: /isBusy/,
      index: 'sessions_storage_expiry',
    },
    'find the resources of a session': {
      call: (db) => getLatestSessionResourceRun(db, { tenantId, sessionId: 's7' }).catch(() => undefined),
      statement: /resource_bundle_ref\) = 'object'/,
      needsRows: true,
    },
  };
}

export const sessionStatements: Record<string, Hot> = { ...LOG, ...controlStatements() };

/** Cursors from where pages of a full store go on. */
export async function findSessionPlaces(): Promise<void> {
  const set = (name: string, cursor: string | null) => void (cursor !== null && store.places.set(name, cursor));
  set('logs', (await listSessionLogs(store.db, { tenantId, limit: 200 })).cursor);
  set('changes', (await listSessionChanges(store.db, { tenantId, limit: 200 })).cursor);
  for (const [name, { over }] of Object.entries(SESSION_LISTS)) {
    const place = `sessions: ${name}`;
    for (let page = 0; page < 10; page += 1)
      set(place, (await listSessions(store.db, { tenantId, ...over, cursor: store.places.get(place), limit: 200 })).cursor);
  }
}
