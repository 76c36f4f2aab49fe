import {
  Backend,
  BackendList,
  type BackendRegistration,
  type HeldSlot,
  ReleasedSlot,
  RenewedSlot,
  type RenewRunnerSlot,
  type ReserveRunnerSlot,
  RunnerJob,
  RunnerJobList,
  RunnerList,
  RunnerSlot,
  SavedRunnerJob,
  type SaveRunnerJob,
  type AcknowledgeCancel,
  type AdmissionOf,
  type AdmitSteer,
  AdmittedSteer,
  type AdmitTurn,
  AppendedEvents,
  type AppendEvents,
  type BusyPolicy,
  type Cancel,
  CancelledCommand,
  CancelledRun,
  CancelledSession,
  CancelProgress,
  CancelRequestPage,
  ClaimedRun,
  type ClaimRun,
  Command,
  CommandList,
  type CreateCommand,
  CreatedCommand,
  CreatedRun,
  type CreateRun,
  DispatchIntent,
  DispatchStatus,
  EVENT_LIST_ROWS_MAX,
  type Heartbeat,
  HeartbeatAnswer,
  type InterruptingTurn,
  MigrationContract,
  type ListRuns,
  type ListSessionEvents,
  newId,
  type Outcome,
  type PreviewRetention,
  type RegisterRunner,
  RebuildStatus,
  RetentionPreview,
  Run,
  RUN_LIST_ROWS_MAX,
  type RunEvent,
  RunEventCount,
  RunEventList,
  RunEventPage,
  RunExplanation,
  RunFacets,
  RunList,
  type RunListItem,
  Runner,
  RunResult,
  type RunState,
  Session,
  SessionEventList,
  SessionExplanation,
  SessionRebuild,
  StoreHealth,
  type StreamEnd,
  TurnAdmission,
  WAIT_SECONDS_MAX,
  ChangedSession,
  ExpiredStorageList,
  MarkedSessions,
  SessionChanges,
  SessionList,
  SessionReadCursor,
  SessionResourceRun,
  SessionSummary,
  UpsertedSession,
  type MarkSessionsRead,
  type MarkStorageEvicted,
  type RefreshSessionStorage,
  type SessionListState,
  type UpsertSession,
} from '@runplane/contracts';
import type { z } from 'zod';
import { callsOf } from './calls';
import { feedCalls } from './feed';
import type { FollowOptions } from './follow-log';
import { followRun } from './follow-run';
import { queueCalls } from './queue';
import { relayCalls } from './relay';
import { sessionLogCalls } from './session-log';
import { sessionViewCalls } from './session-views';
import { submissionCalls } from './submissions';
import { StillInterrupting } from './errors';
import { requestCalls } from './request-calls';
import { PATIENT, pauseFor, pauseMs, RETRY_DEFAULT } from './retry';
import { type CallOptions, type ClientOptions, createTransport } from './transport';

/** As ListRuns of the library, with `status` for its states. */
export interface RunFilter extends Omit<ListRuns, 'statuses'> {
  status?: readonly RunState[] | undefined;
}

export type SessionRuns = Pick<ListSessionEvents, 'runId' | 'runs'>;

