import { MergeRunnerJobResult, RunnerJob } from '@runplane/contracts';
import { mergeRunnerJobResult } from '@runplane/runs';
import type { Route } from '..';
import { RunJobParams } from '../../http/schemas';

export const mergeRunnerJobResultRoute: Route = (app, { db }) => {
  app.route({
    method: 'POST',
    url: '/runs/:runId/jobs/:jobId/result',
    config: { access: ['runner'], runTokens: false },
    schema: {
      operationId: 'mergeRunnerJobResult',
      summary: 'Merge into the result of a job',
      tags: ['jobs'],
      params: RunJobParams,
      body: MergeRunnerJobResult,
      response: { 200: RunnerJob },
    },
    handler: (request) => {
      const { tenantId } = request.credential;
      return mergeRunnerJobResult(db, { tenantId, ...request.params, patch: request.body.patch });
    },
  });
};
