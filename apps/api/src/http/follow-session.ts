import type { Db } from '@runplane/database';
import { streamSessionEvents } from '@runplane/sessions';
import type { FastifyReply } from 'fastify';
import { followStream, type StreamPart } from './follow-stream';
import { sessionEventFrame } from './sse';
import type { Waiters } from './waiters';

export interface FollowSession {
  readonly db: Db;
  readonly waiters: Waiters;
  readonly tenantId: string;
  readonly sessionId: string;
  readonly incarnation: string;
  readonly after: number;
}

/** Sends a session's events for as long as the client stays: its log has no end. See followStream. */
export function followSession(reply: FastifyReply, { waiters, ...session }: FollowSession): Promise<void> {
  return followStream(reply, waiters, (signal) => partsOf(session, signal));
}

async function* partsOf({ db, ...session }: Omit<FollowSession, 'waiters'>, signal: AbortSignal): AsyncGenerator<StreamPart> {
  for await (const events of streamSessionEvents(db, { ...session, signal })) {
    yield { frames: events.map((event) => sessionEventFrame(session, event)) };
  }
}
