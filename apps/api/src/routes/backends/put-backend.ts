import { Backend, BackendRegistration } from '@runplane/contracts';
import { putBackend } from '@runplane/runs';
import type { Route } from '..';
import { BackendParams } from '../../http/schemas';

export const putBackendRoute: Route = (app, { db }) => {
  app.route({
    method: 'PUT',
    url: '/backends/:profile',
    config: { access: ['operator'] },
    schema: {
      operationId: 'putBackend',
      summary: 'Register a backend profile, or replace its capabilities, capacity or health',
      description:
        'The registry is the operator’s and holds for all tenants: the scope `admin` of one of them does not open it. What is absent keeps its value.',
      tags: ['backends'],
      params: BackendParams,
      body: BackendRegistration,
      response: { 200: Backend },
    },
    handler: (request) => putBackend(db, { ...request.params, backend: request.body }),
  });
};
