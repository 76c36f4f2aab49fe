import { FeedExplanation, identifier } from '@runplane/contracts';
import { explainFeed } from '@runplane/outbox';
import { z } from 'zod';
import type { Route } from '..';

export const explainFeedRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/feed/why',
    config: { access: ['feed:read'] },
    schema: {
      operationId: 'explainFeed',
      summary: 'Say why readers see nothing new, or why a registered reader is no further',
      tags: ['feed'],
      querystring: z.strictObject({ consumer: identifier.optional().meta({ description: 'The name of a registered reader' }) }),
      response: { 200: FeedExplanation },
    },
    handler: (request) => explainFeed(db, { tenantId: request.credential.tenantId, ...request.query }),
  });
};
