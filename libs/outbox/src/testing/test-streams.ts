import type { SqlExecutor } from '@runplane/database';
import { appendEvents } from './append-events';

export interface TestEvents {
  readonly tenantId?: string;
  readonly streamId?: string;
  readonly type?: string;
  readonly count?: number;
  /** In one row, as an append to a session's log does. */
  readonly batch?: boolean;
}

/** Appends the next events of sessions that are nowhere else. */
export function testStreams(): (on: SqlExecutor, events?: TestEvents) => Promise<void> {
  const sequences = new Map<string, number>();
  return async (on, { tenantId, streamId = 'a', type, count = 1, batch } = {}) => {
    const sequence = (sequences.get(streamId) ?? 0) + 1;
    sequences.set(streamId, sequence + count - 1);
    await appendEvents(on, { tenantId, sessionId: streamId, sequence, count, type, batch, data: { n: sequence } });
  };
}
