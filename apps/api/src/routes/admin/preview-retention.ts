import { PreviewRetention, RETENTION_KINDS, RetentionPreview } from '@runplane/contracts';
import type { Route } from '..';
import { PRUNE_ONCE } from '../../maintenance/prune-once';

export const previewRetentionRoute: Route = (app, { db, archive }) => {
  app.route({
    method: 'POST',
    url: '/admin/retention',
    config: { access: ['admin'] },
    schema: {
      operationId: 'previewRetention',
      summary: 'Say what retention would remove, and remove nothing',
      description:
        'What one pass of each kind would remove of the tenant: by what the tenant has set, or by the policy of the call. The removal itself is done in the background, or by the operator’s command line.',
      tags: ['service'],
      body: PreviewRetention,
      response: { 200: RetentionPreview },
    },
    handler: async (request) => {
      const { tenantId } = request.credential;
      const kinds: RetentionPreview['kinds'] = [];
      for (const kind of RETENTION_KINDS) {
        const { tenants } = await PRUNE_ONCE[kind](db, { ...request.body, tenantId, archive });
        const { ids = [], rows = {}, archiveMissing = false, more = false } = tenants[0] ?? {};
        kinds.push({ kind, ids: [...ids], rows: { ...rows }, archiveMissing, more });
      }
      return { dryRun: true as const, kinds };
    },
  });
};
