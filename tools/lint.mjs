// Lints each package in a process of its own, one after the other, then what stands beside them: a run with the types of all packages at once
// needs more memory than a process gets.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const { workspaces } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
const packages = workspaces
  .flatMap((pattern) =>
    pattern.endsWith('/*')
      ? readdirSync(path.join(root, pattern.slice(0, -2))).map((name) => path.join(pattern.slice(0, -2), name))
      : [pattern],
  )
  .filter((folder) => existsSync(path.join(root, folder, 'package.json')));

const runs = [...packages.map((folder) => [folder]), ['.', ...packages.flatMap((folder) => ['--ignore-pattern', `${folder}/`])]];
const failed = runs.filter((args) => {
  const eslint = path.join(root, 'node_modules/eslint/bin/eslint.js');
  return spawnSync(process.execPath, [eslint, ...args], { cwd: root, stdio: 'inherit' }).status !== 0;
});
process.exitCode = failed.length === 0 ? 0 : 1;
