import {
  contentHash,
  fieldOf,
  HASH_VERSION,
  isPlainObject,
  OPEN_SUBMISSIONS_MAX,
  QUEUED_TURN_KIND,
  repairText,
  SubmissionClosed,
  SubmissionExists,
  SubmissionNotFound,
  SubmissionQueueFull,
  TURN_SUBMISSION_KINDS,
  type JsonObject,
  type JsonValue,
  type SessionLogEvent,
  type SubmissionState,
} from '@runplane/contracts';
import type { Stream } from '@runplane/database';
import { identifierField } from './fields';
import type { Projection, UnplacedEvent } from './projection';
import { coordinateSubmissions, loadSubmissions, LoadedSubmissions, writeSubmissions } from './submission.sql';

// Submissions as a fold of the log: accepted, ended, queued again. Guards keep an operation id to one submission, an end to one end, and the
// number of unfinished ones below its limit. Who works on the oldest one is coordination (submission_heads), which `coordinate` keeps in step:
// the head row names the oldest unfinished submission by its place (FIFO-1), and goes with the last one.

/** A submission that an event of the batch names, as it stands after the events so far. */
export interface KnownSubmission {
  readonly operationId: string;
  readonly submissionId: string;
  readonly kind: string;
  readonly state: SubmissionState;
  /** Its order; the sequence of the event that accepted it or queued it again. */
  readonly place: number;
  /** The event that ended it; null while it is unfinished. */
  readonly ended: { readonly sequence: number; readonly time: number } | null;
  /** Why it failed, last time. */
  readonly lastError: string | null;
  /** The claim epoch with which it left the head of the queue. */
  readonly claimEpoch: number;
  /** What the batch itself has accepted; null for one that stood before. */
  readonly accepted: AcceptedSubmission | null;
}

export interface AcceptedSubmission {
  readonly sequence: number;
  readonly time: number;
  readonly payloadText: string;
  readonly sourceText: string;
  readonly contentHash: string;
  readonly hashVersion: number;
  readonly expectedRevision: number | null;
}

export interface Submissions {
  readonly sessionId: string;
  /** By operation id. */
  readonly known: ReadonlyMap<string, KnownSubmission>;
  /** Operations that the batch has changed, of those that stood before. */
  readonly changed: ReadonlySet<string>;
  readonly openBefore: number;
  readonly open: number;
  readonly openTurns: number;
}

const TYPES = new Set(['submission/accepted', 'submission/completed', 'submission/failed', 'submission/requeued']);

/** What claimers of a tenant's submissions wait for, and those of all tenants. Hints only: whoever waits also asks by itself. */
export const submissionStreams = (tenantId: string): [ofTenant: Stream, ofAll: Stream] => [`submissions:${tenantId}`, ALL_SUBMISSIONS];
export const ALL_SUBMISSIONS: Stream = 'all-submissions:';
/** Another submission may be the oldest of its session after this event. */
export const movesQueue = ({ type }: { type: string }): boolean => TYPES.has(type);

/** Told when a turn may have come to the head of a free session's queue. */
export const TURN_QUEUED: Stream = 'turns:queued';
/** Ends are not told apart here: a turn behind one of another kind is found by whoever looks each second. */
export const queuesTurn = ({ type, data }: { type: string; data: JsonObject }): boolean =>
  type === 'submission/requeued' || (type === 'submission/accepted' && fieldOf(data, 'kind') === QUEUED_TURN_KIND);

// Keys: what is no identifier is none, also in a log that no append has checked.
const operationIdOf = (data: JsonObject): string => identifierField(data, 'operation_id') ?? '';
const submissionIdOf = (data: JsonObject): string => identifierField(data, 'submission_id') ?? '';

/** By which a repeat is told from a conflict (IDEM-1): what is to be done and where it came from, not which revision was expected. */
export function submissionHash(content: { kind: string; payload: JsonValue; source: JsonObject }): string {
  return contentHash(content).hash;
}

const isTurn = (kind: string): boolean => (TURN_SUBMISSION_KINDS as readonly string[]).includes(kind);

export const submissionProjection: Projection<Submissions> = {
  name: 'submission',
  version: 1,
  touches: (type) => TYPES.has(type),
  load: (events, session) => loadSubmissions(namedIn(events), session),

  initial(loaded, { sessionId, head }) {
    const found = LoadedSubmissions.parse(loaded ?? []);
    const known = new Map(found.map((row) => [row.operationId, { ...row, accepted: null }]));
    const { openSubmissions: open, openTurnSubmissions: openTurns } = head;
    return { sessionId, known, changed: new Set(), openBefore: open, open, openTurns };
  },

  guard(state, { type, data }) {
    const operationId = operationIdOf(data);
    const { sessionId, open } = state;
    if (type === 'submission/accepted') {
      const submissionId = submissionIdOf(data);
      const twin = state.known.get(operationId) ?? [...state.known.values()].find((each) => each.submissionId === submissionId);
      if (twin !== undefined) throw exists(sessionId, twin);
      assertRoom(sessionId, open);
      return;
    }
    const known = state.known.get(operationId);
    if (known === undefined) throw submissionNotFound(sessionId, operationId);
    const from = type === 'submission/requeued' ? 'failed' : 'pending';
    if (known.state !== from) throw submissionClosed(sessionId, known);
    if (type === 'submission/requeued') assertRoom(sessionId, open);
  },

  apply(state, event) {
    return event.type === 'submission/accepted' ? accept(state, event) : move(state, event);
  },

  head: ({ open, openTurns }) => ({ openSubmissions: open, openTurnSubmissions: openTurns }),
  writes: (state) => writeSubmissions(state),
  coordinate: (state) => coordinateSubmissions(state),
};

