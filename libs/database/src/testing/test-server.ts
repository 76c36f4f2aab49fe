import { startEmbeddedPostgres, temporaryDataDir, type EmbeddedPostgres } from '../embedded-postgres';

/** A throw-away PostgreSQL for ordinary tests: not durable, many connections, quick to notice a deadlock. It cannot outlive this process. */
export function startTestServer(settings: Readonly<Record<string, string>> = {}): Promise<EmbeddedPostgres> {
  return startEmbeddedPostgres({
    dataDir: temporaryDataDir(),
    durability: 'off',
    temporary: true,
    settings: { max_connections: '300', deadlock_timeout: '100ms', ...settings },
  });
}
