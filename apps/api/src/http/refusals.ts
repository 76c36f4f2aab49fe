import { redactText, RouteNotFound } from '@runplane/contracts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { toProblem } from './problem';

/** Answers everything that goes wrong as a problem: refusals, unknown routes, and errors, which are logged and say nothing. */
export function answerRefusals(app: FastifyInstance): void {
  app.setErrorHandler((error, request, reply) => answerProblem(error, request, reply));
  app.setNotFoundHandler((request, reply) => {
    const path = redactText(pathOf(request)).slice(0, 200);
    return answerProblem(new RouteNotFound('There is no such route: GET /openapi.json lists them.', { path }), request, reply);
  });
}

/** Also for what is refused before a route is found. */
export function answerProblem(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  const { problem, retryAfterSeconds } = toProblem(error, { requestId: request.id, instance: redactText(pathOf(request)).slice(0, 500) });
  if (problem.status >= 500) request.log.error({ err: error, code: problem.code }, 'request failed');
  else request.log.debug({ err: error, code: problem.code }, 'request refused');
  if (retryAfterSeconds !== undefined) reply.header('retry-after', retryAfterSeconds);
  reply.header('x-request-id', request.id); // a refusal before any hook has none yet
  if (problem.status === 401) reply.header('www-authenticate', 'Bearer');
  // Serialized here: no schema of a route can turn a problem into another one.
  return reply.code(problem.status).type('application/problem+json').serializer(JSON.stringify).send(problem);
}

function pathOf(request: FastifyRequest): string {
  return request.url.split('?')[0] ?? '';
}
