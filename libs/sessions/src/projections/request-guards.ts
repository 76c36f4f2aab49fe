import {
  DecisionOutdated,
  InvalidRequest,
  OPEN_REQUESTS_MAX,
  TooManyOpenRequests,
  type DomainError,
  type SessionLogEvent,
} from '@runplane/contracts';
import { isLive } from '@runplane/database';
import { identifierField, integerField } from './fields';
import { RepeatedEvent } from './projection';
import { isSameResolution, requestHash, type OpenRequest, type RequestState, type Resolution } from './requests';

// What an append must refuse of approvals and input requests alike. Each kind brings its words and its refusals.

export interface RequestKind<State extends string> {
  /** As sentences have it: approval, input request. */
  readonly noun: string;
  readonly nouns: string;
  /** Of an event's data. */
  readonly idField: string;
  readonly resolutionField: string;
  /** Resolutions by a person, who must come in time. */
  readonly decisions: readonly State[];
  resolutionIn(event: SessionLogEvent): Resolution<State>;
  readonly refusals: {
    /** It was asked for before, with another content. */
    conflict(sessionId: string, id: string, state: State | 'pending'): DomainError;
    notFound(sessionId: string, id: string): DomainError;
    /** It was resolved before. */
    notPending(sessionId: string, id: string, resolved: { readonly state: State; readonly revision: number }): DomainError;
    /** Its time is over. */
    expired(sessionId: string, id: string): DomainError;
  };
}

type Guarded<Asked, State extends string> = RequestState<Asked, State> & { readonly sessionId: string };
const idOf = ({ idField }: { idField: string }, { data }: SessionLogEvent): string => identifierField(data, idField) ?? '';
const capital = (text: string): string => `${text[0]?.toUpperCase() ?? ''}${text.slice(1)}`;

/** A request needs an id of its own, and room. The same one again is a repeat. */
export function guardRequest<Asked, State extends string>(
  kind: RequestKind<State>,
  { sessionId, requests, open }: Guarded<Asked, State>,
  event: SessionLogEvent,
): void {
  const id = idOf(kind, event);
  const known = requests.get(id);
  if (known !== undefined) {
    const refusal = kind.refusals.conflict(sessionId, id, known.state);
    throw known.contentHash === requestHash(event) ? new RepeatedEvent(known.requestedSequence, refusal) : refusal;
  }
  if (open >= OPEN_REQUESTS_MAX) {
    throw new TooManyOpenRequests(`Session ${sessionId} has ${open} open ${kind.nouns}: wait for their answers.`, {
      sessionId,
      openMax: OPEN_REQUESTS_MAX,
    });
  }
}

/**
 * A decision needs a pending request whose time is not over, at the revision it looked at. `expired` needs one whose time is over. `cancelled`
 * is no decision: whatever asked has ended. Returns the request, and how it is to be resolved.
 */
export function guardResolution<Asked, State extends string>(
  kind: RequestKind<State>,
  { sessionId, requests }: Guarded<Asked, State>,
  event: SessionLogEvent,
): { known: OpenRequest<Asked, State>; wanted: Resolution<State> } {
  const id = idOf(kind, event);
  const known = requests.get(id);
  if (known === undefined) throw kind.refusals.notFound(sessionId, id);
  const { state, revision, resolution, expiresInMs } = known;
  const wanted = kind.resolutionIn(event);
  if (state !== 'pending') {
    const refusal = kind.refusals.notPending(sessionId, id, { state, revision });
    throw resolution !== undefined && isSameResolution(wanted, resolution) ? new RepeatedEvent(resolution.sequence, refusal) : refusal;
  }
  const expectedRevision = integerField(event.data, 'expected_revision') ?? 0;
  if (expectedRevision !== revision) {
    const facts = { id, expectedRevision, revision };
    throw new DecisionOutdated(`${capital(kind.noun)} ${id} is at revision ${revision}, not ${expectedRevision}: look at it again.`, facts);
  }
  if (wanted.state === 'expired' && isLive(expiresInMs)) {
    const message = `${kind.noun} ${id} has not expired`;
    throw new InvalidRequest(`The event does not fit: ${message}.`, { issues: [{ path: `data.${kind.resolutionField}`, message }] });
  }
  const isDecision = kind.decisions.includes(wanted.state);
  if (isDecision && !isLive(expiresInMs)) throw kind.refusals.expired(sessionId, id);
  return { known, wanted };
}
