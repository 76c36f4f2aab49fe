import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { createApiKey } from '@runplane/api';
import { createClient, type Client } from '@runplane/client';
import { SCOPES, type ProcessBackend, type TenantSettings } from '@runplane/contracts';
import { ensureTenant, openDb, startEmbeddedPostgres, type EmbeddedPostgres } from '@runplane/database';
import { openClient } from '@runplane/database/testing';
import { ApiProcess, balanced, freePort } from '../support/api-process';
import { processesIn, type FoundProcess } from '../support/processes';

export const TENANT = 'faults';
/** Prints for about a second and a half, and says which of its lines each one is. */
export const LINES = 12;
const PROGRAM = `i=1; while [ $i -le ${LINES} ]; do echo "line $i of $RUNPLANE_RUN_ID"; i=$((i + 1)); sleep 0.12; done`;

/** Short, so that a fault is over within seconds. */
const BACKENDS: Record<string, Partial<ProcessBackend>> = {
  lines: { command: ['/bin/sh', '-c', PROGRAM], stdin: 'turn', graceMs: 1_000, leaseMs: 6_000 },
};
const SETTINGS: Partial<TenantSettings> = { claimDeadlineMs: 45_000, cancelGraceMs: 3_000 };
/** Calls go on until they are answered: whatever is down comes back. */
const FOREVER = { attemptsMax: Infinity, elapsedMsMax: Infinity, pauseMsMin: 50, pauseMsMax: 500 };

type Settings = Readonly<Record<string, string>>;

/** What is under test, each part a process of its own: one PostgreSQL with the durability that it has by default, and some APIs. */
export class Stage {
  readonly dir: string;
  readonly apis: readonly ApiProcess[];
  /** Reaches any of the APIs, another one with each attempt, as behind a load balancer. */
  readonly client: Client;
  private postgres: EmbeddedPostgres;
  private readonly settings: Settings;

  private constructor(dir: string, settings: Settings, postgres: EmbeddedPostgres, apis: readonly ApiProcess[], apiKey: string) {
    this.dir = dir;
    this.settings = settings;
    this.postgres = postgres;
    this.apis = apis;
    this.client = createClient({
      url: 'http://load-balancer',
      apiKey,
      retry: FOREVER,
      fetch: balanced(apis),
    });
  }

  /** `settings` are further ones of PostgreSQL. */
  static async start(dir: string, apiCount: number, settings: Settings = {}): Promise<Stage> {
    await mkdir(dir, { recursive: true });
    const postgres = await startPostgres(dir, await freePort(), settings);
    const apis: ApiProcess[] = [];
    try {
      const start = () => ApiProcess.start({ databaseUrl: postgres.url, dataDir: dataDirOf(dir), backends: BACKENDS });
      apis.push(await start());
      while (apis.length < apiCount) apis.push(await start());
      return new Stage(dir, settings, postgres, apis, await makeKey(postgres.url));
    } catch (error) {
      for (const api of apis) await api.kill();
      await postgres.stop();
      throw error;
    }
  }

  get databaseUrl(): string {
    return this.postgres.url;
  }

  runners(): Promise<FoundProcess[]> {
    return processesIn(path.join(dataDirOf(this.dir), 'runners'));
  }

  programs(): Promise<FoundProcess[]> {
    return processesIn(path.join(dataDirOf(this.dir), 'workspaces'));
  }

  /** SIGKILL of the postmaster; `restart` starts it again on the same directory and port. */
  async killPostgres(): Promise<{ restart: () => Promise<void> }> {
    const { port } = this.postgres;
    await this.postgres.crash();
    return {
      restart: async () => {
        this.postgres = await startPostgres(this.dir, port, this.settings);
      },
    };
  }

  async query<Row>(text: string): Promise<Row[]> {
    const client = await openClient(this.databaseUrl);
    try {
      return (await client.query(text)).rows as Row[];
    } finally {
      await client.end();
    }
  }

  /** Ends everything that is still there, and removes the folder unless it is to be looked at. */
  async close({ keep }: { keep: boolean }): Promise<void> {
    for (const api of this.apis) await api.kill();
    for (const { pid } of [...(await this.runners()), ...(await this.programs())]) endProcess(pid);
    await this.postgres.stop();
    if (!keep) await rm(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }
}

const dataDirOf = (dir: string): string => path.join(dir, 'data');

function startPostgres(dir: string, port: number, settings: Settings): Promise<EmbeddedPostgres> {
  return startEmbeddedPostgres({ dataDir: path.join(dir, 'postgres'), port, durability: 'server-default', settings });
}

async function makeKey(url: string): Promise<string> {
  const db = await openDb({ url });
  try {
    await ensureTenant(db.sql, TENANT, SETTINGS);
    return (await createApiKey(db.sql, { tenantId: TENANT, name: 'faults', scopes: [...SCOPES] })).key;
  } finally {
    await db.close();
  }
}

export function endProcess(pid: number): boolean {
  try {
    process.kill(pid, 'SIGKILL');
    return true;
  } catch {
    return false; // it has ended by itself
  }
}
