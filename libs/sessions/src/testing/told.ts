import type { JsonObject, SessionLogEvent } from '@runplane/contracts';
import type { FoldContext } from '../projections/projection';

/** An event in short: its type, or its type and turn, and its data. */
export type Told = string | readonly [told: string, data: JsonObject];

/** A log of such events, numbered from 0; the turn is also the step. */
export function told(...entries: readonly Told[]): SessionLogEvent[] {
  return entries.map((entry, sequence) => {
    const [name, data] = typeof entry === 'string' ? [entry, {}] : entry;
    const [type = '', turnId = null] = name.split(' ');
    return { sequence, type, time: 1_700_000_000_000 + sequence, turnId, stepId: turnId, data, runId: null, commandId: null };
  });
}

/** Of session `s` with an empty log. */
export const emptyContext: FoldContext = {
  tenantId: 't',
  sessionId: 's',
  header: { id: 's' },
  head: {
    lastSequence: -1,
    snapshot: null,
    driverState: 'idle',
    needsRecovery: false,
    windowId: null,
    firstWindowId: null,
    openSubmissions: 0,
    openTurnSubmissions: 0,
  },
};
