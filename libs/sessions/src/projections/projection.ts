import type { DomainError, DriverState, JsonObject, SessionLogEvent } from '@runplane/contracts';
import type { Sql } from '@runplane/database';
import type { HistoryItem } from './context-history';

/** What the head row keeps of the fold of a log, as an append finds it. A SessionWriter holds it between its appends. */
export interface FoldedHead {
  readonly lastSequence: number;
  /** Null while nothing was appended. */
  readonly snapshot: JsonObject | null;
  readonly driverState: DriverState;
  readonly needsRecovery: boolean;
  readonly windowId: string | null;
  /** The one that has taken over what was said before it; null: none yet. */
  readonly firstWindowId: string | null;
  readonly openSubmissions: number;
  readonly openTurnSubmissions: number;
}

/** Columns of the head that a fold has changed; each belongs to one projection. `viewsVersion` is the pipeline's. */
export type HeadChange = Partial<Omit<FoldedHead, 'lastSequence'>>;

/** What every fold knows of its session before the first event of a batch. */
export interface FoldContext {
  readonly tenantId: string;
  readonly sessionId: string;
  readonly header: Readonly<Record<string, unknown>>;
  /** As it stands before the batch; a rebuild begins with an empty one. */
  readonly head: FoldedHead;
}

/** What nearly every append does to the views. */
export interface CommonWrites {
  /** Items that the history gets. */
  readonly history: readonly HistoryItem[];
  /** Turns whose routes, if there are any, have ended. */
  readonly endedTurns: readonly EndedTurn[];
}

export interface EndedTurn {
  readonly turnId: string;
  /** Milliseconds since 1970. */
  readonly endedAt: number;
}

/** What a `load` may look at: the events have no place yet, since head and views are read by one statement. */
export type UnplacedEvent = Omit<SessionLogEvent, 'sequence' | 'time'>;

/**
 * A built-in view of the log: one pure module each, the same code for live appends and for a rebuild (VIEW-1). An append reads with one
 * statement what `load` of all touched projections asks for, folds the whole batch in memory, and writes each view once, in the statement
 * that writes the events.
 *
 * Total: `apply` never throws, whatever stands in the log; what an append must refuse is refused by `guard`, which a rebuild does not ask.
 *
 * A rebuild folds the log page by page into rows beside the live ones, under a tenant id that no tenant can have (`d.tenant_id` and
 * `context.tenantId`; the session id is the real one), and switches at the end. So a part names its rows by `d` or the context, and a statement
 * over all tenants leaves such rows out: `ascii(tenant_id) >= 32`.
 */
export interface Projection<State = unknown> {
  readonly name: string;
  /** Raised with every change of the rules; the sum over all is stored per session (session_heads.views_version). */
  readonly version: number;
  touches(type: string): boolean;
  /**
   * The stored part of the view that these events need, as one expression that gives json; it names the session by the parameters it is given,
   * and needs no FROM. Undefined: nothing has to be read, so that the append can be one statement.
   */
  load(events: readonly UnplacedEvent[], session: Pick<FoldContext, 'tenantId' | 'sessionId'>): Sql | undefined;
  /** The state before the batch, of what `load` gave; undefined: it asked for nothing. */
  initial(loaded: unknown, context: FoldContext): State;
  /** Errors: the typed refusal of an event that must not enter the log. Asked with the state before the event. */
  guard?(state: State, event: SessionLogEvent): void;
  apply(state: State, event: SessionLogEvent): State;
  /**
   * What the fold changed, as parts of the WITH list of the append's statement, each whole with a name of its own that begins with the
   * projection's: `submission_ended AS (UPDATE …)`; a part may read those before it. They take their rows from `d` (one row: tenant_id,
   * session_id, now; none where the append is refused), and cross join whatever arrays they bring.
   */
  writes(state: State): readonly Sql[];
  /** What `writes` would write, where it is nothing else than this: then appends of several sessions can share a statement. */
  common?(state: State): Partial<CommonWrites> | undefined;
  /** What the fold changed on the session's head, which the pipeline writes with its one UPDATE. */
  head?(state: State): HeadChange;
  /**
   * Further parts that only a live append has: what is no view of the log but says who works on it, as the queue's head of the session. They
   * stand behind the parts of `writes` and obey the same rules; a rebuild leaves them out.
   */
  coordinate?(state: State): readonly Sql[];
}

/**
 * Thrown by a guard for an event that says what an earlier one has said: an append of it alone is answered with the earlier event, and nothing
 * is written; among others it is refused with `refusal`.
 */
export class RepeatedEvent extends Error {
  readonly sequence: number;
  readonly refusal: DomainError;

  constructor(sequence: number, refusal: DomainError) {
    super(`repeats event ${sequence}`);
    this.sequence = sequence;
    this.refusal = refusal;
  }
}