export interface SessionFilter {
  state?: SessionListState | undefined;
  projectId?: string | undefined;
  backendProfile?: string | undefined;
  /** Whose unread marks to show; `unread` needs one. */
  readerId?: string | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

export interface PageOptions extends CallOptions {
  /** The last sequence or cursor that the caller has. */
  after?: number | undefined;
  limit?: number | undefined;
  waitSeconds?: number | undefined;
}

export interface CursorOptions extends CallOptions {
  /** Of the page before. */
  cursor?: string | undefined;
  limit?: number | undefined;
}

export type Client = ReturnType<typeof createClient>;

const id = encodeURIComponent;

/** A runner that listens stops within tens of milliseconds; one that does not, within its grace. */
const INTERRUPT_PAUSES = { ...RETRY_DEFAULT, pauseMsMin: 100, pauseMsMax: 2_000 };

/**
 * A typed client of the HTTP API. Refusals are thrown as ProblemError. Everything that can be repeated safely is repeated while the
 * trouble is a passing one, with pauses and bounds (`retry`); a `signal` ends a call at once with its own reason.
 */
export function createClient(options: ClientOptions) {
  const transport = createTransport(options);
  const { call, get, post, put } = callsOf(transport);

  const listRuns = ({ total, ...filter }: RunFilter = {}, o?: CallOptions): Promise<RunList> =>
    get('/runs', RunList, { ...filter, total: total === undefined ? undefined : String(total) }, o);

  const getResult = (runId: string, { waitSeconds, ...o }: CallOptions & { waitSeconds?: number } = {}): Promise<RunResult> =>
    get(`/runs/${id(runId)}/result`, RunResult, { wait: waitSeconds }, o);

  return {
    ...sessionLogCalls(transport, options),
    ...sessionViewCalls(transport),
    ...queueCalls(transport),
    ...feedCalls(transport, options),
    ...relayCalls(transport),

    ...submissionCalls(transport),
    ...requestCalls(call),

    /** The id is made here unless given, so that a repeat after a lost answer finds the run of the first call. */
    createRun: (
      run: CreateRun,
      { runId = newId('run'), ...o }: CallOptions & { runId?: string } = {},
    ): Promise<z.infer<typeof CreatedRun>> =>
      call({ method: 'PUT', path: `/runs/${id(runId)}`, body: run, answer: CreatedRun, repeatable: true }, o),

    listRuns,

    /** Every run that the filter finds, page by page. A run that changes meanwhile may be missing; one that does not change never is. */
    async *iterateRuns(filter: Omit<RunFilter, 'cursor' | 'total'> = {}, o?: CallOptions): AsyncGenerator<RunListItem, void, undefined> {
      yield* eachOfPages(
        (cursor) => listRuns({ limit: RUN_LIST_ROWS_MAX, ...filter, cursor }, o),
        ({ runs }) => runs,
      );
    },

    /** What the tenant's runs can be filtered by, and how many there are in each state. */
    getRunFacets: (o?: CallOptions): Promise<RunFacets> => get('/run-facets', RunFacets, {}, o),

    getRun: (runId: string, o?: CallOptions): Promise<Run> => get(`/runs/${id(runId)}`, Run, {}, o),

    explainRun: (runId: string, o?: CallOptions): Promise<RunExplanation> => get(`/runs/${id(runId)}/why`, RunExplanation, {}, o),

    createCommand: (
      runId: string,
      command: CreateCommand,
      { idempotencyKey = newId('key'), ...o }: CallOptions & { idempotencyKey?: string } = {},
    ): Promise<z.infer<typeof CreatedCommand>> => post(`/runs/${id(runId)}/commands`, command, CreatedCommand, o, idempotencyKey),

    listCommands: (runId: string, { after, limit, waitSeconds, ...o }: PageOptions = {}): Promise<z.infer<typeof CommandList>> =>
      get(`/runs/${id(runId)}/commands`, CommandList, { after, limit, wait: waitSeconds }, o),

    getCommand: (commandId: string, o?: CallOptions): Promise<Command> => get(`/commands/${id(commandId)}`, Command, {}, o),

    getDispatchIntent: (commandId: string, o?: CallOptions): Promise<DispatchIntent> =>
      get(`/commands/${id(commandId)}/intent`, DispatchIntent, {}, o),

    /**
     * The key names the turn: the same key is the same turn, also for another process that takes over from a dead one. With the busy policy
     * `interrupt` the call is repeated until the open turn has ended and this one is admitted: up to `interruptMsMax`
     * (StillInterrupting), the `signal`, or else the cancel's own deadline, behind which the server admits it. With `enqueue` the answer may be
     * `queued`: the turn starts by itself, and a repeat tells how it stands.
     */
    async admitTurn<Policy extends BusyPolicy = 'reject'>(
      sessionId: string,
      turn: AdmitTurn<Policy>,
      { idempotencyKey, interruptMsMax = Infinity, ...o }: CallOptions & { idempotencyKey: string; interruptMsMax?: number | undefined },
    ): Promise<Exclude<AdmissionOf<Policy>, InterruptingTurn>> {
      const startedAt = performance.now();
      for (let calls = 1; ; calls += 1) {
        const admission = await post(`/sessions/${id(sessionId)}/turns`, turn, TurnAdmission, o, idempotencyKey);
        if (admission.disposition !== 'interrupting') return admission as Exclude<AdmissionOf<Policy>, InterruptingTurn>;
        const pause = pauseMs(calls, INTERRUPT_PAUSES);
        if (performance.now() - startedAt + pause > interruptMsMax) throw new StillInterrupting(admission);
        await pauseFor(pause, o.signal);
      }
    },

    /** Gives the session's open turn words on its way. The key names the steer, as that of a turn does. */
    admitSteer: (
      sessionId: string,
      steer: AdmitSteer,
      { idempotencyKey, ...o }: CallOptions & { idempotencyKey: string },
    ): Promise<AdmittedSteer> => post(`/sessions/${id(sessionId)}/steers`, steer, AdmittedSteer, o, idempotencyKey),

    getSession: (sessionId: string, o?: CallOptions): Promise<Session> => get(`/sessions/${id(sessionId)}`, Session, {}, o),

    getHealth: (o?: CallOptions): Promise<StoreHealth> => get('/health', StoreHealth, {}, o),

    getMigrationContract: (o?: CallOptions): Promise<MigrationContract> => get('/migrations', MigrationContract, {}, o),

    getDispatchStatus: (o?: CallOptions): Promise<DispatchStatus> => get('/dispatch', DispatchStatus, {}, o),

    /** Sessions whose views wait to be built anew from their logs. */
    getRebuildStatus: (o?: CallOptions): Promise<RebuildStatus> => get('/rebuilds', RebuildStatus, {}, o),

    /** Has the views of a session built anew in the background. */
    requestSessionRebuild: (sessionId: string, o?: CallOptions): Promise<SessionRebuild> =>
      post(`/sessions/${id(sessionId)}/rebuild`, undefined, SessionRebuild, o),

    getSessionRebuild: (sessionId: string, o?: CallOptions): Promise<SessionRebuild> =>
      get(`/sessions/${id(sessionId)}/rebuild`, SessionRebuild, {}, o),

    explainSession: (sessionId: string, o?: CallOptions): Promise<SessionExplanation> =>
      get(`/sessions/${id(sessionId)}/why`, SessionExplanation, {}, o),

    /** Makes a session or changes it; what is left out stays, null clears. */
    upsertSession: (sessionId: string, session: UpsertSession, o?: CallOptions): Promise<UpsertedSession> =>
      put(`/sessions/${id(sessionId)}`, session, UpsertedSession, o),

    getSessionSummary: (sessionId: string, { readerId, ...o }: CallOptions & { readerId?: string } = {}): Promise<SessionSummary> =>
      get(`/sessions/${id(sessionId)}/summary`, SessionSummary, { readerId }, o),

    listSessions: (filter: SessionFilter = {}, o?: CallOptions): Promise<SessionList> => get('/sessions', SessionList, { ...filter }, o),

    /** Sessions in the order of their last changes, behind a cursor; follow `cursor`. */
    listSessionChanges: ({
      after,
      readerId,
      limit,
      ...o
    }: CallOptions & { after?: string; readerId?: string; limit?: number } = {}): Promise<SessionChanges> =>
      get('/session-changes', SessionChanges, { after, readerId, limit }, o),

    renameSession: (sessionId: string, title: string, o?: CallOptions): Promise<ChangedSession> =>
      post(`/sessions/${id(sessionId)}/rename`, { title }, ChangedSession, o),

    markSessionRead: (sessionId: string, readerId: string, o?: CallOptions): Promise<SessionReadCursor> =>
      post(`/sessions/${id(sessionId)}/read`, { readerId }, SessionReadCursor, o),

    markSessionsRead: (marks: MarkSessionsRead, o?: CallOptions): Promise<MarkedSessions> =>
      post('/session-reads', marks, MarkedSessions, o),

    getSessionResourceRun: (sessionId: string, o?: CallOptions): Promise<SessionResourceRun> =>
      get(`/sessions/${id(sessionId)}/resource-run`, SessionResourceRun, {}, o),

    refreshSessionStorage: (sessionId: string, storage: RefreshSessionStorage, o?: CallOptions): Promise<Session> =>
      put(`/sessions/${id(sessionId)}/storage`, storage, Session, o),

    markSessionStorageEvicted: (sessionId: string, report: MarkStorageEvicted, o?: CallOptions): Promise<ChangedSession> =>
      post(`/sessions/${id(sessionId)}/storage/evicted`, report, ChangedSession, o),

    listExpiredStorage: ({ cursor, limit, ...o }: CallOptions & { cursor?: string; limit?: number } = {}): Promise<ExpiredStorageList> =>
      get('/expired-storage', ExpiredStorageList, { cursor, limit }, o),

    cancelRun: (runId: string, cancel: Cancel = {}, o?: CallOptions): Promise<z.infer<typeof CancelledRun>> =>
      post(`/runs/${id(runId)}/cancel`, cancel, CancelledRun, o),

    cancelCommand: (commandId: string, cancel: Cancel = {}, o?: CallOptions): Promise<z.infer<typeof CancelledCommand>> =>
      post(`/commands/${id(commandId)}/cancel`, cancel, CancelledCommand, o),

    /** Stops whatever runs in the session; `run: null` where nothing does. */
    cancelSession: (sessionId: string, cancel: Cancel = {}, o?: CallOptions): Promise<z.infer<typeof CancelledSession>> =>
      post(`/sessions/${id(sessionId)}/cancel`, cancel, CancelledSession, o),

    listSessionCancelRequests: (
      sessionId: string,
      { cursor, limit, ...o }: CursorOptions = {},
    ): Promise<z.infer<typeof CancelRequestPage>> =>
      get(`/sessions/${id(sessionId)}/cancel-requests`, CancelRequestPage, { cursor, limit }, o),

    listCancelRequests: (runId: string, { cursor, limit, ...o }: CursorOptions = {}): Promise<z.infer<typeof CancelRequestPage>> =>
      get(`/runs/${id(runId)}/cancel-requests`, CancelRequestPage, { cursor, limit }, o),

    listEvents: (runId: string, { after, limit, waitSeconds, ...o }: PageOptions = {}): Promise<RunEventPage> =>
      get(`/runs/${id(runId)}/events`, RunEventPage, { after, limit, wait: waitSeconds }, o),

    countEvents: (runId: string, { after, ...o }: CallOptions & { after?: number | undefined } = {}): Promise<RunEventCount> =>
      get(`/runs/${id(runId)}/events/count`, RunEventCount, { after }, o),

    /** What was said in a run, to the end of its log as it is now. */
    iterateRunOutput: (runId: string, o?: CallOptions): AsyncGenerator<RunEvent, void, undefined> =>
      eachEvent((cursor) => get(`/runs/${id(runId)}/output`, RunEventList, { cursor, limit: EVENT_LIST_ROWS_MAX }, o)),

    /** What belongs to a command: its own events, those that name it as their target, the end of the run. */
    iterateCommandEvents: (runId: string, commandId: string, o?: CallOptions): AsyncGenerator<RunEvent, void, undefined> =>
      eachEvent((cursor) =>
        get(`/runs/${id(runId)}/commands/${id(commandId)}/events`, RunEventList, { cursor, limit: EVENT_LIST_ROWS_MAX }, o),
      ),

    /** Every event of a session's run (the named one, else the active, else the last), or of all its runs, the oldest first. */
    iterateSessionTrace: (sessionId: string, which: SessionRuns = {}, o?: CallOptions): AsyncGenerator<RunEvent, void, undefined> =>
      eachEvent((cursor) => get(`/sessions/${id(sessionId)}/trace`, SessionEventList, { ...which, cursor, limit: EVENT_LIST_ROWS_MAX }, o)),

    /** The same with what was said alone. */
    iterateSessionOutput: (sessionId: string, which: SessionRuns = {}, o?: CallOptions): AsyncGenerator<RunEvent, void, undefined> =>
      eachEvent((cursor) =>
        get(`/sessions/${id(sessionId)}/output`, SessionEventList, { ...which, cursor, limit: EVENT_LIST_ROWS_MAX }, o),
      ),

    followRun: (runId: string, o: FollowOptions = {}): AsyncGenerator<RunEvent, StreamEnd, undefined> =>
      followRun(transport, { ...RETRY_DEFAULT, ...options.retry }, runId, o),

    getResult,

    /** Waits for the run's end, however long it takes; `signal` bounds it. */
    async waitForResult(runId: string, o: CallOptions = {}): Promise<RunResult> {
      for (;;) {
        const result = await getResult(runId, { ...o, retry: { ...o.retry, ...PATIENT }, waitSeconds: WAIT_SECONDS_MAX });
        if (result.finished) return result;
      }
    },

    /** What retention would remove of the tenant, by its own policy or the one given; removes nothing. */
    previewRetention: (preview: Omit<PreviewRetention, 'dryRun'> = {}, o?: CallOptions): Promise<RetentionPreview> =>
      post('/admin/retention', { dryRun: true, ...preview }, RetentionPreview, o),

    registerRunner: (
      runner: RegisterRunner,
      { runnerId = newId('runner'), ...o }: CallOptions & { runnerId?: string } = {},
    ): Promise<Runner> => post('/runners', { runnerId, ...runner }, Runner, o),

    listRunners: (
      filter: { runId?: string; backendProfile?: string; cursor?: string; limit?: number } = {},
      o?: CallOptions,
    ): Promise<RunnerList> => get('/runners', RunnerList, { ...filter }, o),

    getRunner: (runnerId: string, o?: CallOptions): Promise<Runner> => get(`/runners/${id(runnerId)}`, Runner, {}, o),

    heartbeatRunner: (runnerId: string, o?: CallOptions): Promise<Runner> =>
      post(`/runners/${id(runnerId)}/heartbeat`, undefined, Runner, o),

    saveRunnerJob: (
      runId: string,
      job: SaveRunnerJob,
      { idempotencyKey = newId('key'), ...o }: CallOptions & { idempotencyKey?: string } = {},
    ): Promise<SavedRunnerJob> => post(`/runs/${id(runId)}/jobs`, job, SavedRunnerJob, o, idempotencyKey),

    listRunnerJobs: (
      runId: string,
      filter: { commandId?: string; cursor?: string; limit?: number } = {},
      o?: CallOptions,
    ): Promise<RunnerJobList> => get(`/runs/${id(runId)}/jobs`, RunnerJobList, { ...filter }, o),

    mergeRunnerJobResult: (runId: string, jobId: string, patch: Record<string, unknown>, o?: CallOptions): Promise<RunnerJob> =>
      post(`/runs/${id(runId)}/jobs/${id(jobId)}/result`, { patch }, RunnerJob, o),

    /** Reserve, make the runner, confirm. The owner is made here unless given, so that a repeat after a lost answer finds its place. */
    reserveRunnerSlot: (slot: Omit<ReserveRunnerSlot, 'owner'> & { owner?: string }, o?: CallOptions): Promise<RunnerSlot> =>
      post('/runner-slots', { owner: newId('slot'), ...slot }, RunnerSlot, o),

    renewRunnerSlot: (slot: RenewRunnerSlot, o?: CallOptions): Promise<z.infer<typeof RenewedSlot>> =>
      post('/runner-slots/renew', slot, RenewedSlot, o),

    /** Repeated only by whoever called: after a lost answer a repeat would be refused as lost. */
    confirmRunnerSlot: (slot: HeldSlot, o?: CallOptions): Promise<z.infer<typeof ReleasedSlot>> =>
      call({ method: 'POST', path: '/runner-slots/confirm', body: slot, answer: ReleasedSlot, repeatable: false }, o),

    releaseRunnerSlot: (slot: HeldSlot, o?: CallOptions): Promise<z.infer<typeof ReleasedSlot>> =>
      post('/runner-slots/release', slot, ReleasedSlot, o),

    listBackends: (o?: CallOptions): Promise<BackendList> => get('/backends', BackendList, {}, o),

    putBackend: (profile: string, backend: BackendRegistration, o?: CallOptions): Promise<Backend> =>
      call({ method: 'PUT', path: `/backends/${id(profile)}`, body: backend, answer: Backend, repeatable: true }, o),

    claimRun: (runId: string, claim: ClaimRun, o?: CallOptions): Promise<ClaimedRun> =>
      post(`/runs/${id(runId)}/claim`, claim, ClaimedRun, o),

    heartbeat: (runId: string, heartbeat: Heartbeat, o?: CallOptions): Promise<HeartbeatAnswer> =>
      post(`/runs/${id(runId)}/heartbeat`, heartbeat, HeartbeatAnswer, o),

    /** Repeated only with a producer sequence: without one a lost answer leaves open whether the events are stored. */
    appendEvents: (runId: string, append: AppendEvents, o?: CallOptions): Promise<AppendedEvents> =>
      call(
        {
          method: 'POST',
          path: `/runs/${id(runId)}/events`,
          body: append,
          answer: AppendedEvents,
          repeatable: append.producerSequence !== undefined,
        },
        o,
      ),

    ackCommand: (runId: string, commandId: string, epoch: number, o?: CallOptions): Promise<Command> =>
      post(`/runs/${id(runId)}/commands/${id(commandId)}/ack`, { epoch }, Command, o),

    finishCommand: (runId: string, commandId: string, finish: { epoch: number; outcome: Outcome }, o?: CallOptions): Promise<Command> =>
      post(`/runs/${id(runId)}/commands/${id(commandId)}/finish`, finish, Command, o),

    finishRun: (
      runId: string,
      finish: { epoch: number; outcome: Outcome; commandId?: string | undefined },
      o?: CallOptions,
    ): Promise<Run> => post(`/runs/${id(runId)}/finish`, finish, Run, o),

    acknowledgeCancel: (
      runId: string,
      acknowledge: z.input<typeof AcknowledgeCancel>,
      o?: CallOptions,
    ): Promise<z.infer<typeof CancelProgress>> => post(`/runs/${id(runId)}/cancel-acknowledgements`, acknowledge, CancelProgress, o),
  };
}

/** What stands on all pages of a list, in order, until there is no next one. */
async function* eachOfPages<Page extends { cursor: string | null }, Row>(
  read: (cursor: string | undefined) => Promise<Page>,
  rowsOf: (page: Page) => readonly Row[],
): AsyncGenerator<Row, void, undefined> {
  for (let cursor: string | undefined; ;) {
    const page = await read(cursor);
    yield* rowsOf(page);
    if (page.cursor === null) return;
    cursor = page.cursor;
  }
}

const eachEvent = (read: (cursor: string | undefined) => Promise<RunEventList>): AsyncGenerator<RunEvent, void, undefined> =>
  eachOfPages(read, ({ events }) => events);
