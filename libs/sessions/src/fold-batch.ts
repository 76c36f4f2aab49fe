import { sessionEventId, type SessionLogEvent } from '@runplane/contracts';
import type { Sql } from '@runplane/database';
import type { CommonWrites, FoldContext, FoldedHead, HeadChange, Projection, UnplacedEvent } from './projections/projection';
import type { StorableSessionEvent } from './session-event-input';
import type { HeadRow } from './session-head.sql';

// From events and a head to what is written, without a database. Sequences and ids are given here, guards asked, views folded; the statement that
// writes is guarded by the sequence and the views that the head was read at, so that what was decided here is right exactly when it is written.

/** An event with its place in the log. */
export interface PlacedEvent extends SessionLogEvent {
  readonly eventId: string;
  readonly dataText: string;
  /** `time` as the wire has it. */
  readonly timeText: string;
}

export interface FoldedBatch {
  readonly events: readonly PlacedEvent[];
  /** Parts of the statement that writes the views, but for what is in `common`. */
  readonly parts: readonly Sql[];
  readonly common: CommonWrites;
  readonly head: HeadChange;
  /** A fold has failed: the views of this session are stale from here on, and a rebuild repairs them. The fact is recorded all the same. */
  readonly stale: boolean;
}

/** Projections that an append of these events concerns, in their order. */
export function touchedBy(projections: readonly Projection[], events: readonly UnplacedEvent[]): Projection[] {
  return projections.filter((projection) => events.some(({ type }) => projection.touches(type)));
}

/** What each of them must read first; undefined for those that need nothing but the head. */
export function loadsOf(
  projections: readonly Projection[],
  events: readonly UnplacedEvent[],
  session: { tenantId: string; sessionId: string },
): (Sql | undefined)[] {
  return projections.map((projection) =>
    projection.load(
      events.filter(({ type }) => projection.touches(type)),
      session,
    ),
  );
}

/** Where the events will stand: right behind the head. Times that nobody gave are `now`. */
export function placeEvents(
  events: readonly StorableSessionEvent[],
  head: Pick<HeadRow, 'tenantId' | 'incarnation' | 'storeId' | 'lastSequence'>,
  now: number,
): PlacedEvent[] {
  const nowText = new Date(now).toISOString();
  return events.map((event, i) => {
    const sequence = head.lastSequence + 1 + i;
    const { type, data, dataText, turnId, stepId, runId, commandId } = event;
    const timeText = event.time === null ? nowText : new Date(event.time).toISOString();
    const eventId = sessionEventId(head.storeId, head, sequence);
    // Field by field: a spread that overrides fields takes 30 times as long, which counts in an append of many events.
    return { sequence, eventId, type, time: event.time ?? now, timeText, data, dataText, turnId, stepId, runId, commandId };
  });
}

/** `loaded`: of each touched projection what its load gave, parsed; undefined where it asked for nothing. Errors: what a guard refuses. */
export function foldBatch(
  touched: readonly Projection[],
  {
    events,
    head,
    loaded,
  }: { events: readonly PlacedEvent[]; head: FoldedHead & Pick<HeadRow, 'tenantId' | 'sessionId' | 'header'>; loaded: readonly unknown[] },
): FoldedBatch {
  const context: FoldContext = { tenantId: head.tenantId, sessionId: head.sessionId, header: head.header, head };
  const parts: Sql[] = [];
  let common: CommonWrites = { history: [], endedTurns: [] };
  let change: HeadChange = {};
  let stale = false;
  for (const [i, projection] of touched.entries()) {
    const folded = foldOne(projection, events, projection.initial(loaded[i], context));
    if (folded === undefined) {
      stale = true;
      continue;
    }
    const own = projection.common?.(folded.state);
    if (own === undefined) parts.push(...projection.writes(folded.state), ...(projection.coordinate?.(folded.state) ?? []));
    else common = { ...common, ...own };
    change = { ...change, ...projection.head?.(folded.state) };
  }
  return { events, parts, common, head: change, stale };
}

/** The state behind the events; undefined where the fold has failed. A guard's refusal goes through. */
function foldOne<State>(projection: Projection<State>, events: readonly PlacedEvent[], initial: State): { state: State } | undefined {
  let state = initial;
  for (const event of events) {
    if (!projection.touches(event.type)) continue;
    projection.guard?.(state, event);
    try {
      state = projection.apply(state, event);
    } catch {
      return undefined;
    }
  }
  return { state };
}
