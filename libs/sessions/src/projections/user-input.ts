import {
  DecisionOutdated,
  fieldOf,
  INPUT_OUTCOMES,
  InputRequestConflict,
  InputRequestExpired,
  InputRequestNotFound,
  InputRequestNotPending,
  InvalidRequest,
  OPEN_REQUESTS_MAX,
  TooManyOpenRequests,
  type InputOutcome,
  type JsonValue,
  type SessionLogEvent,
} from '@runplane/contracts';
import { isLive } from '@runplane/database';
import { requireFittingValue, requireInputSchema } from '../input-schema';
import { identifierField, integerField, textField } from './fields';
import { RepeatedEvent, type Projection } from './projection';
import {
  asking,
  changesOf,
  columnText,
  firstText,
  isSameResolution,
  jsonText,
  requestHash,
  resolving,
  wireTime,
  type RequestState,
  type Resolution,
} from './requests';
import { insertInputRequests, loadInputRequests, LoadedInputRequests, resolveInputRequests } from './user-input.sql';

// Requests for input: rows of `input_requests`, keyed by session and id.

/** The columns of a request that asking sets, as text. */
export interface AskedInput {
  readonly turnId: string;
  readonly prompt: string;
  readonly inputSchema: string;
  readonly runId: string | null;
  readonly commandId: string | null;
  readonly createdAt: string;
  readonly expiresAt: string;
}

export type UserInputFold = RequestState<AskedInput, InputOutcome> & {
  readonly sessionId: string;
  /** Of requests that were there before, as JSON text by id. */
  readonly schemas: ReadonlyMap<string, string>;
};

export const userInputProjection: Projection<UserInputFold> = {
  name: 'user_input',
  version: 1,
  touches: (type) => type === 'user-input/requested' || type === 'user-input/resolved',
  load: (events, session) =>
    loadInputRequests(
      session,
      events.flatMap(({ data }) => identifierField(data, 'request_id') ?? []),
    ),
  initial(loaded, { sessionId }) {
    if (loaded === undefined) return { sessionId, requests: new Map(), schemas: new Map(), open: 0 };
    const { open, rows } = LoadedInputRequests.parse(loaded);
    return {
      sessionId,
      open,
      requests: new Map(rows.map(({ id, schema: _, ...row }) => [id, { ...row, asked: undefined, isChanged: false }])),
      schemas: new Map(rows.map(({ id, schema }) => [id, schema])),
    };
  },
  guard(state, event) {
    if (event.type === 'user-input/requested') guardRequest(state, event);
    else guardResolution(state, event);
  },
  apply(state, event) {
    const id = identifierField(event.data, 'request_id');
    if (id === undefined) return state;
    if (event.type === 'user-input/requested') {
      const { sequence, time } = event;
      const expiresAt = integerField(event.data, 'expires_at_ms') ?? time;
      const facts = { contentHash: requestHash(event), sequence, expiresInMs: expiresAt - time };
      return { ...state, ...asking(state, id, askedIn(event, expiresAt), facts) };
    }
    return { ...state, ...resolving(state, id, integerField(event.data, 'expected_revision') ?? 0, resolutionIn(event)) };
  },
  writes(state) {
    const { asked, resolved } = changesOf(state);
    return [
      ...(asked.length === 0 ? [] : [insertInputRequests(asked)]),
      ...(resolved.length === 0 ? [] : [resolveInputRequests(resolved)]),
    ];
  },
};

function guardRequest({ sessionId, requests, open }: UserInputFold, event: SessionLogEvent): void {
  const requestId = identifierField(event.data, 'request_id') ?? '';
  const known = requests.get(requestId);
  if (known !== undefined) {
    const facts = { sessionId, requestId, state: known.state };
    const refusal = new InputRequestConflict(`Input ${requestId} was asked for before: another question needs an id of its own.`, facts);
    throw known.contentHash === requestHash(event) ? new RepeatedEvent(known.requestedSequence, refusal) : refusal;
  }
  if (open >= OPEN_REQUESTS_MAX) {
    throw new TooManyOpenRequests(`Session ${sessionId} has ${open} open input requests: wait for their answers.`, {
      sessionId,
      openMax: OPEN_REQUESTS_MAX,
    });
  }
  requireInputSchema(fieldOf(event.data, 'input_schema') ?? {});
}

/** As for approvals; an answer has to fit the schema that it was asked with. */
function guardResolution({ sessionId, requests, schemas }: UserInputFold, event: SessionLogEvent): void {
  const requestId = identifierField(event.data, 'request_id') ?? '';
  const known = requests.get(requestId);
  if (known === undefined) {
    throw new InputRequestNotFound(`Session ${sessionId} has no input request ${requestId}.`, { sessionId, requestId });
  }
  const { state, revision, resolution, expiresInMs } = known;
  const wanted = resolutionIn(event);
  if (state !== 'pending') {
    const facts = { sessionId, requestId, state, revision };
    const refusal = new InputRequestNotPending(`Input request ${requestId} is ${state} already.`, facts);
    throw resolution !== undefined && isSameResolution(wanted, resolution) ? new RepeatedEvent(resolution.sequence, refusal) : refusal;
  }
  const expectedRevision = integerField(event.data, 'expected_revision') ?? 0;
  if (expectedRevision !== revision) {
    const facts = { id: requestId, expectedRevision, revision };
    throw new DecisionOutdated(`Input request ${requestId} is at revision ${revision}, not ${expectedRevision}: look at it again.`, facts);
  }
  if (wanted.state === 'expired' && isLive(expiresInMs)) {
    const message = `input request ${requestId} has not expired`;
    throw new InvalidRequest(`The event does not fit: ${message}.`, { issues: [{ path: 'data.outcome', message }] });
  }
  const isDecision = wanted.state === 'answered' || wanted.state === 'declined';
  if (isDecision && !isLive(expiresInMs)) {
    throw new InputRequestExpired(`The time of input request ${requestId} is over.`, { sessionId, requestId });
  }
  if (wanted.state !== 'answered') return;
  const schema = JSON.parse(known.asked?.inputSchema ?? schemas.get(requestId) ?? '{}') as JsonValue;
  requireFittingValue(schema, fieldOf(event.data, 'value') ?? null);
}

function askedIn({ data, turnId, runId, commandId, time }: SessionLogEvent, expiresAt: number): AskedInput {
  return {
    turnId: firstText(columnText(fieldOf(data, 'turn_id')), turnId),
    prompt: columnText(fieldOf(data, 'prompt')) ?? '',
    inputSchema: jsonText(data, 'input_schema', {}),
    runId,
    commandId,
    createdAt: wireTime(time),
    expiresAt: wireTime(expiresAt),
  };
}

/** What is no outcome we know is an answer where it brings a value, else none. */
function resolutionIn({ data, time, sequence }: SessionLogEvent): Resolution<InputOutcome> {
  const word = textField(data, 'outcome');
  const value = fieldOf(data, 'value') ?? null;
  return {
    state: INPUT_OUTCOMES.find((known) => known === word) ?? (value === null ? 'declined' : 'answered'),
    value: JSON.stringify(value),
    actor: jsonText(data, 'actor', {}),
    reason: columnText(fieldOf(data, 'reason')) ?? null,
    at: time,
    sequence,
  };
}
