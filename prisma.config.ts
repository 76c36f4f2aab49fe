import path from 'node:path';
import { defineConfig } from 'prisma/config';

// Prisma's native schema engine is fetched from binaries.prisma.sh. This repository answers for it with the WebAssembly build of the
// same engine from npm, so that every prisma command works behind a closed network. Set the variable to use another engine.
process.env['PRISMA_SCHEMA_ENGINE_BINARY'] ??= path.join(import.meta.dirname, 'tools/schema-engine.mjs');
process.env['CHECKPOINT_DISABLE'] ??= '1';
process.env['PRISMA_HIDE_UPDATE_MESSAGE'] ??= '1';

export default defineConfig({
  schema: 'prisma/schema',
  migrations: { path: 'prisma/migrations' },
  datasource: { url: process.env['DATABASE_URL'] ?? (await embeddedUrl()) },
});

/**
 * Without DATABASE_URL the commands work on the embedded database of `npm start`: the running one, or one that is started for this command
 * and ends with it. Commands that read files only start nothing.
 */
async function embeddedUrl(): Promise<string> {
  const nowhere = 'postgresql://postgres:postgres@127.0.0.1:5432/runplane?schema=runplane';
  if (!process.argv.some((word) => ['migrate', 'db', 'studio'].includes(word)) || process.argv.includes('--help')) return nowhere;
  const { findEmbeddedPostgres, startEmbeddedPostgres } = await import('./libs/database/src/embedded-postgres');
  const dataDir = path.join(process.env['RUNPLANE_DATA_DIR'] ?? path.join(import.meta.dirname, '.runplane'), 'postgres');
  const running = await findEmbeddedPostgres(dataDir);
  console.error(
    `DATABASE_URL is not set: working on the embedded PostgreSQL in ${path.relative('.', dataDir)}${running === undefined ? ', started for this command' : ''}.`,
  );
  return running ?? (await startEmbeddedPostgres({ dataDir, durability: 'server-default' })).url;
}
