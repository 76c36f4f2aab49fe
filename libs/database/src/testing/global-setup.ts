// Jest loads this file with Node's own resolver: it may import no workspace package, which before a build has no dist/.
import { startTestServer } from './test-server';
import type { EmbeddedPostgres } from '../embedded-postgres';

declare global {
  var runplaneTestServer: EmbeddedPostgres | undefined;
}

/** One server for all files of a jest run; TEST_POSTGRES_URL names one that is there already, for several runs to share. */
export default async function globalSetup(): Promise<void> {
  if (process.env['TEST_POSTGRES_URL']) return;
  globalThis.runplaneTestServer = await startTestServer();
  process.env['TEST_POSTGRES_URL'] = globalThis.runplaneTestServer.url;
}
