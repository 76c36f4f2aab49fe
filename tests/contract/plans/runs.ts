import { CLAIM_LEASE_MS_MAX, type ListRuns } from '@runplane/contracts';
import { sql } from '@runplane/database';
import { pruneQueueTasksOnce } from '@runplane/queue';
import {
  appendRunEvents,
  claimDispatchIntents,
  claimRun,
  countRunEvents,
  failUnclaimedRunsOnce,
  foldSessionActivityOnce,
  getRunFacets,
  heartbeat,
  listCommandEvents,
  listRunEvents,
  listRunOutput,
  listRuns,
  listSessionOutput,
  listSessionTrace,
  pruneCancelRequestsOnce,
  pruneIntentsOnce,
  pruneReadersOnce,
  pruneRunEventsOnce,
  pruneRunsOnce,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
} from '@runplane/runs';
import { aRun, countLiveRuns, message } from '@runplane/runs/testing';
import type { Hot } from '../../support/plans';
import { ROWS, store, tenantId } from './store';

const about = (commandId: string) => ({ type: 'assistant_message', payload: { text: 'x', commandId } });
const claimedKey = () => ({ tenantId, runId: store.claimed.run.id });

const byTime = 'runs_tenant_id_updated_at_id_idx';
const LISTS: readonly [string, ListRuns, string][] = [
  ['all runs', {}, byTime],
  ['all runs, the oldest change first', { sort: 'updated-asc' }, byTime],
  ['runs by state', { sort: 'status-asc' }, 'runs_tenant_id_status_updated_at_id_idx'],
  ['runs by id', { sort: 'id-asc' }, 'runs_pkey'],
  ['runs changed since', { updatedAfter: '2020-01-01T00:00:00Z' }, byTime],
  ['runs of a state', { statuses: ['failed'] }, 'runs_tenant_id_status_updated_at_id_idx'],
  ['runs of states', { statuses: ['pending', 'completed', 'blocked'] }, 'runs_tenant_id_status_updated_at_id_idx'],
  ['runs of a project', { projectId: 'p7' }, 'runs_tenant_id_project_id_updated_at_id_idx'],
  ['runs of a workspace', { workspace: 'w/7' }, 'runs_tenant_id_workspace_path_updated_at_id_idx'],
  ['runs of a profile', { backendProfile: 'b1' }, 'runs_tenant_id_backend_profile_updated_at_id_idx'],
  ['runs of a provider', { providerId: 'd1' }, 'runs_tenant_id_provider_id_updated_at_id_idx'],
  ['runs of a session', { sessionId: 's7' }, 'runs_tenant_id_session_id_updated_at_id_idx'],
  ['runs of a profile and a state', { backendProfile: 'b1', statuses: ['completed'] }, 'runs_tenant_id_backend_profile_updated_at_id_idx'],
  ['claimed runs of a project', { projectId: 'p7', statuses: ['claimed'] }, 'runs_tenant_id_status_updated_at_id_idx'],
  ['runs of a profile by id', { backendProfile: 'b1', sort: 'id-asc' }, 'runs_pkey'],
  ['runs that a common term finds', { search: 'demo' }, byTime],
];

