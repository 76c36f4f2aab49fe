import { Readable } from 'node:stream';
import { getSessionLog, readSessionLines } from '@runplane/sessions';
import type { Route } from '..';
import { NDJSON } from '../../http/ndjson';
import { SessionParams } from '../../http/schemas';

export const exportSessionRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/sessions/:sessionId/export',
    config: { access: ['sessions:read'], measured: 'waits' },
    schema: {
      operationId: 'exportSession',
      summary: 'Read a session as lines of JSON: its header, then one event per line',
      description:
        'Data verbatim, and of imported events the very lines that came. An answer that ends early has been cut: its last event is not the last of the log.',
      tags: ['session log'],
      produces: [NDJSON],
      params: SessionParams,
    },
    handler: async (request, reply) => {
      const session = { tenantId: request.credential.tenantId, ...request.params };
      await getSessionLog(db, session); // while a refusal can still be an answer
      return reply.header('content-type', `${NDJSON}; charset=utf-8`).send(Readable.from(readSessionLines(db, session)));
    },
  });
};
