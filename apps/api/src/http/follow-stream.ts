import type { FastifyReply } from 'fastify';
import { isPassing } from '../maintenance/run-every';
import { toProblem } from './problem';
import { ClientGone, controlFrame, EventStream } from './sse';
import type { Waiters } from './waiters';

/** What a log gives while it is followed: frames of events, and at last, where a log has an end, what is said of it. */
export type StreamPart = { readonly frames: readonly string[] } | { readonly end: unknown };

/**
 * Sends a log's events to one client until the log ends, the client goes or the process shuts down. The place in the log is this stream's own;
 * others that follow the same log share nothing with it but the hint that something is new. An error ends this stream alone, and so does the end
 * of its key: what comes after a revocation is not sent.
 */
export async function followStream(
  reply: FastifyReply,
  waiters: Waiters,
  parts: (signal: AbortSignal) => AsyncIterable<StreamPart>,
): Promise<void> {
  const { request } = reply;
  const waiter = waiters.enter(reply);
  const stream = new EventStream(reply);
  let ended = false;
  try {
    for await (const part of parts(waiter.signal)) {
      if ('end' in part) {
        await stream.send(controlFrame('end', part.end));
        ended = true;
        break;
      }
      await request.requireValidKey();
      for (const frame of part.frames) {
        if (waiter.signal.aborted) break;
        await stream.send(frame);
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
