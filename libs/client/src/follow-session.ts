import { SessionEvent } from '@runplane/contracts';
import { z } from 'zod';
import { followLog, type FollowOptions } from './follow-log';
import type { RetryPolicy } from './retry';
import type { Transport } from './transport';

/** Every event of a session's log after a sequence, for as long as the caller reads: it has no end. See followLog. */
export function followSession(
  transport: Transport,
  policy: RetryPolicy,
  sessionId: string,
  options: FollowOptions,
): AsyncGenerator<SessionEvent, never, undefined> {
  const log = {
    name: `session ${sessionId}`,
    path: `/sessions/${encodeURIComponent(sessionId)}/events/stream`,
    event: SessionEvent,
    sequenceOf: ({ sequence }: SessionEvent) => sequence,
    end: z.never(),
  };
  return followLog(transport, policy, log, { ...options, after: options.after ?? -1 });
}
