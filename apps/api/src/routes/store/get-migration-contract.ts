import { MigrationContract } from '@runplane/contracts';
import { migrationContract } from '@runplane/database';
import type { Route } from '..';

export const getMigrationContractRoute: Route = (app, { migrationsDir }) => {
  app.route({
    method: 'GET',
    url: '/migrations',
    config: { access: ['admin'] },
    schema: {
      operationId: 'getMigrationContract',
      summary: 'List the migrations and tables that this program expects, without asking the database',
      tags: ['store'],
      response: { 200: MigrationContract },
    },
    handler: () => migrationContract({ dir: migrationsDir }),
  });
};
