import type { Db } from '@runplane/database';
import { streamRunEvents } from '@runplane/runs';
import type { FastifyReply } from 'fastify';
import { followStream, type StreamPart } from './follow-stream';
import { eventFrame } from './sse';
import type { Waiters } from './waiters';

export interface FollowRun {
  readonly db: Db;
  readonly waiters: Waiters;
  readonly tenantId: string;
  readonly runId: string;
  readonly afterSeq: number;
}

/** Sends a run's events until the run has ended; see followStream. */
export function followRun(reply: FastifyReply, { waiters, ...run }: FollowRun): Promise<void> {
  return followStream(reply, waiters, (signal) => partsOf(run, signal));
}

async function* partsOf({ db, ...run }: Omit<FollowRun, 'waiters'>, signal: AbortSignal): AsyncGenerator<StreamPart> {
  for await (const part of streamRunEvents(db, { ...run, signal })) {
    yield 'end' in part ? part : { frames: part.events.map(eventFrame) };
  }
}
