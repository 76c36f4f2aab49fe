import {
  fieldOf,
  INPUT_OUTCOMES,
  InputRequestConflict,
  InputRequestExpired,
  InputRequestNotFound,
  InputRequestNotPending,
  type InputOutcome,
  type JsonValue,
  type SessionLogEvent,
} from '@runplane/contracts';
import { requireFittingValue, requireInputSchema } from '../input-schema';
import { identifierField, integerField, textField } from './fields';
import type { Projection } from './projection';
import { guardRequest, guardResolution, type RequestKind } from './request-guards';
import {
  asking,
  changesOf,
  columnText,
  firstText,
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
    if (event.type !== 'user-input/requested') return guardAnswer(state, event);
    guardRequest(INPUT_REQUEST, state, event);
    requireInputSchema(fieldOf(event.data, 'input_schema') ?? {});
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

const INPUT_REQUEST: RequestKind<InputOutcome> = {
  noun: 'input request',
  nouns: 'input requests',
  idField: 'request_id',
  resolutionField: 'outcome',
  decisions: ['answered', 'declined'],
  resolutionIn,
  refusals: {
    conflict: (sessionId, requestId, state) =>
      new InputRequestConflict(`Input ${requestId} was asked for before: another question needs an id of its own.`, {
        sessionId,
        requestId,
        state,
      }),
    notFound: (sessionId, requestId) =>
      new InputRequestNotFound(`Session ${sessionId} has no input request ${requestId}.`, { sessionId, requestId }),
    notPending: (sessionId, requestId, resolved) =>
      new InputRequestNotPending(`Input request ${requestId} is ${resolved.state} already.`, { sessionId, requestId, ...resolved }),
    expired: (sessionId, requestId) => new InputRequestExpired(`The time of input request ${requestId} is over.`, { sessionId, requestId }),
  },
};

/** An answer has to fit the schema that it was asked with. */
function guardAnswer(state: UserInputFold, event: SessionLogEvent): void {
  const { known, wanted } = guardResolution(INPUT_REQUEST, state, event);
  if (wanted.state !== 'answered') return;
  const schema = JSON.parse(
    known.asked?.inputSchema ?? state.schemas.get(identifierField(event.data, 'request_id') ?? '') ?? '{}',
  ) as JsonValue;
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