export const runStatements: Record<string, Hot> = {
  'append run events': {
    call: (db) => appendRunEvents(db, { ...claimedKey(), epoch: store.claimed.epoch, events: [message('x')] }),
    statement: /INSERT INTO runplane.run_events/,
    index: 'runs_pkey',
  },
  'append an event each to several runs': {
    call: (db) =>
      Promise.all(
        store.several.map(({ run, epoch, command }) =>
          appendRunEvents(db, { tenantId, runId: run.id, epoch, events: [about(command.id)] }),
        ),
      ),
    statement: /json_array_elements[\s\S]+CROSS JOIN LATERAL/,
    index: 'runs_pkey',
  },
  'append several events each to several runs': {
    call: (db) =>
      Promise.all(
        store.several.map(({ run, epoch, command }) =>
          appendRunEvents(db, { tenantId, runId: run.id, epoch, events: [message('x'), about(command.id)] }),
        ),
      ),
    statement: /unknown AS MATERIALIZED/,
    index: 'runs_pkey',
  },
  'claim a run': {
    call: async (db) => claimRun(db, { tenantId, runId: (await aRun(store.db)).id, runnerId: 'r1' }),
    statement: /INSERT INTO runplane.run_leases/,
    index: 'runs_pkey',
  },
  'renew a lease': {
    call: (db) => heartbeat(db, { ...claimedKey(), epoch: store.claimed.epoch, leaseMs: CLAIM_LEASE_MS_MAX }),
    statement: /UPDATE runplane.run_leases/,
    index: 'run_leases_pkey',
  },
  'tell a runner its news': {
    call: (db) => heartbeat(db, { ...claimedKey(), epoch: store.claimed.epoch, leaseMs: CLAIM_LEASE_MS_MAX }),
    statement: /cancelledCommands/,
    index: 'commands_tenant_id_run_id_seq_key',
  },
  'claim due dispatch intents': {
    call: (db) => claimDispatchIntents(db, { owner: 'd1', limit: 10 }),
    statement: /SKIP LOCKED/,
    index: 'dispatch_intents_due',
  },
  'read a page of a run’s events': {
    call: (db) => listRunEvents(db, { ...claimedKey(), afterSeq: Math.floor(ROWS / 2), limit: 100 }),
    statement: /seq >/,
    index: 'run_events_pkey',
  },
  'read what was said in a run': {
    call: (db) => listRunOutput(db, claimedKey()),
    statement: /is_output/,
    index: 'run_events_pkey',
  },
  'read what belongs to a command': {
    call: (db) => listCommandEvents(db, { tenantId, runId: 'r1', commandId: 'c1' }).catch(() => undefined),
    statement: /targetCommandId/,
    index: 'run_events_pkey',
  },
  'count a run’s events': { call: (db) => countRunEvents(db, claimedKey()), statement: /greatest/, index: 'runs_pkey' },
  'read a session’s trace': {
    call: (db) => listSessionTrace(db, { tenantId, sessionId: 's1' }).catch(() => undefined),
    statement: /lastRunCreatedAt/,
    index: 'run_events_pkey',
  },
  'read what was said in all runs of a session': {
    call: (db) => listSessionOutput(db, { tenantId, sessionId: 's1', runs: 'all' }).catch(() => undefined),
    statement: /lastRunCreatedAt/,
    index: 'runs_tenant_id_session_id_created_at_id_idx',
  },
  'find the end of a run’s log': {
    call: (db) => listRunEvents(db, { ...claimedKey(), afterSeq: 0 }),
    statement: /terminalSeq/,
    index: 'runs_pkey',
  },
  'find the end of an ended run’s log': {
    call: (db) => listRunEvents(db, { tenantId, runId: 'r1', afterSeq: 0 }).catch(() => undefined),
    statement: /terminalSeq/,
    index: 'run_events_pkey',
  },
  'tell what runs can be filtered by': {
    call: (db) => getRunFacets(db, { tenantId }),
    statement: /WITH RECURSIVE/,
    index: 'runs_tenant_id_project_id_updated_at_id_idx',
    pagesMax: 700, // three for each of 160 values
  },
  'find ended leases': { call: (db) => sweepLostRunnersOnce(db, { limit: 1 }), statement: /run_leases\s+WHERE expires_at/ },
  'find overdue cancels of runs': {
    call: (db) => sweepCancelDeadlinesOnce(db, { limit: 1 }),
    statement: /status = 'cancelling'/,
    index: 'runs_cancel_deadline_at_id_idx',
  },
  'find overdue cancels of commands': {
    call: (db) => sweepCancelDeadlinesOnce(db, { limit: 1 }),
    statement: /FROM runplane.commands\s+WHERE cancel_deadline_at/,
    index: 'commands_cancel_deadline_at_id_idx',
  },
  'find unclaimed runs': {
    call: (db) => failUnclaimedRunsOnce(db, { limit: 1 }),
    statement: /claim_deadline_at IS NOT NULL/,
    index: 'runs_claim_deadline_at_id_idx',
  },
  'count what runs of a profile': {
    call: (db) => db.sql.query(sql`SELECT (${countLiveRuns({ backendProfile: 'b1', tenantId: null, except: undefined })})::int AS "live"`),
    statement: /launched_at IS NOT NULL/,
    index: 'runs_live_by_profile',
  },
  'find what sessions do not know of their runs': {
    call: (db) => foldSessionActivityOnce(db, { limit: 10 }),
    statement: /last_activity_at \+/,
    index: 'run_events_pkey',
  },
  ...lists(),
  ...retentionStatements(),
};

