import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, realpath, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { processesIn } from '../support/processes';
import { until } from '../support/until';

// `npm run demo` after its build: what a stranger sees first. Needs a build.

const PROGRAM = path.resolve(path.dirname(require.resolve('@runplane/api/package.json')), 'dist/demo.js');

let folder: string;
let shown: string;
beforeEach(async () => {
  folder = await realpath(await mkdtemp(path.join(os.tmpdir(), 'demo-spec-')));
  shown = '';
});
afterEach(() => rm(folder, { recursive: true }));

/** Its temporary files lie in our folder. */
function demo(...args: string[]): ChildProcess {
  const child = spawn(process.execPath, [PROGRAM, ...args], { env: { ...process.env, TMPDIR: folder }, stdio: ['ignore', 'pipe', 'pipe'] });
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => (shown += String(text)));
  return child;
}
async function exitCode(child: ChildProcess): Promise<unknown> {
  return ((await once(child, 'close')) as unknown[])[0];
}
async function nothingIsLeft(): Promise<void> {
  await until('its processes have ended', async () => (await processesIn(folder)).length === 0, 5_000);
  expect(await readdir(folder)).toEqual([]);
}

it('shows two turns and a cancelled one, checks them, and leaves nothing behind', async () => {
  const code = await exitCode(demo());

  expect({ code, failure: /The demo failed.*/.exec(shown)?.[0] }).toEqual({ code: 0 });
  expect(shown.match(/terminal_status +(completed|cancelled)/g)).toHaveLength(3);
  expect(shown).toContain('the program wrote turn-2-chapter-1.md');
  expect(shown).toContain('npm run studio');
  expect(shown).not.toContain('\u001b'); // no terminal, no colour
  await nothingIsLeft();
});

it('runs the command line that it is given, and says how that ended', async () => {
  expect(await exitCode(demo('sh', '-c', 'read turn; echo "got $turn"; exit 3'))).toBe(0);

  expect(shown).toContain('got {"type":"turn"');
  expect(shown).toContain('the program has ended ({"exitCode":3,"signal":null}), the run is failed');
});

it('ends cleanly on Ctrl-C in the middle of a turn', async () => {
  const child = demo();
  await until('the program works', () => shown.includes('Wrote turn-1-chapter-1.md'), 60_000);

  child.kill('SIGINT');

  expect(await exitCode(child)).toBe(130);
  await nothingIsLeft();
});
