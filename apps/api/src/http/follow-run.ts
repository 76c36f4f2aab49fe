import type { Db } from '@runplane/database';
import { streamRunEvents } from '@runplane/runs';
import type { FastifyReply } from 'fastify';
import { isPassing } from '../maintenance/run-every';
import { toProblem } from './problem';
import { ClientGone, controlFrame, eventFrame, EventStream } from './sse';
import type { Waiters } from './waiters';

export interface FollowRun {
  readonly db: Db;
  readonly waiters: Waiters;
  readonly tenantId: string;
  readonly runId: string;
  readonly afterSeq: number;
}

/**
 * Sends a run's events to one client until the run has ended, the client goes or the process shuts down. The place in the log is this
 * stream's own; others that follow the same run share nothing with it but the hint that something is new. An error ends this stream alone,
 * and so does the end of its key: what comes after a revocation is not sent.
 */
export async function followRun(reply: FastifyReply, { db, waiters, tenantId, runId, afterSeq }: FollowRun): Promise<void> {
  const { request } = reply;
  const waiter = waiters.enter(reply);
  const stream = new EventStream(reply);
  let ended = false;
  try {
    for await (const part of streamRunEvents(db, { tenantId, runId, afterSeq, signal: waiter.signal })) {
      if ('end' in part) {
        await stream.send(controlFrame('end', part.end));
        ended = true;
        break;
      }
      await request.requireValidKey();
      for (const event of part.events) {
        if (waiter.signal.aborted) break;
        await stream.send(eventFrame(event));
      }
    }
  } catch (error) {
    if (!(error instanceof ClientGone)) {
      const { problem } = toProblem(error, { requestId: request.id, instance: request.url.split('?')[0] ?? '' });
      request.log[isPassing(error) || problem.status < 500 ? 'warn' : 'error']({ err: error }, 'an event stream failed');
      await stream.send(controlFrame('error', problem)).catch(() => undefined);
    }
  } finally {
    waiter.leave();
    stream.end(waiters.shuttingDown && !ended ? 'shutdown' : undefined);
  }
}
