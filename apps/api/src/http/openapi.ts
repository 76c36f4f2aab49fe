import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import { Problem } from '@runplane/contracts';
import type { FastifyInstance, FastifySchema } from 'fastify';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import type { Access } from '../access/authenticate';

const DESCRIPTION = `Durable runs of AI agents on PostgreSQL.

**Access.** Send \`Authorization: Bearer rp_…\`. A key belongs to one tenant and has scopes; \`admin\` stands for all of them but \`operator\`, which opens what holds for all tenants. Ids of other tenants are not found.

**Errors.** Every refusal is \`application/problem+json\` with a \`code\` that is part of this interface. Repeat a call only when \`retryable\` is true.

**Waiting.** \`wait\` keeps a request open for up to 30 s until there is news. Streams are server-sent events: \`id\` is \`<run id>:<seq>\`, \`event\` the event's type,
\`data\` the event. To go on after a cut send the last id as \`Last-Event-ID\`, as EventSource does; it wins over \`?after=\`. Frames without an id tell about the
stream: \`end\` (the run has ended, do not come back), \`shutdown\` (come back at once), \`error\` (a problem; come back).`;

/** The document of all routes that come after it, made of their zod schemas; GET /openapi.json and the page /docs show it. */
export async function describeApi(app: FastifyInstance): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.1',
      info: { title: 'Runplane', version: '1', description: DESCRIPTION },
      components: { securitySchemes: { apiKey: { type: 'http', scheme: 'bearer', description: 'An API key: rp_…' } } },
      tags: [
        { name: 'runs', description: 'What to execute, and what became of it' },
        { name: 'commands', description: 'Ordered instructions inside a run' },
        { name: 'events', description: 'The log of a run' },
        { name: 'sessions', description: 'Conversations: one open turn at a time' },
        { name: 'approvals', description: 'What is asked of people, and what they answer' },
        { name: 'runner', description: 'What a runner calls; every call names the epoch of its claim' },
        { name: 'queue', description: 'Tasks that wait in named queues for workers or runs' },
        { name: 'feed', description: 'Every event of the tenant, once, in an order that never changes' },
        { name: 'relay', description: 'Sinks that every event is sent to, over all tenants: the operator’s' },
        { name: 'service', description: 'For operators' },
      ],
    },
    transform: jsonSchemaTransform,
    transformObject: jsonSchemaTransformObject,
  });
  app.addHook('onRoute', (route) => {
    const access = route.config?.access;
    if (access === undefined || access === 'public' || route.schema === undefined) return;
    route.schema = withAccess(route.schema, access);
  });
  await app.register(swaggerUi, { routePrefix: '/docs', staticCSP: true, uiConfig: { persistAuthorization: true } });
}

const PROBLEM = { description: 'A problem (RFC 9457)', content: { 'application/problem+json': { schema: Problem } } };

/** What every route has in common: who may call it, and how it refuses. */
function withAccess(schema: FastifySchema, access: Exclude<Access, 'public'>): FastifySchema {
  return {
    ...schema,
    security: access.map((scope) => ({ apiKey: [scope] })),
    response: { ...(schema.response as object), default: PROBLEM },
  };
}