function namedIn(events: readonly UnplacedEvent[]): { operationIds: string[]; submissionIds: string[] } {
  const touching = events.filter(({ type }) => TYPES.has(type));
  const accepted = touching.filter(({ type }) => type === 'submission/accepted');
  return {
    operationIds: [...new Set(touching.map(({ data }) => operationIdOf(data)))],
    submissionIds: [...new Set(accepted.map(({ data }) => submissionIdOf(data)))],
  };
}

/** A log that no guard has seen may accept an operation twice: the first one counts. */
function accept(state: Submissions, { sequence, time, data }: SessionLogEvent): Submissions {
  const operationId = operationIdOf(data);
  const submissionId = submissionIdOf(data);
  const kind = identifierField(data, 'kind') ?? '';
  if (operationId === '' || submissionId === '' || state.known.has(operationId)) return state;
  if ([...state.known.values()].some((each) => each.submissionId === submissionId)) return state;
  const sent = fieldOf(data, 'payload');
  const payload = sent === undefined ? {} : sent; // null is a payload
  const given = fieldOf(data, 'source');
  const source: JsonObject = isPlainObject(given) ? given : {};
  const revision = fieldOf(data, 'expected_revision');
  const submission: KnownSubmission = {
    operationId,
    submissionId,
    kind,
    state: 'pending',
    place: sequence,
    ended: null,
    lastError: null,
    claimEpoch: 0,
    accepted: {
      sequence,
      time,
      payloadText: JSON.stringify(payload),
      sourceText: JSON.stringify(source),
      contentHash: submissionHash({ kind, payload, source }),
      hashVersion: HASH_VERSION,
      expectedRevision: typeof revision === 'number' && Number.isSafeInteger(revision) ? revision : null,
    },
  };
  return counted({ ...state, known: new Map(state.known).set(operationId, submission) }, kind, 1);
}

const TARGETS: Readonly<Record<string, SubmissionState>> = {
  'submission/completed': 'completed',
  'submission/failed': 'failed',
  'submission/requeued': 'pending',
};

/** Ends an unfinished one, or queues an ended one again. In a log that no guard has seen the last end counts; what is not known stays so. */
function move(state: Submissions, { type, sequence, time, data }: SessionLogEvent): Submissions {
  const operationId = operationIdOf(data);
  const before = state.known.get(operationId);
  const target = TARGETS[type];
  if (before === undefined || target === undefined) return state;
  const again = target === 'pending';
  if (again && before.state === 'pending') return state;
  const error = fieldOf(data, 'error');
  const lastError = again ? before.lastError : target === 'failed' && typeof error === 'string' ? repairText(error) : null;
  const placed = again ? { place: sequence, ended: null } : { ended: { sequence, time } };
  const after: KnownSubmission = { ...before, ...placed, state: target, lastError };
  const next: Submissions = {
    ...state,
    known: new Map(state.known).set(operationId, after),
    changed: before.accepted === null ? new Set([...state.changed, operationId]) : state.changed,
  };
  if (again) return counted(next, before.kind, 1);
  return before.state === 'pending' ? counted(next, before.kind, -1) : next;
}

function counted(state: Submissions, kind: string, by: 1 | -1): Submissions {
  return { ...state, open: state.open + by, openTurns: state.openTurns + (isTurn(kind) ? by : 0) };
}

function assertRoom(sessionId: string, open: number): void {
  if (open < OPEN_SUBMISSIONS_MAX) return;
  throw new SubmissionQueueFull(`Session ${sessionId} has ${open} unfinished submissions: repeat the call when some have ended.`, {
    sessionId,
    open,
    openMax: OPEN_SUBMISSIONS_MAX,
  });
}

function exists(sessionId: string, { operationId, submissionId }: KnownSubmission): SubmissionExists {
  return new SubmissionExists(`Session ${sessionId} has accepted operation ${operationId} as submission ${submissionId} before.`, {
    sessionId,
    operationId,
    submissionId,
  });
}

export function submissionNotFound(sessionId: string, operationId: string): SubmissionNotFound {
  return new SubmissionNotFound(`Session ${sessionId} has no submission ${operationId}.`, { sessionId, operationId });
}

export function submissionClosed(sessionId: string, { operationId, state }: { operationId: string; state: string }): SubmissionClosed {
  return new SubmissionClosed(`Submission ${operationId} of session ${sessionId} is ${state}.`, { sessionId, operationId, state });
}
