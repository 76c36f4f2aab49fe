import { Forbidden, Unauthenticated, type Scope } from '@runplane/contracts';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { bearerKey, type Credential } from './api-key';
import type { Credentials } from './credentials';

/** Who may call a route: everybody, or whoever has one of the scopes (`admin` stands for all of them but `operator`). */
export type Access = 'public' | readonly [Scope, ...Scope[]];

export interface RouteEntry {
  readonly method: string;
  readonly url: string;
  readonly access: Access;
}

declare module 'fastify' {
  interface FastifyContextConfig {
    access?: Access;
    /** The handler itself sees to it that a run token names its own run. */
    runInBody?: boolean;
    /** False: for dispatchers; the token of one run does not open it, though it names that run. */
    runTokens?: boolean;
  }
  interface FastifyInstance {
    /** Every route and who may call it. */
    routeTable: RouteEntry[];
  }
  interface FastifyRequest {
    /** Of the caller; routes with access `public` have none. */
    credential: Credential;
    /** Again, in the middle of a long answer. Errors: Unauthenticated when the key has been revoked or is over. */
    requireValidKey(): Promise<void>;
  }
}

/** Checks the key of every request before its body is read, and refuses at start-up a route that does not say who may call it. */
export function authenticate(app: FastifyInstance, credentials: Credentials): void {
  app.decorateRequest('credential', null as unknown as Credential);
  app.decorateRequest('requireValidKey', async function (this: FastifyRequest) {
    await requireCredential(this, credentials);
  });
  app.decorate('routeTable', []);
  app.addHook('onRoute', ({ method, url, config }) => {
    const access = config?.access;
    if (access === undefined) throw new Error(`the route ${String(method)} ${url} does not say who may call it (config.access)`);
    app.routeTable.push(...[method].flat().map((each) => ({ method: each, url, access })));
  });
  app.addHook('onRequest', async (request) => {
    const { access = ['admin'], runInBody = false, runTokens = true } = request.routeOptions.config;
    if (request.is404 || access === 'public') return;
    const credential = await requireCredential(request, credentials);
    requireScope(credential, access);
    if (credential.runId !== null && !runTokens) throw new Forbidden('A run token does not open this call.', { scope: access[0] });
    if (credential.runId !== null)
      requireOwnRun(credential, access, runInBody ? credential.runId : (request.params as { runId?: string }).runId);
    request.credential = credential;
  });
}

async function requireCredential(request: FastifyRequest, credentials: Credentials): Promise<Credential> {
  const key = bearerKey(request.headers.authorization);
  const credential = key === undefined ? undefined : await credentials.find(key);
  if (credential !== undefined) return credential;
  throw new Unauthenticated('A valid API key is needed: send "Authorization: Bearer rp_…". `runplane keys create` makes one.');
}

export function requireScope(credential: Credential, access: readonly [Scope, ...Scope[]]): void {
  // An admin is one of its tenant; what holds for all tenants is the operator's.
  if (credential.scopes.includes('admin') && !access.includes('operator')) return;
  if (credential.scopes.some((scope) => access.includes(scope))) return;
  throw new Forbidden(`This call needs the scope ${access.join(' or ')}.`, { scope: access[0] });
}

/** A run token passes where the call names its run; once that has ended, only where nobody but a runner calls. */
function requireOwnRun(credential: Credential, access: readonly [Scope, ...Scope[]], runId: string | undefined): void {
  if (runId !== credential.runId) throw new Forbidden('This token is for another run.', { scope: access[0] });
  const runnersOwn = access.every((scope) => scope === 'runner');
  if (credential.runEnded && !runnersOwn)
    throw new Forbidden('The run of this token has ended, and the token with it.', { scope: access[0] });
}