/** What each pass of retention looks for. */
function retentionStatements(): Record<string, Hot> {
  const pass = {
    tenantId,
    dryRun: true,
    policy: {
      runsDays: 1,
      eventsDays: 1,
      intentsDays: 1,
      cancelRequestsDays: 1,
      runnersDays: 1,
      readersDays: 1,
      queueTasksDays: 1,
      archive: false,
    },
  };
  return {
    'find runs to remove': {
      call: (db) => pruneRunsOnce(db, pass),
      statement: /LIMIT 1 OFFSET/,
      index: 'runs_tenant_id_finished_at_id_idx',
    },
    'find runs to remove that may go': {
      call: (db) => pruneRunsOnce(db, pass),
      statement: /last_command_id/,
      index: 'runs_tenant_id_finished_at_id_idx',
    },
    'find runs whose events are to go': {
      call: (db) => pruneRunEventsOnce(db, pass),
      statement: /finished_at, r.id LIMIT/,
      index: 'runs_unpruned_events',
    },
    'find events that are going': {
      call: (db) => pruneRunEventsOnce(db, pass),
      statement: /events_pruned_through IS NOT NULL/,
      index: 'runs_events_to_remove',
    },
    'find intents to remove': {
      call: (db) => pruneIntentsOnce(db, pass),
      statement: /dispatch_intents x/,
      index: 'dispatch_intents_tenant_id_finished_at_id_idx',
    },
    'find queue tasks to remove': {
      call: (db) => pruneQueueTasksOnce(db, pass),
      statement: /"isOld"/,
      index: 'queue_tasks_tenant_id_changed_tx_id_idx',
      pagesMax: 2_500, // five hundred tasks, each with a look for an open attempt
    },
    'find silent readers': { call: (db) => pruneReadersOnce(db, pass), statement: /session_readers r/ },
    'find cancel requests to remove': { call: (db) => pruneCancelRequestsOnce(db, pass), statement: /cancel_requests x/ },
  };
}

/** A page of each kind of list, also from its middle on. The filters fit one run of a hundred; each list has the index that it walks. */
function lists(): Record<string, Hot> {
  const late = LISTS.map(([name, filter, index]): [string, Hot] => [
    `read a late page of ${name}`,
    {
      call: (db) => listRuns(db, { tenantId, ...filter, cursor: store.places.get(`runs: ${name}`) }),
      statement: /latestCommand/,
      index,
      ...(filter.search === undefined ? {} : { pagesMax: 500 }),
    },
  ]);
  return {
    'read the first page of runs': { call: (db) => listRuns(db, { tenantId, total: true }), statement: /latestCommand/, index: byTime },
    ...Object.fromEntries(late),
    'find runs by a rare term': {
      call: (db) => listRuns(db, { tenantId, search: 'needle' }),
      statement: /texts AS MATERIALIZED/,
      index: 'run_search_trigrams',
      needsRows: true,
    },
  };
}

/** Cursors from where pages of a full store go on. */
export async function findRunPlaces(): Promise<void> {
  for (const [name, filter] of LISTS) {
    for (let page = 0, cursor: string | undefined; page < (name === 'all runs' ? 60 : 2); page += 1) {
      cursor = (await listRuns(store.db, { tenantId, ...filter, limit: 100, cursor })).cursor ?? undefined;
      if (cursor === undefined) break;
      store.places.set(`runs: ${name}`, cursor);
    }
  }
}
