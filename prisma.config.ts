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
  datasource: { url: process.env['DATABASE_URL'] ?? 'postgresql://postgres:postgres@127.0.0.1:5432/runplane?schema=runplane' },
});
