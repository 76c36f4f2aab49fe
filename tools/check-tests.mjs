// Fails when a spec file would not be run, or when a test has a name that jest does not look for.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const skipped = new Set(['node_modules', 'dist', 'generated']);

function filesUnder(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (entry.isDirectory()) return skipped.has(entry.name) ? [] : filesUnder(path.join(folder, entry.name));
    return [path.join(folder, entry.name)];
  });
}

function listTests(config) {
  const args = ['node_modules/jest/bin/jest.js', '--config', config, '--listTests', '--json'];
  const jest = spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' });
  if (jest.status !== 0) throw new Error(jest.stderr);
  return JSON.parse(jest.stdout);
}

const files = ['libs', 'apps', 'tests', 'bench'].flatMap((folder) => filesUnder(path.join(root, folder)));
const specs = files.filter((file) => /\.spec\.[cm]?[jt]sx?$/.test(file));
const misnamed = files.filter((file) => /\.test\.[cm]?[jt]sx?$/.test(file));

// `npm test` and `npm run test:kafka`.
const run = new Set(['jest.config.cjs', 'tests/kafka/jest.config.cjs'].flatMap(listTests));
const forgotten = specs.filter((file) => !run.has(file));

for (const file of forgotten) console.error(`jest does not run ${path.relative(root, file)}`);
for (const file of misnamed) console.error(`name it *.spec.ts: ${path.relative(root, file)}`);
console.log(`test check: ${specs.length} spec files, ${forgotten.length} not run, ${misnamed.length} misnamed`);
process.exitCode = forgotten.length + misnamed.length === 0 ? 0 : 1;
