import type { Route } from '..';

/** The process answers; whether it can work is /readyz's business. */
export const healthzRoute: Route = (app) => {
  app.get('/healthz', { config: { access: 'public' }, exposeHeadRoute: true, logLevel: 'warn' }, async () => ({ status: 'ok' }));
};
