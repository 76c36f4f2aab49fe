import { randomUUID } from 'node:crypto';
import { HTTP_BODY_BYTES_MAX, ShuttingDown } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { feedProbe, type Relay } from '@runplane/outbox';
import { registerRunProbes, type ArchiveSink } from '@runplane/runs';
import Fastify, { LogController, type FastifyInstance, type RawServerDefault } from 'fastify';
import { serializerCompiler, validatorCompiler, type ZodTypeProvider } from 'fastify-type-provider-zod';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyBaseLogger } from 'fastify';
import { authenticate } from './access/authenticate';
import { Credentials } from './access/credentials';
import { loggerOptions, type LogOptions } from './http/logging';
import { measure } from './http/metrics';
import { OpenAnswers } from './http/open-answers';
import { describeApi } from './http/openapi';
import { answerProblem, answerRefusals } from './http/refusals';
import { Waiters } from './http/waiters';
import type { Loop } from './maintenance/run-every';
import { registerRoutes } from './routes';

export interface AppDeps {
  readonly db: Db;
  /** Of a process that also hosts the background loops; see startLoops. */
  readonly loops?: (() => readonly Loop[]) | undefined;
  /** Of a process that also relays. */
  readonly relays?: (() => readonly Relay[]) | undefined;
  readonly credentials?: Credentials | undefined;
  readonly logger: LogOptions | false;
  /** Long polls and streams that one process serves at a time. */
  readonly waitersMax?: number | undefined;
  readonly processMetrics?: boolean | undefined;
  /** The migrations that this program needs; the repository's own when absent. */
  readonly migrationsDir?: string | undefined;
  /** What the background loops archive to, for the preview of what they would remove. */
  readonly archive?: ArchiveSink | undefined;
}

export type App = FastifyInstance<RawServerDefault, IncomingMessage, ServerResponse, FastifyBaseLogger, ZodTypeProvider>;

/** What routes work with. */
export interface RouteDeps {
  readonly db: Db;
  readonly waiters: Waiters;
  readonly loops: () => readonly Loop[];
  readonly readMetrics: () => Promise<{ contentType: string; text: string }>;
  readonly migrationsDir: string | undefined;
  readonly archive: ArchiveSink | undefined;
}

const WAITERS_MAX = 10_000;
/** For a request to arrive whole; Fastify would wait for ever. Answers may take longer. */
const REQUEST_MS_MAX = 60_000;
/** Above what identifiers allow, so that a schema judges the length and says what is wrong. */
const PARAM_CHARS_MAX = 16 * 1024;

/**
 * The HTTP interface over an open store. Opens, migrates and starts nothing by itself: `db.hub` may be started or not (then waits are
 * served by what this process writes), and loops are the caller's. Closing it ends streams and long polls, and leaves `db` open.
 */
export async function buildApp(deps: AppDeps): Promise<App> {
  const { db, loops = () => [], relays = () => [], credentials = new Credentials(db), waitersMax = WAITERS_MAX } = deps;
  db.hub.addProbe(feedProbe);
  registerRunProbes(db);

  const app = Fastify({
    logger: loggerOptions(deps.logger) ?? false,
    logController: new LogController({ disableRequestLogging: true }), // logRequests below says less
    genReqId: () => `req_${randomUUID()}`,
    bodyLimit: HTTP_BODY_BYTES_MAX,
    requestTimeout: REQUEST_MS_MAX,
    exposeHeadRoutes: false,
    return503OnClosing: false, // the hook below answers with a problem
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: PARAM_CHARS_MAX },
    frameworkErrors: (error, request, reply) => {
      void answerProblem(error, request, reply);
    },
  }).withTypeProvider<ZodTypeProvider>();
  app.removeContentTypeParser('text/plain'); // Fastify would take a text for a body
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  answerRefusals(app);

  const waiters = new Waiters(waitersMax);
  closeInOrder(app, waiters);
  logRequests(app);
  const registry = measure(app, { db, waiters, loops, relays, processMetrics: deps.processMetrics ?? false });
  publicByPath(app, '/docs');
  authenticate(app, credentials);
  await describeApi(app);
  const readMetrics = async () => ({ contentType: registry.contentType, text: await registry.metrics() });
  registerRoutes(app, { db, waiters, loops, readMetrics, migrationsDir: deps.migrationsDir, archive: deps.archive });
  return app;
}

/** Routes of a plugin that cannot say themselves who may call them. */
function publicByPath(app: FastifyInstance, prefix: string): void {
  app.addHook('onRoute', (route) => {
    if (route.url === prefix || route.url.startsWith(`${prefix}/`)) route.config = { ...route.config, access: 'public' };
  });
}

/** One line per request, of its path pattern: neither ids nor queries, in which secrets may stand. */
function logRequests(app: FastifyInstance): void {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
  });
  app.addHook('onResponse', async (request, reply) => {
    const { method, routeOptions } = request;
    const { tenantId, keyId } = (request.credential as typeof request.credential | null) ?? {};
    request.log.info(
      { method, route: routeOptions.url, status: reply.statusCode, ms: Math.round(reply.elapsedTime), tenantId, keyId },
      'request',
    );
  });
}

/** An answer that has not gone out by then goes with its connection. */
const LAST_ANSWERS_MS = 3_000;

/**
 * Closing: new requests are refused, streams end with a hint to come back, long polls are answered, and when the last answer has gone out
 * every connection is closed, also those that a client keeps open without a request.
 */
function closeInOrder(app: FastifyInstance, waiters: Waiters): void {
  const answers = new OpenAnswers();
  app.addHook('onRequest', async (request, reply) => {
    answers.add(reply.raw, request.raw.socket);
    if (!waiters.shuttingDown) return;
    reply.header('connection', 'close');
    throw new ShuttingDown();
  });
  app.addHook('preClose', async () => {
    waiters.shutdown();
    const late = performance.now() + LAST_ANSWERS_MS;
    while (answers.count > 0 && performance.now() < late) await new Promise((resolve) => setTimeout(resolve, 10));
    app.server.closeAllConnections();
  });
}
