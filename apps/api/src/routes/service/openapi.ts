import type { Route } from '..';

export const openapiRoute: Route = (app) => {
  app.get('/openapi.json', { config: { access: 'public' } }, async () => app.swagger());
};
