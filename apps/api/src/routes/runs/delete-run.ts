import { DeletedRun } from '@runplane/contracts';
import { deleteRun } from '@runplane/runs';
import type { Route } from '..';
import { RunParams } from '../../http/schemas';

export const deleteRunRoute: Route = (app, { db }) => {
  app.route({
    method: 'DELETE',
    url: '/runs/:runId',
    config: { access: ['runs:write'] },
    schema: {
      operationId: 'deleteRun',
      summary: 'Remove an ended run with everything under it',
      description:
        'Now, and without a copy, as retention would by its age. Its events stay in the feed. 409 `run_in_use` while it is open, its job is not settled, or its session shows it as the last one: delete the session then.',
      tags: ['runs'],
      params: RunParams,
      response: { 200: DeletedRun },
    },
    handler: (request) => deleteRun(db, { tenantId: request.credential.tenantId, ...request.params }),
  });
};
