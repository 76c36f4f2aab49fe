import type { Stream } from '@runplane/database';
import type { SessionKey } from '../session.sql';
import { identifierField } from './fields';
import { canonicalJson, fieldOf, repairText, sha256Hex, type JsonObject, type JsonValue, type SessionLogEvent } from '@runplane/contracts';

// What approvals and input requests have in common: each is asked once under its id, and resolved once. Pure, and total: what an append must
// refuse, the guards beside have refused; of a log that came from elsewhere the first request and the first resolution count.

/** How a request was resolved. `value` is JSON text, null where the kind of request has none. */
export interface Resolution<State extends string> {
  readonly state: State;
  readonly value: string | null;
  readonly actor: string;
  readonly reason: string | null;
  readonly at: number;
  readonly sequence: number;
}

export interface OpenRequest<Asked, State extends string> {
  readonly contentHash: string;
  readonly revision: number;
  readonly state: State | 'pending';
  readonly requestedSequence: number;
  /** Negative or 0: its time is over. By the database's clock where it was read, by the events' times where it came in this batch. */
  readonly expiresInMs: number;
  /** How it was resolved before this batch, in this batch; undefined while it is pending. */
  readonly resolution: Resolution<State> | undefined;
  /** What to insert, for one that was asked in this batch. */
  readonly asked: Asked | undefined;
  /** True for one that was there before and was resolved in this batch. */
  readonly isChanged: boolean;
}

export interface RequestState<Asked, State extends string> {
  /** By id, those that the batch names. */
  readonly requests: ReadonlyMap<string, OpenRequest<Asked, State>>;
  /** How many of the session are pending. */
  readonly open: number;
}

/** Adds a request; one that is there already stays as it is. */
export function asking<Asked, State extends string>(
  state: RequestState<Asked, State>,
  id: string,
  asked: Asked,
  { contentHash, sequence, expiresInMs }: { contentHash: string; sequence: number; expiresInMs: number },
): RequestState<Asked, State> {
  if (state.requests.has(id)) return state;
  const request = { contentHash, revision: 0, state: 'pending', requestedSequence: sequence, expiresInMs, resolution: undefined, asked, isChanged: false } as const; // prettier-ignore
  return { requests: new Map(state.requests).set(id, request), open: state.open + 1 };
}

/** Resolves a pending request at the revision that the resolution names; any other is left alone. */
export function resolving<Asked, State extends string>(
  state: RequestState<Asked, State>,
  id: string,
  revision: number,
  resolution: Resolution<State>,
): RequestState<Asked, State> {
  const request = state.requests.get(id);
  if (request?.state !== 'pending' || request.revision !== revision) return state;
  const resolved = { ...request, state: resolution.state, revision: revision + 1, resolution, isChanged: request.asked === undefined };
  return { requests: new Map(state.requests).set(id, resolved), open: state.open - 1 };
}

/** Those that were asked in this batch, perhaps resolved already; and those that were there and were resolved. */
export function changesOf<Asked, State extends string>({ requests }: RequestState<Asked, State>) {
  const all = [...requests].map(([id, request]) => ({ id, ...request }));
  return {
    asked: all.flatMap(({ asked, ...request }) => (asked === undefined ? [] : [{ ...request, asked }])),
    resolved: all.flatMap(({ resolution, ...request }) => (request.isChanged && resolution ? [{ ...request, resolution }] : [])),
  };
}

/** Whether a resolution says what another has said, wherever it stands. */
export function isSameResolution<State extends string>(a: Resolution<State>, b: Resolution<State> | undefined): boolean {
  return b !== undefined && a.state === b.state && a.value === b.value && a.actor === b.actor && a.reason === b.reason;
}

/** The hash by which a repeated request is told from another one of the same id: of everything that was asked, and for which run. */
export function requestHash({ data, turnId, stepId, runId }: Pick<SessionLogEvent, 'data' | 'turnId' | 'stepId' | 'runId'>): string {
  const content: JsonObject = { data, turnId, stepId, runId };
  try {
    return sha256Hex(canonicalJson(content));
  } catch {
    return sha256Hex(JSON.stringify(content)); // an imported event may be deeper than what a call can send
  }
}

/** A text for a column, from data that may be anything: numbers as they read, other values as JSON. */
export function columnText(value: JsonValue | undefined): string | undefined {
  if (value === undefined || value === null) return undefined;
  return repairText(typeof value === 'string' ? value : JSON.stringify(value));
}

/** The first of these that says something. */
export const firstText = (...texts: readonly (string | null | undefined)[]): string =>
  texts.find((text) => text != null && text !== '') ?? '';

export const jsonText = (data: JsonObject, name: string, absent: JsonValue): string => {
  const value = fieldOf(data, name);
  return JSON.stringify(value === undefined ? absent : value);
};

const TIME_MS_MIN = Date.parse('0001-01-01T00:00:00.000Z');
const TIME_MS_MAX = Date.parse('9999-12-31T23:59:59.999Z');

/** A time that PostgreSQL and the wire have; what lies beyond counts as the last of them. */
export const wireTime = (ms: number): string =>
  new Date(Math.min(Math.max(Number.isNaN(ms) ? 0 : ms, TIME_MS_MIN), TIME_MS_MAX)).toISOString();

/** Under which names the hub's waiters know requests; ids may hold any separator. */
export const approvalStream = ({ tenantId, sessionId, approvalId }: SessionKey & { readonly approvalId: string }): Stream =>
  `approval:${JSON.stringify([tenantId, sessionId, approvalId])}`;
export const inputStream = ({ tenantId, sessionId, requestId }: SessionKey & { readonly requestId: string }): Stream =>
  `input:${JSON.stringify([tenantId, sessionId, requestId])}`;

type Resolving = Pick<SessionLogEvent, 'type' | 'data'>;

/** True for an event that resolves a request. */
export const isDecision = ({ type }: Resolving): boolean => type === 'approval/resolved' || type === 'user-input/resolved';

/** Who waits for what the event resolves. */
export function decisionStream(key: SessionKey, event: Resolving): Stream[] {
  if (!isDecision(event)) return [];
  const isApproval = event.type === 'approval/resolved';
  const id = identifierField(event.data, isApproval ? 'approval_id' : 'request_id');
  if (id === undefined) return [];
  return [isApproval ? approvalStream({ ...key, approvalId: id }) : inputStream({ ...key, requestId: id })];
}
