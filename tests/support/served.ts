import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import path from 'node:path';

const PROGRAM = path.resolve(__dirname, '../../apps/api/dist/main.js');

/** `npm start` as a process of its own. */
export interface Served {
  readonly child: ChildProcess;
  readonly address: string;
  readonly exit: Promise<number | null>;
  output(): string;
}

/** Starts the built program; resolves when it listens, throws with its output when it ends before. */
export async function startServed(env: Readonly<Record<string, string>>, children: ChildProcess[]): Promise<Served> {
  if (!existsSync(PROGRAM)) throw new Error(`${PROGRAM} is not there: npm run build`);
  const child = spawn(process.execPath, [PROGRAM], {
    env: { PATH: process.env['PATH'], PORT: '0', RUNPLANE_MIGRATE: 'off', RUNPLANE_DISPATCH: 'off', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (output += chunk.toString()));
  const exit = new Promise<number | null>((resolve) => child.once('exit', resolve));
  for (const late = Date.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    const address = /listens on (http:\S+);/.exec(output)?.[1];
    if (address !== undefined) return { child, address, exit, output: () => output };
    if (Date.now() > late || child.exitCode !== null) throw new Error(`it did not start:\n${output}`);
  }
}
