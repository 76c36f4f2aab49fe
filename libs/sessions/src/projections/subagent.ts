import { fieldOf, type JsonObject, type SessionLogEvent } from '@runplane/contracts';
import { z } from 'zod';
import { isJsonObject, textField } from './fields';
import type { Projection } from './projection';
import { viewLoad, viewWrites } from './view.sql';

export const SUBAGENT_KEY = 'subagentIdentity';
const VERSION = 1;

const DESCRIPTOR = 'subagent/descriptor';
const STATUSES = new Set(['activation-started', 'activation-ended', 'settled', 'ended', 'failed'].map((status) => `subagent/${status}`));

export interface SubagentState {
  readonly sessionId: string;
  readonly parentSessionId: string | null;
  readonly value: JsonObject | undefined;
  /** The event that last changed the value; undefined while none of the batch has. */
  readonly sequence: number | undefined;
}

const Loaded = z.object({ value: z.custom<JsonObject>(isJsonObject) }).nullish();

/** Who a subagent's session is: what its descriptor says, and how it stands. */
export const subagentProjection: Projection<SubagentState> = {
  name: 'subagent',
  version: VERSION,
  touches: (type) => type === DESCRIPTOR || STATUSES.has(type),
  load: (events, session) => (events.some(({ type }) => STATUSES.has(type)) ? viewLoad(session, SUBAGENT_KEY) : undefined),

  initial(loaded, { sessionId, header }) {
    const parent = fieldOf(header as JsonObject, 'parent_session_id');
    return {
      sessionId,
      parentSessionId: typeof parent === 'string' ? parent : null,
      value: Loaded.safeParse(loaded).data?.value,
      sequence: undefined,
    };
  },

  apply(state, event) {
    const { sequence, type, data } = event;
    if (type === DESCRIPTOR) {
      const value = { ...data, session_id: state.sessionId, parent_session_id: state.parentSessionId, status: 'ready' };
      return { ...state, value, sequence };
    }
    return state.value === undefined ? state : { ...state, value: { ...state.value, status: statusOf(event) }, sequence };
  },

  writes({ value, sequence }) {
    if (value === undefined || sequence === undefined) return [];
    const view = { key: SUBAGENT_KEY, version: VERSION, sequence, appliedSequence: sequence, staleReason: null, value };
    return [viewWrites('subagent_identity', view)];
  },
};

/** What the event says of it, otherwise what its type says. */
function statusOf({ type, data }: SessionLogEvent): string {
  return textField(data, 'activity') || textField(data, 'status') || type.slice('subagent/'.length);
}
