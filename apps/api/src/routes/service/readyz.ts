import type { Route } from '..';
import { checkReadiness } from '../../http/readiness';

export const readyzRoute: Route = (app, deps) => {
  app.get('/readyz', { config: { access: 'public' }, exposeHeadRoute: true, logLevel: 'warn' }, async (_request, reply) => {
    const readiness = await checkReadiness(deps);
    return reply.code(readiness.ready ? 200 : 503).send(readiness);
  });
};
