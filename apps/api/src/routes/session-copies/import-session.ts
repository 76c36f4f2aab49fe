import { Readable } from 'node:stream';
import { CopiedSession, InvalidRequest } from '@runplane/contracts';
import { importSession } from '@runplane/sessions';
import type { FastifyReply } from 'fastify';
import type { Route } from '..';
import type { App } from '../../app';
import { requireDecider } from '../../access/require-decider';
import { NDJSON } from '../../http/ndjson';

/** What still comes is thrown away; the connection ends with the answer, since the next request on it would wait behind all of that. */
function leaveRest(reply: FastifyReply, body: Readable): void {
  reply.header('connection', 'close');
  body.resume();
}

/** In a scope of its own: only this route takes lines, as they come and not as a whole. */
export const importSessionRoute: Route = (app, { db }) => {
  app.register(async (scope: App) => {
    scope.addContentTypeParser(NDJSON, (_request, payload, done) => {
      done(null, payload);
    });
    scope.route({
      method: 'POST',
      url: '/session-imports',
      config: { access: ['sessions:write'], measured: 'waits' },
      schema: {
        operationId: 'importSession',
        summary: 'Make a session from its lines of JSON',
        description:
          'The body is what `GET /v1/sessions/:sessionId/export` answers, with the content type application/x-ndjson; up to 64 MiB and 100,000 events. It is refused with the number of a wrong line, or where the id is in use, and leaves nothing then. What is open in it, 2,000 things at most, is closed by events; the feed does not have the copied ones. Decisions on approvals and input requests that it brings need the scope approvals:resolve as well.',
        tags: ['session log'],
        consumes: [NDJSON],
        response: { 201: CopiedSession },
      },
      handler: async (request, reply) => {
        if (!(request.body instanceof Readable)) {
          const message = `must be lines of JSON, with the content type ${NDJSON}`;
          throw new InvalidRequest(`The input is not valid: body: ${message}.`, { issues: [{ path: 'body', message }] });
        }
        const { body, credential } = request;
        const copying = importSession(db, {
          tenantId: credential.tenantId,
          content: body.iterator({ destroyOnReturn: false }) as AsyncIterable<Uint8Array>,
          assertMayBring(type) {
            requireDecider(credential, type);
          },
        });
        const copied = await copying.catch((error: unknown) => {
          if (!body.readableEnded) leaveRest(reply, body);
          throw error;
        });
        return reply.code(201).send(copied);
      },
    });
  });
};
