import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { createApiKey } from '@runplane/api';
import { createClient, type Client } from '@runplane/client';
import { SCOPES, type TenantSettings } from '@runplane/contracts';
import { ensureTenant, migrate, openDb, startEmbeddedPostgres, type Db, type EmbeddedPostgres } from '@runplane/database';
import { assertInvariants } from '@runplane/database/testing';
import { ApiProcess, type ApiProcessOptions } from './api-process';
import { processesIn } from './processes';

/** A machine for tests that stop and kill things: a PostgreSQL of its own, and APIs as processes. */
export interface Machine {
  readonly dir: string;
  readonly postgres: EmbeddedPostgres;
  /** A tenant's key with every scope. */
  readonly apiKey: string;
  /** For looks and for moves of the clock. */
  readonly db: Db;
  startApi(options?: Partial<ApiProcessOptions>): Promise<ApiProcess>;
  client(api: ApiProcess): Client;
  /** Starts PostgreSQL again after a stop or crash: the same data, the same port. */
  restartPostgres(): Promise<void>;
}

export const TENANT = 'acme';

/** Everything of it is ended after the tests of the file, whatever they left. The invariants are checked then. */
export function useMachine(settings: Partial<TenantSettings> = {}): Machine {
  const apis: ApiProcess[] = [];
  let dir = '';
  let postgres: EmbeddedPostgres | undefined;
  let db: Db | undefined;
  let apiKey = '';

  const there = <T>(value: T | undefined): T => {
    if (value === undefined) throw new Error('the machine is there inside tests and hooks only');
    return value;
  };
  const machine: Machine = {
    get dir() {
      return dir;
    },
    get postgres() {
      return there(postgres);
    },
    get db() {
      return there(db);
    },
    get apiKey() {
      return apiKey;
    },
    async startApi(options = {}) {
      const api = await ApiProcess.start({ databaseUrl: there(postgres).url, dataDir: path.join(dir, 'data'), ...options });
      apis.push(api);
      return api;
    },
    client: (api) => createClient({ url: api.url, apiKey }),
    async restartPostgres() {
      const { port } = there(postgres);
      postgres = await startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), port, durability: 'server-default' });
    },
  };

  beforeAll(async () => {
    dir = await mkdtemp(path.join(os.tmpdir(), 'runplane-machine-'));
    postgres = await startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), durability: 'server-default' });
    await migrate(postgres.url);
    db = await openDb({ url: postgres.url, applicationName: 'observer', onError: () => undefined });
    await ensureTenant(db.sql, TENANT, settings);
    apiKey = (await createApiKey(db.sql, { tenantId: TENANT, name: 'test', scopes: [...SCOPES] })).key;
  });
  afterAll(async () => {
    const accidents = apis.flatMap((api) => api.accidents);
    for (const api of apis) await api.kill();
    for (const { pid } of await processesIn(path.join(dir, 'data'))) process.kill(pid, 'SIGKILL');
    try {
      if (db !== undefined) await assertInvariants(db.pool);
      expect(accidents).toEqual([]);
    } finally {
      await db?.close();
      await postgres?.stop();
      await rm(dir, { recursive: true, force: true, maxRetries: 5 });
    }
  });
  return machine;
}
