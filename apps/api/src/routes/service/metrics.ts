import type { Route } from '..';

/** Without a key, for the scraper inside the network; no label names a tenant or an id. */
export const metricsRoute: Route = (app, { readMetrics }) => {
  app.get('/metrics', { config: { access: 'public' }, logLevel: 'warn' }, async (_request, reply) => {
    const { contentType, text } = await readMetrics();
    return reply.type(contentType).send(text);
  });
};
