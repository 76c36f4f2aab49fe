import {
  type AcquireSessionLease,
  AppendedSessionEvents,
  type AppendRunSessionEvents,
  type AppendSessionEvents,
  CreatedSession,
  EVENT_LIST_ROWS_MAX,
  newId,
  ReleasedSessionLease,
  type ReleaseSessionLease,
  type RenewSessionLease,
  RevokedSessionLease,
  type SessionEvent,
  SessionEventPage,
  type SessionHeader,
  SessionLease,
  SessionLog,
  SessionLogList,
} from '@runplane/contracts';
import { callsOf } from './calls';
import { followSession, type FollowSessionOptions } from './follow-session';
import { RETRY_DEFAULT } from './retry';
import type { CallOptions, ClientOptions, Transport } from './transport';

export interface SessionPageOptions extends CallOptions {
  /** One of the three; none: from the start. */
  from?: number | undefined;
  after?: number | undefined;
  before?: number | undefined;
  /** Of the life of the id that the place is in, as an earlier page told it; of another one: 410 `other_incarnation`. */
  incarnation?: string | undefined;
  limit?: number | undefined;
  waitSeconds?: number | undefined;
}

const at = (sessionId: string): string => `/sessions/${encodeURIComponent(sessionId)}`;

/** Calls about the logs of sessions. */
export function sessionLogCalls(transport: Transport, options: ClientOptions) {
  const { get, post } = callsOf(transport);

  const readSessionEvents = (sessionId: string, { waitSeconds, ...place }: SessionPageOptions = {}): Promise<SessionEventPage> => {
    const { from, after, before, limit, incarnation, ...o } = place;
    return get(`${at(sessionId)}/events`, SessionEventPage, { from, after, before, incarnation, limit, wait: waitSeconds }, o);
  };

  return {
    /** The header names the session; the same one again finds it. */
    createSession: (header: SessionHeader, o?: CallOptions): Promise<CreatedSession> => post('/sessions', { header }, CreatedSession, o),

    getSessionLog: (sessionId: string, o?: CallOptions): Promise<SessionLog> => get(`${at(sessionId)}/log`, SessionLog, {}, o),

    /** Headers of all sessions, the newest first. */
    listSessionLogs: ({ cursor, limit, ...o }: CallOptions & { cursor?: string; limit?: number } = {}): Promise<SessionLogList> =>
      get('/session-logs', SessionLogList, { cursor, limit }, o),

    /** The append id is made here unless given, so that a repeat after a lost answer gets the answer of the first call. */
    appendSessionEvents: (
      sessionId: string,
      { appendId = newId('append'), ...append }: AppendSessionEvents,
      o?: CallOptions,
    ): Promise<AppendedSessionEvents> => post(`${at(sessionId)}/events`, { ...append, appendId }, AppendedSessionEvents, o),

    /** As the runner of the session's open turn, under the claim of its run. */
    appendRunSessionEvents: (
      runId: string,
      { appendId = newId('append'), ...append }: AppendRunSessionEvents,
      o?: CallOptions,
    ): Promise<AppendedSessionEvents> =>
      post(`/runs/${encodeURIComponent(runId)}/session-events`, { ...append, appendId }, AppendedSessionEvents, o),

    readSessionEvents,

    /** Every event behind a sequence, to the end of the log as it is when it is reached. */
    async *iterateSessionEvents(
      sessionId: string,
      { after = -1, ...o }: CallOptions & { after?: number } = {},
    ): AsyncGenerator<SessionEvent, void, undefined> {
      for (let last = after, incarnation: string | undefined; ;) {
        const page = await readSessionEvents(sessionId, { after: last, incarnation, limit: EVENT_LIST_ROWS_MAX, ...o });
        const { events, lastSequence } = page;
        ({ incarnation } = page);
        yield* events;
        last = events.at(-1)?.sequence ?? last;
        if (events.length === 0 || last >= lastSequence) return;
      }
    },

    /** Every event of a session's log, live, until the caller stops reading. */
    followSession: (sessionId: string, o: FollowSessionOptions = {}): AsyncGenerator<SessionEvent, never, undefined> =>
      followSession(transport, { ...RETRY_DEFAULT, ...options.retry }, sessionId, o),

    acquireSessionLease: (sessionId: string, lease: AcquireSessionLease, o?: CallOptions): Promise<SessionLease> =>
      post(`${at(sessionId)}/lease`, lease, SessionLease, o),

    renewSessionLease: (sessionId: string, lease: RenewSessionLease, o?: CallOptions): Promise<SessionLease> =>
      post(`${at(sessionId)}/lease/renew`, lease, SessionLease, o),

    releaseSessionLease: (sessionId: string, lease: ReleaseSessionLease, o?: CallOptions): Promise<ReleasedSessionLease> =>
      post(`${at(sessionId)}/lease/release`, lease, ReleasedSessionLease, o),

    /** For operators: takes the lease away from whoever holds it. */
    revokeSessionLease: (sessionId: string, o?: CallOptions): Promise<RevokedSessionLease> =>
      post(`${at(sessionId)}/lease/revoke`, undefined, RevokedSessionLease, o),
  };
}
