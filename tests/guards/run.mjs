// Tests the tests: removes one guard at a time (areas) and demands that the test named for it fails. `npm run test:guards`,
// `npm run test:guards -- --only lease` for some of them, `--area queue` for those of one file; each may be given several times. The working
// tree is never touched: two copies of it share one PostgreSQL.
import { spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { GUARDS } from './guards.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const GENERATED = 'libs/database/src/generated';
const COPIES = 2;
/** A test that hangs without its guard has not failed: it is stopped, and reported. */
const TEST_TIMEOUT_MS = 120_000;

const { only, area } = parseArgs({
  options: { only: { type: 'string', multiple: true }, area: { type: 'string', multiple: true } },
}).values;
const guards = GUARDS.filter(
  (guard) =>
    (only === undefined || only.some((word) => `${guard.name} ${guard.file}`.toLowerCase().includes(word.toLowerCase()))) &&
    (area === undefined || area.includes(guard.area)),
);
if (guards.length === 0) fail('no guard matches');

const scratch = mkdtempSync(path.join(os.tmpdir(), 'runplane-guards-'));
const server = process.env['TEST_POSTGRES_URL'] ? undefined : await startServer();
const url = server?.url ?? process.env['TEST_POSTGRES_URL'];
const started = Date.now();
let problems = [];
try {
  const unfit = guards.flatMap(({ name, file, text }) => {
    const found = readFileSync(path.join(root, file), 'utf8').match(new RegExp(patternOf(text), 'g'))?.length ?? 0;
    return found === 1 ? [] : [`${name}: the text stands ${found} times in ${file}, not once`];
  });
  if (unfit.length > 0) throw new Error(unfit.join('\n'));
  const copies = Array.from({ length: COPIES }, (_, index) => copyTree(path.join(scratch, String(index))));

  console.log(`${guards.length} guards; first their tests, with the guards in place`);
  problems = (await shareOut(copies, filesOf(guards), withGuards)).flat();
  if (problems.length === 0) problems = (await shareOut(copies, guards, withoutGuard)).flat();
} catch (error) {
  problems.push(error.message);
} finally {
  rmSync(scratch, { recursive: true, force: true });
  await server?.stop();
}

const seconds = Math.round((Date.now() - started) / 1000);
console.log(
  problems.length === 0
    ? `\nall ${guards.length} guards are noticed when they are gone (${seconds} s)`
    : `\n${problems.join('\n')}\n${problems.length} problems (${seconds} s)`,
);
process.exitCode = problems.length === 0 ? 0 : 1;

/** The tests of one file that guards name must pass as things are. */
async function withGuards(copy, { file, names }) {
  const { failed, passed, ran, output } = await runTests(copy, file, names);
  const missing = names.filter((name) => ![...passed, ...failed].some((full) => full.includes(name)));
  if (!ran) return [`${file} does not run:\n${output}`];
  return [
    ...failed.map((full) => `${file}: fails with its guard in place: ${full}`),
    ...missing.map((name) => `${file} has no test “${name}”`),
  ];
}

/** Removes one guard in a copy, and puts it back. */
async function withoutGuard(copy, { name, file, text, replacement, test }) {
  const target = path.join(copy, file);
  const source = readFileSync(target, 'utf8');
  writeFileSync(
    target,
    source.replace(new RegExp(patternOf(text)), () => replacement),
  );
  try {
    const { failed, ran, output } = await runTests(copy, test.file, [test.name]);
    const noticed = ran && failed.length > 0;
    console.log(`${noticed ? 'noticed' : 'MISSED '}  ${name}`);
    if (!ran) return [`${name}: without it ${test.file} does not run at all:\n${output}`];
    return noticed ? [] : [`${name}: without it “${test.name}” in ${test.file} still passes`];
  } finally {
    writeFileSync(target, source);
  }
}

/** Runs the named tests of one file; `ran`: the file was loaded and at least one test came to its end. */
async function runTests(copy, file, names) {
  const report = path.join(copy, 'report.json');
  rmSync(report, { force: true });
  const jest = path.join(copy, 'node_modules/jest/bin/jest.js');
  const pattern = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('|');
  const child = spawn(
    process.execPath,
    [jest, '--ci', '--runInBand', '--runTestsByPath', file, '-t', pattern, '--json', `--outputFile=${report}`],
    {
      cwd: copy,
      env: { ...process.env, TEST_POSTGRES_URL: url },
      stdio: ['ignore', 'ignore', 'pipe'],
    },
  );
  const output = [];
  child.stderr.on('data', (bytes) => output.push(bytes));
  const timer = setTimeout(() => child.kill('SIGKILL'), TEST_TIMEOUT_MS);
  await new Promise((resolve) => child.once('close', resolve));
  clearTimeout(timer);
  const results = existsSync(report)
    ? JSON.parse(readFileSync(report, 'utf8')).testResults.flatMap(({ assertionResults }) => assertionResults)
    : [];
  const namesOf = (status) => results.filter((result) => result.status === status).map(({ fullName }) => fullName);
  const [failed, passed] = [namesOf('failed'), namesOf('passed')];
  return { failed, passed, ran: failed.length + passed.length > 0, output: Buffer.concat(output).toString().slice(-2_000) };
}

/** Each copy takes the next piece of work when it has done one. */
async function shareOut(copies, work, doOne) {
  const left = [...work];
  const results = [];
  const workOff = async (copy) => {
    for (let next = left.shift(); next !== undefined; next = left.shift()) results.push(await doOne(copy, next));
  };
  await Promise.all(copies.map(workOff));
  return results;
}

function filesOf(list) {
  const files = new Map();
  for (const { test } of list) files.set(test.file, new Set([...(files.get(test.file) ?? []), test.name]));
  return [...files].map(([file, names]) => ({ file, names: [...names] }));
}

/** The text as a pattern in which any white space fits any other. */
function patternOf(text) {
  return text
    .trim()
    .split(/\s+/)
    .map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('\\s+');
}

/** A copy of the working tree whose packages find each other in the copy, and everything else in the original's node_modules. */
function copyTree(copy) {
  const { stdout, status } = spawnSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  if (status !== 0) throw new Error('git does not list the files of the working tree');
  for (const file of stdout.split('\0').filter((each) => each !== '' && existsSync(path.join(root, each)))) {
    cpSync(path.join(root, file), path.join(copy, file), { recursive: true });
  }
  cpSync(path.join(root, GENERATED), path.join(copy, GENERATED), { recursive: true });
  mkdirSync(path.join(copy, 'node_modules/@runplane'), { recursive: true });
  for (const name of readdirSync(path.join(root, 'node_modules')).filter((each) => each !== '@runplane')) {
    symlinkSync(path.join(root, 'node_modules', name), path.join(copy, 'node_modules', name));
  }
  for (const folder of ['libs', 'apps', '.'].flatMap((parent) =>
    readdirSync(path.join(copy, parent)).map((name) => path.join(parent, name)),
  )) {
    const manifest = path.join(copy, folder, 'package.json');
    if (!existsSync(manifest)) continue;
    symlinkSync(path.join(copy, folder), path.join(copy, 'node_modules', JSON.parse(readFileSync(manifest, 'utf8')).name));
    const own = path.join(root, folder, 'node_modules');
    if (existsSync(own)) symlinkSync(own, path.join(copy, folder, 'node_modules'));
  }
  return copy;
}

function startServer() {
  const require = createRequire(import.meta.url);
  return require('@runplane/database/testing').startTestServer();
}

function fail(message) {
  console.error(message);
  process.exit(2);
}
