// Fails when the Prisma schema, the migrations and a migrated database disagree. State lists are compared by tests/contract.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const require = createRequire(import.meta.url);
if (!existsSync(`${root}/libs/database/dist/migrate.js`)) {
  console.error('libs/database is not built: npm run build');
  process.exit(1);
}
const { startEmbeddedPostgres, temporaryDataDir } = require('../libs/database/dist/embedded-postgres.js');
const { migrate } = require('../libs/database/dist/migrate.js');

const server = await startEmbeddedPostgres({ dataDir: temporaryDataDir(), durability: 'off', temporary: true });
const differences = [];
try {
  check('the schema is valid', 'validate');
  const toSchema = ['--to-schema', 'prisma/schema', '--exit-code'];
  check('the migrations make the schema', 'migrate', 'diff', '--from-migrations', 'prisma/migrations', ...toSchema);
  const applied = await migrate(server.url);
  check(`a database with all ${applied.length} migrations has the schema`, 'migrate', 'diff', '--from-config-datasource', ...toSchema);
  check('Prisma finds that database up to date', 'migrate', 'status');
} finally {
  await server.stop();
}
console.log(differences.length === 0 ? 'database check: no difference' : `database check: ${differences.length} failed`);
process.exitCode = differences.length === 0 ? 0 : 1;

function check(promise, ...args) {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['node_modules/prisma/build/index.js', ...args], {
    cwd: root,
    env: { ...process.env, DATABASE_URL: server.url },
    encoding: 'utf8',
  });
  console.log(`${status === 0 ? 'ok    ' : 'FAILED'} ${promise}`);
  if (status === 0) return;
  differences.push(promise);
  console.log(stdout + stderr);
}
