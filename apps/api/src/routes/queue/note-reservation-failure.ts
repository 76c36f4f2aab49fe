import { NotedReservationFailure, NoteReservationFailure } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { noteReservationFailure } from '@runplane/queue';
import type { Route } from '..';
import { TaskAttemptParams } from '../../http/schemas';

export const noteReservationFailureRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/queue/tasks/:taskId/retries/:attemptId/failure',
    config: { access: ['queue:write'] },
    schema: {
      operationId: 'noteReservationFailure',
      summary: 'Note why a reserved retry did not get further',
      description: 'It stays reserved, for another try with its key.',
      tags: ['queue'],
      params: TaskAttemptParams,
      body: NoteReservationFailure,
      response: { 200: NotedReservationFailure },
    },
    handler: (request) =>
      inTransaction(db, (tx) => noteReservationFailure(tx, { tenantId: request.credential.tenantId, ...request.params, ...request.body })),
  });
};
