import { SessionEvent } from '@runplane/contracts';
import { z } from 'zod';
import { followLog, type FollowOptions } from './follow-log';
import type { RetryPolicy } from './retry';
import type { Transport } from './transport';

export interface FollowSessionOptions extends FollowOptions {
  /** Of the life of the session's id that `after` is a place in, as a page of its events or its log told it. */
  incarnation?: string | undefined;
}

/**
 * Every event of a session's log after a sequence, for as long as the caller reads: it has no end. Where the session is deleted and made again under
 * its id, the reading ends with 410 `other_incarnation` instead of going on in the new life. See followLog.
 */
export function followSession(
  transport: Transport,
  policy: RetryPolicy,
  sessionId: string,
  { incarnation, ...options }: FollowSessionOptions,
): AsyncGenerator<SessionEvent, never, undefined> {
  let life = incarnation;
  const log = {
    name: `session ${sessionId}`,
    path: `/sessions/${encodeURIComponent(sessionId)}/events/stream`,
    event: SessionEvent,
    sequenceOf: ({ sequence }: SessionEvent) => sequence,
    query: () => ({ incarnation: life }),
    onFrame: (id: string) => (life = id.split(':').at(-2)),
    end: z.never(),
  };
  return followLog(transport, policy, log, { ...options, after: options.after ?? -1 });
}
