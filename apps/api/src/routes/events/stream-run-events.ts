import { InvalidCursor } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { listRunEvents } from '@runplane/runs';
import { z } from 'zod';
import type { Route } from '..';
import { followRun } from '../../http/follow-run';
import { afterSeq, LastEventIdHeaders, RunParams } from '../../http/schemas';
import { parseFrameId } from '../../http/sse';

export const streamRunEventsRoute: Route = (app, { db, waiters }) => {
  app.route({
    method: 'GET',
    url: '/runs/:runId/events/stream',
    config: { access: ['runs:read', 'runner'], measured: 'waits' },
    schema: {
      operationId: 'streamRunEvents',
      summary: 'Follow the events of a run as server-sent events',
      description:
        'Starts after `Last-Event-ID`, else after `after`, else with the first event. Ends with a frame `end` when the run has ended.',
      tags: ['events'],
      produces: ['text/event-stream'],
      params: RunParams,
      headers: LastEventIdHeaders,
      querystring: z.strictObject({ after: afterSeq }),
    },
    handler: async (request, reply) => {
      const run = { tenantId: request.credential.tenantId, ...request.params };
      const lastSeen = startOf(run.runId, request.headers['last-event-id'], request.query.after);
      await requireReached(db, run, lastSeen);
      await followRun(reply, { db, waiters, ...run, afterSeq: lastSeen });
    },
  });
};

/** An empty header counts as none; browsers never send one. */
function startOf(runId: string, lastEventId: string | undefined, after: number): number {
  if (lastEventId === undefined || lastEventId === '') return after;
  const seq = parseFrameId(lastEventId, runId);
  if (seq === undefined) throw refused('Last-Event-ID is no id of an event of this run');
  return seq;
}

/** Before the stream begins, while a refusal can still be an answer. */
async function requireReached(db: Db, run: { tenantId: string; runId: string }, afterSequence: number): Promise<void> {
  const { lastSeq } = await listRunEvents(db, { ...run, afterSeq: afterSequence, limit: 1 });
  if (afterSequence > lastSeq) throw refused(`the run has ${lastSeq} events, none after which to start at ${afterSequence}`);
}

function refused(reason: string): InvalidCursor {
  return new InvalidCursor(`${reason}: start with an id that the stream has sent, or without one.`, { reason });
}
