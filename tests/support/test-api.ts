import { SCOPES, type Scope } from '@runplane/contracts';
import { buildApp, createApiKey, issueRunToken, type App, type AppDeps } from '@runplane/api';
import { ensureTenant } from '@runplane/database';
import { useDatabase, type TestDatabase, type TestDatabaseOptions } from '@runplane/database/testing';

export interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly text: string;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- tests look into answers that may be anything
  readonly body: any;
}

export interface CallOptions {
  readonly key?: string | undefined;
  /** Sent as JSON; a text as it is. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

export interface TestApi extends TestDatabase {
  readonly app: App;
  /** A key of the tenant `acme` with every scope. */
  readonly adminKey: string;
  /** Everything that was logged, one JSON line each. */
  readonly log: string[];
  makeKey(scopes: readonly Scope[], tenantId?: string): Promise<string>;
  makeRunToken(runId: string): Promise<string>;
  /** With the admin key unless another is given; `key: ''` sends none. */
  call(method: string, path: string, options?: CallOptions): Promise<Answer>;
}

export const TENANT = 'acme';
export const OTHER_TENANT = 'globex';

/** The API on a database of its own, with two tenants. The hub is started; loops are not. */
export function useApi(options: { database?: TestDatabaseOptions; app?: Partial<AppDeps> } = {}): TestApi {
  const database = useDatabase(options.database);
  const log: string[] = [];
  let app: App | undefined;
  let adminKey = '';

  beforeAll(async () => {
    const { db } = database;
    for (const tenant of [TENANT, OTHER_TENANT]) await ensureTenant(db.sql, tenant);
    adminKey = (await createApiKey(db.sql, { tenantId: TENANT, name: 'test', scopes: [...SCOPES] })).key;
    await db.hub.start();
    app = await buildApp({ db, logger: { level: 'trace', stream: { write: (line) => void log.push(line) } }, ...options.app });
    await app.ready();
  });
  afterAll(async () => {
    await app?.close();
  });

  const there = (): App => {
    if (app === undefined) throw new Error('the app is there inside tests and hooks only');
    return app;
  };
  return {
    get url() {
      return database.url;
    },
    get db() {
      return database.db;
    },
    violations: () => database.violations(),
    get app() {
      return there();
    },
    get adminKey() {
      return adminKey;
    },
    log,
    makeKey: async (scopes, tenantId = TENANT) => (await createApiKey(database.db.sql, { tenantId, name: 'test', scopes })).key,
    makeRunToken: (runId) => issueRunToken(database.db.sql, { tenantId: TENANT, runId }),
    call: async (method, path, { key = adminKey, body, headers = {} } = {}) => {
      const answer = await there().inject({
        method: method as 'GET',
        url: path,
        headers: {
          ...(key === '' ? {} : { authorization: `Bearer ${key}` }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body === undefined ? {} : { payload: typeof body === 'string' ? body : JSON.stringify(body) }),
      });
      const isJson = /^application\/(problem\+)?json/.test(String(answer.headers['content-type']));
      return {
        status: answer.statusCode,
        headers: answer.headers,
        text: answer.payload,
        body: isJson && answer.payload !== '' ? answer.json<unknown>() : undefined,
      };
    },
  };
}
