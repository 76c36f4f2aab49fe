import pg from 'pg';
import { sql, type Db, type Sql, type Tx } from '@runplane/database';
import { CLAIM_LEASE_MS_MAX, newId, SESSION_LEASE_MS_MAX, type ListRuns, type SessionLease } from '@runplane/contracts';
import { openClient, useDatabase } from '@runplane/database/testing';
import { readFeed } from '@runplane/outbox';
import {
  claimQueueTasks,
  claimSubmissions,
  expireReservationsOnce,
  explainQueueTask,
  failExhaustedSubmissionsOnce,
  getQueueCommander,
  getQueueTask,
  listQueueTaskChanges,
  listQueueTasks,
  pruneQueueTasksOnce,
  readyDueTasksOnce,
  renewQueueTasks,
  renewSubmissions,
  settleAttemptsOnce,
  settleQueueTasks,
  settleSubmissions,
  sweepQueueLeasesOnce,
  type ClaimSubmissionsInput,
  type ClaimTasksInput,
  type ListQueueTasks,
} from '@runplane/queue';
import {
  appendRunEvents,
  claimDispatchIntents,
  claimRun,
  countRunEvents,
  failUnclaimedRunsOnce,
  foldSessionActivityOnce,
  getLatestSessionResourceRun,
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
import { aClaimedRun, aClaimedTurn, aRun, countLiveRuns, makeTenants, message, TENANT } from '@runplane/runs/testing';
import {
  acquireSessionLease,
  appendSessionEvents,
  createSessions,
  endSubmission,
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

// Plans that cannot flip: each hot statement, as operations send it, on an empty store and on a filled one, planned for its parameters and for
// any (a prepared statement may get either). What counts is how many pages it touches, whatever the size of the store.
// PLAN_ROWS=1000000 npx jest plans: the same on a million rows (minutes).

const ROWS = Number(process.env['PLAN_ROWS'] ?? 10_000);
/** Of 8 kB. The largest is a claim of ten intents, with 220; a scan of a filled table needs more, and grows with it. */
const PAGES_MAX = 300;

jest.setTimeout(ROWS > 100_000 ? 1_200_000 : 60_000);
const t = useDatabase({ checkInvariants: false });
const tenantId = TENANT;

/** The store handle with a record of its statements. */
function recording(): { db: Db; statements: Sql[] } {
  const statements: Sql[] = [];
  const recorder = {
    query: (statement: Sql) => {
      statements.push(statement);
      return t.db.sql.query(statement);
    },
  };
  return { db: { ...t.db, sql: recorder, lane: recorder }, statements };
}

// Not run_leases: it has a row for each run that is held now, and an index on its end would cost every renewal its in-page update.
const BIG_TABLES = [
  'runs',
  'run_search',
  'run_events',
  'outbox_events',
  'commands',
  'dispatch_intents',
  'sessions',
  'session_heads',
  'session_events',
  'queue_tasks',
  'queue_attempts',
  'submissions',
  'submission_heads',
];

interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Shared Hit Blocks'?: number;
  readonly 'Shared Read Blocks'?: number;
  readonly Plans?: readonly PlanNode[];
}
const nodesOf = (plan: PlanNode): PlanNode[] => [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];
const scansOf = (plan: PlanNode): string[] =>
  nodesOf(plan).flatMap((node) =>
    node['Node Type'] === 'Seq Scan' && BIG_TABLES.includes(node['Relation Name'] ?? '') ? [node['Relation Name'] ?? ''] : [],
  );
const pagesOf = (plan: PlanNode): number => (plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0);

function literal(value: unknown): string {
  if (value === null) return 'NULL';
  if (Array.isArray(value))
    return pg.escapeLiteral(`{${value.map((each) => (each === null ? 'NULL' : JSON.stringify(String(each)))).join(',')}}`);
  return pg.escapeLiteral(typeof value === 'string' ? value : JSON.stringify(value));
}

let client: pg.Client;
beforeAll(async () => {
  client = await openClient(t.url);
});
afterAll(() => client.end());

/** Runs a statement for its plan and rolls it back. */
async function explain(statement: Sql, settings: Record<string, string>): Promise<PlanNode> {
  await client.query('BEGIN');
  try {
    for (const [name, value] of Object.entries(settings)) await client.query(`SET LOCAL ${name} = ${value}`);
    await client.query(`PREPARE explained AS ${statement.text}`);
    const values = statement.values.length === 0 ? '' : `(${statement.values.map(literal).join(', ')})`;
    const { rows } = await client.query(`EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE explained ${values}`);
    return rows[0]['QUERY PLAN'][0].Plan as PlanNode;
  } finally {
    await client.query('ROLLBACK');
    await client.query('DEALLOCATE ALL');
  }
}

interface Hot {
  /** Calls the operation; the first of its statements that matches is meant. */
  readonly call: (db: Db) => Promise<unknown>;
  readonly statement: RegExp;
  /** The index that must serve it on a filled store. */
  readonly index?: string;
  /** Of a statement that needs more than others. */
  readonly pagesMax?: number;
  /** Not sent to an empty store. */
  readonly needsRows?: true;
}

let claimed: Awaited<ReturnType<typeof aClaimedRun>>;
let several: Awaited<ReturnType<typeof aClaimedTurn>>[];
const about = (commandId: string) => ({ type: 'assistant_message', payload: { text: 'x', commandId } });
const claimedKey = () => ({ tenantId, runId: claimed.run.id });
const deepest: {
  feed?: string | undefined;
  changes?: string | undefined;
  tasks?: string | undefined;
  logs?: string | undefined;
  sessions: Partial<Record<string, string>>;
} = { sessions: {} };
const lateCursors = new Map<string, string>();
const LISTS: (readonly [string, ListRuns, string])[] = [];

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

/** Queue tasks: a backlog with a lane that has a limit, tasks that wait for their time, that run, and that have ended. */
const claimOf = (over: Partial<ClaimTasksInput>, index = 'queue_tasks_claimable'): Hot => ({
  call: (db) => claimQueueTasks(db, { tenantId, queue: 'big', owner: 'w', limit: 10, ...over }),
  statement: /locked AS MATERIALIZED/,
  index,
});
const taskPages = (over: Omit<ListQueueTasks, 'tenantId'>): Hot => ({
  call: (db) => listQueueTasks(db, { tenantId, limit: 20, ...over, cursor: deepestTasks.get(JSON.stringify(over)) }),
  statement: /page AS MATERIALIZED/,
  index: 'queue_tasks_tenant_id_queue_state_priority_created_at_id_idx',
});
const TASK_LISTS: Omit<ListQueueTasks, 'tenantId'>[] = [
  {},
  { queue: 'big' },
  { queue: 'big', state: 'completed' },
  { state: 'pending', readerId: 'ann' },
];
const deepestTasks = new Map<string, string>();
const someTasks = [15, 25, 35, 45].map((i) => ({ taskId: `q${i}`, epoch: 2 }));
const QUEUE_TASKS: Record<string, Hot> = {
  'claim tasks of a lane': claimOf({ lane: 'l1' }),
  'claim tasks of a lane with a limit': claimOf({ lane: 'l3' }),
  'claim a hundred tasks of a lane': { ...claimOf({ lane: 'l1', limit: 100 }), pagesMax: 6_000 }, // 40 pages a task: its row, its indexes, its attempt
  'claim tasks of all lanes of a queue': { ...claimOf({}), pagesMax: 900 },
  'claim tasks of all tenants': { ...claimOf({ tenantId: undefined }), pagesMax: 900 },
  'claim tasks of a queue that nobody knows': claimOf({ queue: 'no-such-queue', lane: 'l1' }),
  'claim tasks of all lanes of a queue that nobody knows': { ...claimOf({ queue: 'no-such-queue' }) },
  'claim tasks of all tenants from a queue that nobody knows': claimOf({ queue: 'no-such-queue', tenantId: undefined }),
  'renew claims of tasks': {
    call: (db) => renewQueueTasks(db, { tenantId, claims: someTasks }),
    statement: /renewed AS/,
    index: 'queue_tasks_pkey',
  },
  'end claims of tasks': {
    call: (db) => settleQueueTasks(db, { tenantId, settlements: someTasks.map((claim) => ({ ...claim, outcome: 'completed' as const })) }),
    statement: /ended AS/,
    index: 'queue_tasks_pkey',
    pagesMax: 400,
  },
  'take back tasks whose lease has ended': {
    call: (db) => sweepQueueLeasesOnce(db, { limit: 10 }),
    statement: /ended AS/,
    index: 'queue_tasks_leases',
    pagesMax: 900,
  },
  'make tasks claimable whose time has come': {
    call: (db) => readyDueTasksOnce(db, { limit: 10 }),
    statement: /SET due = true/,
    index: 'queue_tasks_waiting',
  },
  'find attempts whose run has ended': {
    call: (db) => settleAttemptsOnce(db),
    statement: /run_tombstones/,
    index: 'queue_attempts_running_runs',
  },
  'find reservations whose time is over': {
    call: (db) => expireReservationsOnce(db),
    statement: /'reserved'/,
    index: 'queue_attempts_reserved',
  },
  'read a task': {
    call: (db) => getQueueTask(db, { tenantId, taskId: 'q15' }).catch(() => null),
    statement: /t.payload::text/,
    index: 'queue_tasks_pkey',
  },
  'explain a task': {
    call: (db) => explainQueueTask(db, { tenantId, taskId: 'q16' }).catch(() => null),
    statement: /isQueueServed/,
    index: 'queue_tasks_claimable',
    pagesMax: 1_500,
  },
  ...Object.fromEntries(TASK_LISTS.map((over) => [`read a page of tasks ${JSON.stringify(over)}`, taskPages(over)])),
  'read changes of tasks': {
    call: (db) => listQueueTaskChanges(db, { tenantId, after: deepest.tasks }),
    statement: /page AS MATERIALIZED/,
    index: 'queue_tasks_tenant_id_changed_tx_id_idx',
    pagesMax: 600,
  },
  'what wants a look among tasks': {
    call: (db) => getQueueCommander(db, { tenantId, readerId: 'eve' }),
    statement: /candidates AS MATERIALIZED/,
    pagesMax: 12_000, // bounded by the scan of changes and of the heads of each state, a thousand rows each, with their marks
  },
};

/** Submissions: a session each with due, claimed, put off and exhausted ones, and one session with a long queue. */
const submissionClaim = (over: Partial<ClaimSubmissionsInput>, index: string, more: Partial<Hot> = {}): Hot => ({
  call: (db) => claimSubmissions(db, { tenantId, owner: 'w', limit: 10, ...over } as ClaimSubmissionsInput),
  statement: /taken AS/,
  index,
  pagesMax: 600, // 10 heads with five indexes each, and their texts
  ...more,
});
const heldSubmissions = [15, 25, 35, 45].map((i) => ({ sessionId: `s${i}`, operationId: 'o', epoch: 2 }));
let endedOfLong = 0;
const SUBMISSIONS: Record<string, Hot> = {
  'claim submissions of a tenant': submissionClaim({}, 'submission_heads_of_tenant'),
  'claim one submission of a tenant': submissionClaim({ limit: 1 }, 'submission_heads_of_tenant', { pagesMax: 100 }),
  'claim submissions of a kind': submissionClaim({ kind: 'k1' }, 'submission_heads_of_tenant_kind'),
  'claim submissions of a kind that nobody knows': submissionClaim({ kind: 'none' }, 'submission_heads_of_tenant_kind', { pagesMax: 30 }),
  'claim submissions of a tenant that nobody knows': submissionClaim({ tenantId: 'nobody' }, 'submission_heads_of_tenant', {
    pagesMax: 30,
  }),
  'claim submissions of a kind over all tenants': submissionClaim({ tenantId: undefined, kind: 'k1' }, 'submission_heads_of_kind'),
  'claim submissions where the lease is free': submissionClaim({ leaseOwner: 'w' }, 'submission_heads_of_tenant', { pagesMax: 8_000 }), // 200 are put off
  'renew claims of submissions': {
    call: (db) => renewSubmissions(db, { tenantId, claims: heldSubmissions }),
    statement: /renewed AS/,
    index: 'submission_heads_pkey',
  },
  'give claims of submissions back': {
    call: (db) =>
      settleSubmissions(db, { tenantId, settlements: heldSubmissions.map((claim) => ({ ...claim, outcome: 'released' as const })) }),
    statement: /released AS/,
    index: 'submission_heads_pkey',
  },
  'find submissions that were tried too often': {
    call: (db) => failExhaustedSubmissionsOnce(db, { limit: 1 }),
    statement: /attempts >= 10 AND/,
    index: 'submission_heads_exhausted',
  },
  'end a submission of a session with a long queue': {
    call: (db) => endSubmission(db, { ...logKey, operationId: `o${(endedOfLong += 1)}`, end: { state: 'completed' } }),
    statement: /submission_moved AS/,
    index: 'submissions_unfinished',
    needsRows: true,
  },
};

let leased: SessionLease;
const logKey = { tenantId, sessionId: 'log' };
const said = { type: 'custom/said', data: { text: 'x' } };
const fenced = (db: Db, events = [said]) => appendSessionEvents(db, { ...logKey, epoch: leased.epoch, events });

/** The log of a session, and its lease. */
const SESSION_LOG: Record<string, Hot> = {
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
    call: (db) => appendSessionEvents(db, { ...logKey, epoch: leased.epoch, appendId: newId('append'), events: [said] }),
    statement: /"appendedAt"/,
    index: 'session_events_append',
  },
  'acquire a session lease': {
    call: (db) => acquireSessionLease(db, { ...logKey, owner: leased.owner }),
    statement: /lease_epoch \+ \(NOT/,
    index: 'session_heads_pkey',
  },
  'renew a session lease': {
    call: (db) => renewSessionLease(db, { ...logKey, owner: leased.owner, epoch: leased.epoch }),
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
    call: (db) => listSessionLogs(db, { tenantId, limit: 100, cursor: deepest.logs }),
    statement: /FROM runplane.session_heads WHERE \(tenant_id/,
    index: 'session_heads_newest',
  },
  'probe of session logs': {
    call: (db) => sessionProbe.versionsOf(db.sql, ['acme/log', 'acme/s7']),
    statement: /unnest/,
  },
};

const HOT: Record<string, Hot> = {
  ...QUEUE_TASKS,
  ...SESSION_LOG,
  'append run events': {
    call: (db) => appendRunEvents(db, { ...claimedKey(), epoch: claimed.epoch, events: [message('x')] }),
    statement: /INSERT INTO runplane.run_events/,
    index: 'runs_pkey',
  },
  'append an event each to several runs': {
    call: (db) =>
      Promise.all(
        several.map(({ run, epoch, command }) => appendRunEvents(db, { tenantId, runId: run.id, epoch, events: [about(command.id)] })),
      ),
    statement: /json_array_elements[\s\S]+CROSS JOIN LATERAL/,
    index: 'runs_pkey',
  },
  'append several events each to several runs': {
    call: (db) =>
      Promise.all(
        several.map(({ run, epoch, command }) =>
          appendRunEvents(db, { tenantId, runId: run.id, epoch, events: [message('x'), about(command.id)] }),
        ),
      ),
    statement: /unknown AS MATERIALIZED/,
    index: 'runs_pkey',
  },
  'claim a run': {
    call: async (db) => claimRun(db, { tenantId, runId: (await aRun(t.db)).id, runnerId: 'r1' }),
    statement: /INSERT INTO runplane.run_leases/,
    index: 'runs_pkey',
  },
  'renew a lease': {
    call: (db) => heartbeat(db, { ...claimedKey(), epoch: claimed.epoch, leaseMs: CLAIM_LEASE_MS_MAX }),
    statement: /UPDATE runplane.run_leases/,
    index: 'run_leases_pkey',
  },
  'tell a runner its news': {
    call: (db) => heartbeat(db, { ...claimedKey(), epoch: claimed.epoch, leaseMs: CLAIM_LEASE_MS_MAX }),
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
  ...lists(),
  'tell what runs can be filtered by': {
    call: (db) => getRunFacets(db, { tenantId }),
    statement: /WITH RECURSIVE/,
    index: 'runs_tenant_id_project_id_updated_at_id_idx',
    pagesMax: 700, // three for each of 160 values
  },
  'read a page of the feed': {
    call: (db) => readFeed(db.sql, { tenantId: undefined, after: deepest.feed, limit: 50 }),
    statement: /feed_horizon/,
    index: 'outbox_events_pkey',
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
  ...sessionStatements(),
  ...retentionStatements(),
  ...SUBMISSIONS,
};

/** What each pass of retention looks for. */
function retentionStatements(): Record<string, Hot> {
  const pass = {
    tenantId,
    dryRun: true,
    policy: { runsDays: 1, eventsDays: 1, intentsDays: 1, cancelRequestsDays: 1, runnersDays: 1, readersDays: 1, queueTasksDays: 1, archive: false },
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

function sessionStatements(): Record<string, Hot> {
  const pages = Object.entries(SESSION_LISTS).map(([name, { over, index, ...more }]): [string, Hot] => [
    `read a late page of ${name}`,
    {
      call: (db) => listSessions(db, { tenantId, ...over, cursor: deepest.sessions[name] }),
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
      call: (db) => listSessionChanges(db, { tenantId, after: deepest.changes }),
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

/** A page of each kind of list, also from its middle on. The filters fit one run of a hundred; each list has the index that it walks. */
function lists(): Record<string, Hot> {
  const byTime = 'runs_tenant_id_updated_at_id_idx';
  const kinds: readonly [string, ListRuns, string][] = [
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
    [
      'runs of a profile and a state',
      { backendProfile: 'b1', statuses: ['completed'] },
      'runs_tenant_id_backend_profile_updated_at_id_idx',
    ],
    ['claimed runs of a project', { projectId: 'p7', statuses: ['claimed'] }, 'runs_tenant_id_status_updated_at_id_idx'],
    ['runs of a profile by id', { backendProfile: 'b1', sort: 'id-asc' }, 'runs_pkey'],
    ['runs that a common term finds', { search: 'demo' }, byTime],
  ];
  const late = kinds.map(([name, filter, index]): [string, Hot] => [
    `read a late page of ${name}`,
    {
      call: (db) => listRuns(db, { tenantId, ...filter, cursor: lateCursors.get(name) }),
      statement: /latestCommand/,
      index,
      ...(filter.search === undefined ? {} : { pagesMax: 500 }),
    },
  ]);
  LISTS.push(...kinds);
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

async function statementOf({ call, statement }: Hot): Promise<Sql> {
  const { db, statements } = recording();
  await call(db);
  const found = statements.find(({ text }) => statement.test(text));
  if (found === undefined) throw new Error(`none of ${statements.length} statements matches ${String(statement)}`);
  return found;
}

const PLANNING = [
  ['its parameters', { plan_cache_mode: 'force_custom_plan' }],
  ['any parameters', { plan_cache_mode: 'force_generic_plan' }],
] as const;

beforeAll(async () => {
  await makeTenants(t.db);
  claimed = await aClaimedRun(t.db);
  several = await Promise.all([1, 2, 3, 4, 5].map(() => aClaimedTurn(t.db)));
  for (const { run, epoch } of [claimed, ...several])
    await heartbeat(t.db, { tenantId, runId: run.id, epoch, leaseMs: CLAIM_LEASE_MS_MAX }); // longer than this file takes
  await createSessions(t.db).createSession({ tenantId, header: { id: 'log' } });
  leased = await acquireSessionLease(t.db, { ...logKey, owner: 'w', leaseMs: SESSION_LEASE_MS_MAX });
});

describe('on an empty store', () => {
  test.each(Object.entries(HOT).filter(([, { needsRows }]) => needsRows !== true))('%s can use indexes', async (_name, hot) => {
    const plan = await explain(await statementOf(hot), { enable_seqscan: 'off' });
    expect(scansOf(plan)).toEqual([]);
  });

  // On its first day a table has no statistics, and plans of that day stay in use: no other index may look as good as the primary key.
  const byKey = Object.entries(HOT).filter(([, { index }]) => index === 'runs_pkey' || index === 'session_heads_pkey');
  test.each(byKey)('%s finds its row by the key', async (_name, hot) => {
    for (let i = 0; i < 20; i += 1) await aRun(t.db, { sessionRef: { sessionId: `first-${i}` } });
    const plan = await explain(await statementOf(hot), { plan_cache_mode: 'force_generic_plan' });
    expect(nodesOf(plan).map((node) => node['Index Name'])).toContain(hot.index);
  });
});

describe(`on a store of ${ROWS} of everything`, () => {
  beforeAll(fill);

  describe.each(PLANNING)('planned for %s', (_planning, settings) => {
    test.each(Object.entries(HOT))('%s', async (_name, hot) => {
      const plan = await explain(await statementOf(hot), settings);
      expect(scansOf(plan)).toEqual([]);
      if (hot.index !== undefined) expect(nodesOf(plan).map((node) => node['Index Name'])).toContain(hot.index);
      expect(pagesOf(plan)).toBeLessThan(hot.pagesMax ?? PAGES_MAX);
    });
  });
});

/** Ended runs and due, waiting and past work, as a store has it after a while. Rows alone: no operation would need so much time. */
async function fill(): Promise<void> {
  const run = (text: string) =>
    t.db.pool.query({
      text,
      values: [tenantId, ROWS, claimed.run.id].slice(0, Math.max(...[...text.matchAll(/\$(\d)/g)].map(([, n]) => Number(n)))),
    });
  await run(
    `INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard, last_run_id, last_activity_at, changed_tx, last_tx, storage_kind, storage_pvc_name, expires_at)
     SELECT $1, 's' || i, 'p' || i % 100, 'b' || i % 5, 'k', i % 32, 'r' || i, now() - i * interval '1 s', 100 + i / 10, 100 + i / 10, CASE WHEN i % 2 = 0 THEN 'pvc' ELSE 'none' END::runplane.storage_kind,
       CASE WHEN i % 2 = 0 THEN 'v' END, CASE WHEN i % 2 = 0 THEN now() + (i - $2::int / 2) * interval '1 s' END FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.session_heads (tenant_id, session_id, header, incarnation, partition_key, shard, views_version, created_at, last_sequence)
    SELECT $1, 's' || i, '{}', 'x', 'k', i % 32, 1, now() - i * interval '1 s', 4 FROM generate_series(1, $2::int) i`);
  // One long log, and a few events of every other session.
  await run(`INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, data)
    SELECT $1, 'log', 1000 + i, gen_random_uuid(), 'custom/said', now(), '{"text":"x"}' FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, data, append_id, append_count)
    SELECT $1, 's' || i, n, gen_random_uuid(), 'custom/said', now(), '{"text":"x"}', 'a' || n, 1 FROM generate_series(1, $2::int) i, generate_series(0, 4) n`);
  await run(
    `INSERT INTO runplane.session_read_cursors (tenant_id, session_id, reader_id, session_version) SELECT $1, 's' || i, 'eve', 1 FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.session_readers (tenant_id, reader_id, read_tx) SELECT $1, 'ann', 100 + $2::int / 10 - 20`);
  await run(`INSERT INTO runplane.runs (tenant_id, id, project_id, session_id, workspace_ref, provider_id, backend_profile, execution_policy, input_hash, hash_version, status, failure_kind, claimed_by, claim_epoch,
      workspace_path, finished_at, max_attempts, on_runner_lost, partition_key, shard, updated_at, last_command_seq, last_event_seq, cancel_request_id, cancel_requested_at, cancel_reason, cancel_deadline_at, claim_deadline_at)
    SELECT $1, 'r' || i, 'p' || i % 100, 's' || i, '{}', 'd' || i % 10, 'b' || i % 5, '{}', 'h', 1, s.status::runplane.run_state,
      CASE WHEN s.status IN ('failed', 'blocked') THEN 'timeout' END, CASE WHEN s.status IN ('claimed', 'cancelling') THEN 'x' END, 1, 'w/' || i % 50,
      CASE WHEN s.status IN ('completed', 'failed', 'blocked') THEN now() END, 3, 'fail', 'k', i % 32, now() - i * interval '1 s', 1, 5,
      CASE WHEN s.status = 'cancelling' THEN 'q' END, CASE WHEN s.status = 'cancelling' THEN now() END, CASE WHEN s.status = 'cancelling' THEN 'r' END,
      CASE WHEN s.status = 'cancelling' THEN now() + (i + 3600) * interval '1 s' END, CASE WHEN s.status = 'pending' THEN now() + (i + 3600) * interval '1 s' END
    FROM generate_series(1, $2::int) i, LATERAL (SELECT (ARRAY['completed', 'completed', 'completed', 'completed', 'completed', 'failed', 'blocked', 'claimed', 'cancelling', 'pending'])[i % 10 + 1] AS status) s`);
  await run(
    `INSERT INTO runplane.run_search (tenant_id, run_id, text) SELECT $1, 'r' || i, concat_ws(E'\\n', 'r' || i, 'demo', CASE WHEN i % ($2::int / 5) = 0 THEN 'needle' END) FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.run_leases (tenant_id, run_id, runner_id, epoch, expires_at, heartbeat_at)
    SELECT $1, id, 'x', 1, now() + interval '1 hour', now() FROM runplane.runs WHERE status IN ('claimed', 'cancelling') AND id NOT LIKE 'run%' AND $2::int > 0 ORDER BY id LIMIT 5000`);
  await run(`INSERT INTO runplane.commands (tenant_id, id, run_id, session_id, seq, type, payload, payload_hash, hash_version, idempotency_key, state, finished_at, cancel_deadline_at)
    SELECT $1, 'c' || i, 'r' || i, 's' || i, 1, 'turn', '{}', 'h', 1, 'k', CASE WHEN i % 10 < 7 THEN 'completed' ELSE 'pending' END::runplane.command_state, CASE WHEN i % 10 < 7 THEN now() END,
      CASE WHEN i % 10 = 9 THEN now() + (i + 3600) * interval '1 s' END FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.dispatch_intents (tenant_id, id, run_id, command_id, kind, input, input_hash, hash_version, state, runner_job_id, dispatch_outcome, finished_at, ready_at)
    SELECT $1, 'i' || i, 'r' || i, 'c' || i, 'runner-job', '{}', 'h', 1, CASE WHEN i % 5 = 0 THEN 'pending' ELSE 'dispatched' END::runplane.intent_state, 'j' || i,
      CASE WHEN i % 5 = 0 THEN NULL ELSE 'created' END::runplane.dispatch_outcome, CASE WHEN i % 5 = 0 THEN NULL ELSE now() END, now() + (i - $2::int / 2) * interval '1 s' FROM generate_series(1, $2::int) i`);
  // One long run, and a few events of every other.
  await run(
    `INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output) SELECT $1, $3, 1000 + i, 'e' || i, 'assistant_message', '{"text":"x"}', true FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output)
    SELECT $1, 'r' || i, n, 'e' || i || '-' || n, CASE n WHEN 5 THEN 'terminal_status' ELSE 'assistant_message' END, '{"text":"x"}', true FROM generate_series(1, $2::int) i, generate_series(1, 5) n`);
  // More than a page of the feed may scan: of a table that it may read whole anyway, a scan is as good as the index.
  await run(`INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type, event_id, data)
    SELECT 100 + i / 10, i % 32, 'k', $1, 'run', $3, 1000 + i, 'assistant_message', 'e' || i, '{"text":"x"}' FROM generate_series(1, 3 * $2::int) i`);
  await run(
    `INSERT INTO runplane.queue_lanes (tenant_id, queue, lane, max_running) SELECT $1, 'big', 'l' || i, CASE i WHEN 3 THEN 1000000 END FROM generate_series(0, 4) i`,
  );
  await run(`INSERT INTO runplane.queue_tasks (tenant_id, id, project_id, queue, lane, title, priority, state, changed_tx, payload, payload_hash, hash_version, due, ready_at, owner, epoch,
      expires_at, attempts, attempt_id, last_retry_index, ended_at, created_at)
    SELECT $1, 'q' || i, 'p', 'big', 'l' || i % 5, 't', i % 7, s.state::runplane.queue_task_state, 100 + i / 10, '{"n":1}', 'h', 1, i % 10 IN (6, 7, 8), now() + (i + 3600) * interval '1 s',
      CASE s.state WHEN 'running' THEN 'x' END, CASE s.state WHEN 'pending' THEN 0 ELSE 1 END, CASE s.state WHEN 'running' THEN now() + (i + 3600) * interval '1 s' END,
      CASE s.state WHEN 'pending' THEN 0 ELSE 1 END, CASE s.state WHEN 'pending' THEN NULL ELSE 'a' || i END, CASE s.state WHEN 'pending' THEN -1 ELSE 0 END,
      CASE s.state WHEN 'completed' THEN now() END, now() - i * interval '1 s'
    FROM generate_series(1, $2::int) i, LATERAL (SELECT CASE WHEN i % 10 < 5 THEN 'completed' WHEN i % 10 = 5 THEN 'running' ELSE 'pending' END AS state) s`);
  await run(`INSERT INTO runplane.queue_attempts (tenant_id, task_id, attempt_id, retry_index, state, payload_hash, owner, epoch, activated_at, terminal_at)
    SELECT $1, id, attempt_id, 0, state::text::runplane.queue_attempt_state, 'h', 'x', 1, now(), ended_at FROM runplane.queue_tasks WHERE attempt_id IS NOT NULL AND queue = 'big' AND $2::int > 0`);
  await run(
    `INSERT INTO runplane.queue_task_read_cursors (tenant_id, task_id, reader_id, task_version) SELECT $1, 'q' || i, 'eve', 1 FROM generate_series(1, $2::int) i`,
  );
  await run(`INSERT INTO runplane.submissions (tenant_id, session_id, operation_id, submission_id, kind, payload, source, content_hash, hash_version, accepted_sequence, place)
    SELECT $1, 's' || i, 'o', 'u', 'k' || i % 2, '{"n":1}'::json, '{}'::json, 'h', 1, 0, 0 FROM generate_series(1, $2::int) i
    UNION ALL SELECT $1, 'log', 'o' || i, 'u' || i, 'k1', '{"n":1}'::json, '{}'::json, 'h', 1, 1000 + i, 1000 + i FROM generate_series(1, $2::int) i`);
  await run(`INSERT INTO runplane.submission_heads (tenant_id, session_id, operation_id, kind, place, state, owner, epoch, expires_at, attempts, ready_at)
    SELECT $1, 's' || i, 'o', 'k' || i % 2, 0, s.state::runplane.submission_head_state, CASE s.state WHEN 'claimed' THEN 'x' END, CASE s.state WHEN 'claimed' THEN 2 ELSE 1 END,
      CASE s.state WHEN 'claimed' THEN now() + (i + 3600) * interval '1 s' END, CASE WHEN i % 10 > 7 THEN 10 ELSE 1 END,
      CASE WHEN i % 10 < 5 OR i % 20 = 9 THEN now() - i * interval '1 s' ELSE now() + (i + 3600) * interval '1 s' END
    FROM generate_series(1, $2::int) i, LATERAL (SELECT CASE i % 10 WHEN 5 THEN 'claimed' ELSE 'waiting' END AS state) s
    UNION ALL SELECT $1, 'log', 'o1', 'k1', 1001, 'waiting', NULL, 1, NULL, 0, now() - interval '1 day'`);
  await run(`UPDATE runplane.session_heads SET lease_owner = 'somebody', lease_epoch = 1, lease_expires_at = now() + interval '1 hour'
    WHERE tenant_id = $1 AND session_id IN (SELECT 's' || i FROM generate_series($2::int - 500, $2::int) i)`);
  await t.db.pool.query('VACUUM ANALYZE');
  for (const over of TASK_LISTS) {
    const { cursor } = await listQueueTasks(t.db, { tenantId, ...over, limit: 200 });
    if (cursor !== null) deepestTasks.set(JSON.stringify(over), cursor);
  }
  deepest.tasks = (await listQueueTaskChanges(t.db, { tenantId, limit: 200 })).cursor;
  for (const [name, filter] of LISTS) {
    for (let page = 0, cursor: string | undefined; page < (name === 'all runs' ? 60 : 2); page += 1) {
      cursor = (await listRuns(t.db, { tenantId, ...filter, limit: 100, cursor })).cursor ?? undefined;
      if (cursor === undefined) break;
      lateCursors.set(name, cursor);
    }
  }
  const first = await readFeed(t.db.sql, { tenantId: undefined, limit: 200 });
  deepest.feed = first.cursor;
  deepest.logs = (await listSessionLogs(t.db, { tenantId, limit: 200 })).cursor ?? undefined;
  deepest.changes = (await listSessionChanges(t.db, { tenantId, limit: 200 })).cursor;
  for (const [name, { over }] of Object.entries(SESSION_LISTS)) {
    for (let page = 0; page < 10; page += 1) {
      deepest.sessions[name] =
        (await listSessions(t.db, { tenantId, ...over, cursor: deepest.sessions[name], limit: 200 })).cursor ?? undefined;
    }
  }
}
