import { OUTBOX_SHARDS, PartitionKey, RelayExplanation } from '@runplane/contracts';
import { explainSink } from '@runplane/outbox';
import { z } from 'zod';
import type { Route } from '..';
import { queryInt, SinkParams } from '../../http/schemas';

const Query = z
  .strictObject({
    key: PartitionKey.optional(),
    shard: queryInt(0, OUTBOX_SHARDS - 1).optional(),
  })
  .refine(({ key, shard }) => (key === undefined) !== (shard === undefined), 'name a key or a shard');

export const explainSinkRoute: Route = (app, { db }) => {
  app.route({
    method: 'GET',
    url: '/relay/sinks/:sink/why',
    config: { access: ['operator'] },
    schema: {
      operationId: 'explainSink',
      summary: 'Say why the events of a key, or of a shard, have or have not reached a sink',
      description: 'A cause, one sentence, and the facts it was found by.',
      tags: ['relay'],
      params: SinkParams,
      querystring: Query,
      response: { 200: RelayExplanation },
    },
    handler: ({ params, query: { key, shard = 0 } }) => explainSink(db, key === undefined ? { ...params, shard } : { ...params, key }),
  });
};
