import {
  ChannelBindingList,
  ChannelDeliveryList,
  type ContextRole,
  ContextItemList,
  ContextMatchList,
  ContextNote,
  ContextNoteList,
  type DeliveryState,
  ProjectedValueList,
  RecoveryCandidateList,
  type SearchMode,
  SessionContextWindowList,
  SessionSnapshotAnswer,
} from '@runplane/contracts';
import { callsOf } from './calls';
import type { CallOptions, Transport } from './transport';

export interface ListOptions extends CallOptions {
  /** Of the page before. */
  cursor?: string | undefined;
  limit?: number | undefined;
}

export interface HistoryOptions extends ListOptions {
  windowId?: string | undefined;
  role?: ContextRole | undefined;
}

const at = (sessionId: string): string => `/sessions/${encodeURIComponent(sessionId)}`;

/** Calls that read views of the logs of sessions. Lists are followed by their `cursor`, until it is null. */
export function sessionViewCalls(transport: Transport) {
  const { get } = callsOf(transport);

  return {
    getSessionSnapshot: (sessionId: string, o?: CallOptions): Promise<SessionSnapshotAnswer> =>
      get(`${at(sessionId)}/snapshot`, SessionSnapshotAnswer, {}, o),

    /** Sessions that a cold start has to look at. */
    listRecoveryCandidates: ({ cursor, limit, ...o }: ListOptions = {}): Promise<RecoveryCandidateList> =>
      get('/recovery-candidates', RecoveryCandidateList, { cursor, limit }, o),

    /** The values of one projection over all sessions. */
    listProjections: (key: string, { cursor, limit, ...o }: ListOptions = {}): Promise<ProjectedValueList> =>
      get(`/projections/${encodeURIComponent(key)}`, ProjectedValueList, { cursor, limit }, o),

    /** The values of all projections for one session. */
    listSessionProjections: (sessionId: string, o?: CallOptions): Promise<ProjectedValueList> =>
      get(`${at(sessionId)}/projections`, ProjectedValueList, {}, o),

    listChannelBindings: (sessionId: string, { cursor, limit, ...o }: ListOptions = {}): Promise<ChannelBindingList> =>
      get(`${at(sessionId)}/channel-bindings`, ChannelBindingList, { cursor, limit }, o),

    listChannelDeliveries: (
      sessionId: string,
      { cursor, limit, state, ...o }: ListOptions & { state?: DeliveryState | undefined } = {},
    ): Promise<ChannelDeliveryList> => get(`${at(sessionId)}/channel-deliveries`, ChannelDeliveryList, { cursor, limit, state }, o),

    /** The current one first. */
    listContextWindows: (sessionId: string, { cursor, limit, ...o }: ListOptions = {}): Promise<SessionContextWindowList> =>
      get(`${at(sessionId)}/context-windows`, SessionContextWindowList, { cursor, limit }, o),

    /** Without their content. */
    listContextNotes: (sessionId: string, { cursor, limit, ...o }: ListOptions = {}): Promise<ContextNoteList> =>
      get(`${at(sessionId)}/context-notes`, ContextNoteList, { cursor, limit }, o),

    getContextNote: (sessionId: string, path: string, o?: CallOptions): Promise<ContextNote> =>
      get(`${at(sessionId)}/context-note`, ContextNote, { path }, o),

    /** What was said in a window, the current one unless told otherwise; oldest first. */
    listContextHistory: (sessionId: string, { cursor, limit, windowId, role, ...o }: HistoryOptions = {}): Promise<ContextItemList> =>
      get(`${at(sessionId)}/context-history`, ContextItemList, { cursor, limit, windowId, role }, o),

    /** `literal`, unless told otherwise: the text as it is. Newest first. */
    searchContextHistory: (
      sessionId: string,
      query: string,
      { cursor, limit, mode, windowId, role, ...o }: HistoryOptions & { mode?: SearchMode | undefined } = {},
    ): Promise<ContextMatchList> =>
      get(`${at(sessionId)}/context-search`, ContextMatchList, { query, mode, cursor, limit, windowId, role }, o),
  };
}
