import { StoreHealth } from '@runplane/contracts';
import { health } from '@runplane/database';
import { countStaleViews } from '@runplane/sessions';
import type { Route } from '..';

export const getHealthRoute: Route = (app, { db, migrationsDir }) => {
  app.route({
    method: 'GET',
    url: '/health',
    config: { access: ['admin'] },
    schema: {
      operationId: 'getHealth',
      summary: 'Say whether the database answers and has the migrations that this program needs, and how many sessions have stale views',
      description: 'Always 200: the answer is the news. Load balancers ask /readyz, which needs no key.',
      tags: ['store'],
      response: { 200: StoreHealth },
    },
    handler: async () => {
      const found = await health(db, { dir: migrationsDir });
      return { ...found, staleViews: found.ready ? await countStaleViews(db).catch(() => null) : null };
    },
  });
};
