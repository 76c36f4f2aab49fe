import os from 'node:os';
import { migrate, startEmbeddedPostgres, temporaryDataDir } from '@runplane/database';
import pg from 'pg';

export interface BenchStore {
  readonly url: string;
  /** For set-up and checks only; what is measured has connections of its own. */
  readonly admin: pg.Pool;
  stop(): Promise<void>;
}

/** A PostgreSQL server of its own with the settings that PostgreSQL ships with but for `settings`, migrated; gone when the benchmark ends. */
export async function startBenchStore(settings: Readonly<Record<string, string>> = {}): Promise<BenchStore> {
  const server = await startEmbeddedPostgres({ dataDir: temporaryDataDir(), durability: 'server-default', temporary: true, settings });
  await migrate(server.url);
  const admin = openPlainPool(server.url, 2);
  return {
    url: server.url,
    admin,
    stop: async () => {
      await admin.end();
      await server.stop();
    },
  };
}

/** A pool as a program without this project would have it. */
export function openPlainPool(url: string, max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max });
  pool.on('error', () => undefined); // the server stops at the end
  return pool;
}

/** What the numbers depend on, read from where it holds. Throws when a commit would not be durable: such numbers mean nothing. */
export async function describeMachine(admin: pg.Pool): Promise<string> {
  const settings: Record<string, string> = {};
  for (const name of ['server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers']) {
    const { rows } = await admin.query<{ value: string }>('SELECT current_setting($1) AS value', [name]);
    settings[name] = rows[0]?.value ?? '';
  }
  if (settings['fsync'] !== 'on' || settings['synchronous_commit'] !== 'on') throw new Error('fsync and synchronous_commit must be on');
  const { server_version: version, ...others } = settings;
  const cpus = os.cpus();
  return [
    `${cpus.length} × ${cpus[0]?.model.trim() ?? 'unknown CPU'}, load ${os.loadavg()[0]?.toFixed(1) ?? '?'} at the start, ${new Date().toISOString()}`,
    `node ${process.version}, PostgreSQL ${version} on the same machine, ${Object.entries(others)
      .map(([name, value]) => `${name}=${value}`)
      .join(' ')}`,
  ].join('\n');
}
