import { freeText, normalizeJson, redactError, type JsonObject, type SessionLogEvent, type SessionProjection } from '@runplane/contracts';
import { z } from 'zod';
import { isJsonObject } from './fields';
import type { Projection } from './projection';
import { teamLoad, teamWrites } from './team.sql';

// Projections that a team registers with openDb, fed as the built-in ones are. Other processes may append without them, so that each first catches
// up with what it has not seen, by at most so many events; where that is not enough its view is stale, and rebuilt in the background. Whatever its code
// does, the fact is recorded: an error marks the view of that session as stale, with its value as it was.

/** What a view catches up with in one append. */
export const CATCH_UP_EVENTS_MAX = 1_000;
export const CATCH_UP_BYTES_MAX = 4 * 1024 * 1024;
/** Behind those, of so many only the types are looked at: events that a projection does not know do not keep it from catching up. */
export const CATCH_UP_TYPES_EVENTS_MAX = 20_000;

export interface TeamState {
  readonly sessionId: string;
  readonly isStored: boolean;
  readonly value: JsonObject | undefined;
  readonly sequence: number;
  readonly appliedSequence: number;
  /** Nothing is applied, and nothing written but the reason: what the projection is not the one to change, or cannot. */
  readonly standsStill: 'stale' | 'newer' | undefined;
  /** Why the view is stale from here on. */
  readonly failure: string | undefined;
}

const int8 = z.string().transform(Number);
const Loaded = z.object({
  view: z
    .object({
      version: z.int(),
      sequence: int8,
      appliedSequence: int8,
      staleReason: z.string().nullable(),
      value: z.custom<JsonObject>(isJsonObject),
    })
    .nullable(),
  missed: z
    .array(
      z.object({
        sequence: int8,
        type: z.string(),
        time: int8,
        turnId: z.string().nullable(),
        stepId: z.string().nullable(),
        runId: z.string().nullable(),
        commandId: z.string().nullable(),
        data: z.custom<JsonObject>(isJsonObject),
      }),
    )
    .nullable(),
  /** The types of what comes behind `missed`, and through which event; null: nothing does. */
  rest: z.object({ types: z.array(z.string()).nullable(), through: int8.nullable() }),
  /** Of the log, as it was read; null: it is empty, or the rows of a rebuild. */
  lastSequence: int8.nullable(),
});

/** `place`: of the projection in the registry, by which its parts of the statement are named. */
export function teamProjection(registered: SessionProjection, place: number): Projection<TeamState> {
  const { key, version } = registered;
  return {
    name: key,
    version,
    touches: (type) => touches(registered, type),
    load: (_, session) =>
      teamLoad(session, { key, eventsMax: CATCH_UP_EVENTS_MAX, bytesMax: CATCH_UP_BYTES_MAX, typesEventsMax: CATCH_UP_TYPES_EVENTS_MAX }),

    initial(loaded, { sessionId }) {
      const { view, missed, rest, lastSequence } = Loaded.parse(loaded);
      const empty: TeamState = {
        sessionId,
        isStored: view !== null,
        value: view?.value,
        sequence: view?.sequence ?? -1,
        appliedSequence: view?.appliedSequence ?? -1,
        standsStill: undefined,
        failure: undefined,
      };
      if (view !== null && view.version > version) return { ...empty, standsStill: 'newer' };
      if (view !== null && view.staleReason !== null) return { ...empty, standsStill: 'stale' };
      if (view !== null && view.version < version)
        return failed(empty, `was made by version ${view.version}, the rules are of version ${version}`);
      const caughtUp = (missed ?? []).reduce((state, event) => apply(registered, state, event), empty);
      if (caughtUp.standsStill !== undefined) return caughtUp;
      const { types, through } = rest;
      const isOver = through !== null && !types?.some((type) => touches(registered, type));
      const appliedSequence = isOver ? through : caughtUp.appliedSequence;
      if (appliedSequence < (lastSequence ?? -1)) return failed(empty, 'is further behind the log than one append can catch up with');
      return { ...caughtUp, appliedSequence };
    },

    apply: (state, event) => apply(registered, state, event),

    writes(state) {
      const { standsStill, failure } = state;
      if (standsStill === 'newer' || (standsStill === 'stale' && failure === undefined)) return [];
      const checked = failure === undefined ? storable(state) : state;
      return [teamWrites(`team_view_${place}`, { key, version }, checked)];
    },
  };
}

/** Where its code throws, the fold is asked too, and says why. */
function touches(registered: SessionProjection, type: string): boolean {
  try {
    return registered.touches(type);
  } catch {
    return true;
  }
}

/** What the event makes of the value; events that the projection does not know only move its place. */
function apply(registered: SessionProjection, state: TeamState, event: SessionLogEvent): TeamState {
  if (state.standsStill !== undefined) return state;
  try {
    if (!registered.touches(event.type)) return { ...state, appliedSequence: event.sequence };
    const value = registered.apply(state.value ?? registered.initial(state.sessionId), event);
    return { ...state, value, sequence: event.sequence, appliedSequence: event.sequence };
  } catch (error) {
    return failed(state, `event ${event.sequence}: ${redactError(error)}`);
  }
}

/** The value as it can be stored; one that is no JSON, or too large, makes the view stale. */
function storable(state: TeamState): TeamState {
  try {
    const value: unknown = state.value === undefined ? {} : normalizeJson(state.value).value;
    if (!isJsonObject(value)) throw new TypeError('the value is no JSON object');
    return { ...state, value };
  } catch (error) {
    return failed(state, redactError(error));
  }
}

const failed = (state: TeamState, why: string): TeamState => ({ ...state, standsStill: 'stale', failure: freeText(why) });
