import { execFile } from 'node:child_process';
import { access, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { promisify } from 'node:util';

/** Where the peers are installed: not in the workspace, they need a newer Node.js. As seen from dist/queue-peers. */
const FOLDER = path.resolve(__dirname, '../../queue-peers/peers');
const fromFolder = createRequire(path.join(FOLDER, 'package.json'));

/** A module of a peer, and its version. In a process of the Node.js that `installRivals` names. */
export function loadPeer<Module>(name: string): { module: Module; version: string } {
  const folder = path.join(FOLDER, 'node_modules', name);
  const { version } = fromFolder(path.join(folder, 'package.json')) as { version: string };
  return { module: fromFolder(name) as Module, version };
}

/** The oldest that every peer runs on. */
const NODE_MIN = { major: 22, minor: 18 };

/** Installs what is not there yet, by its lock file. Returns the Node.js for the processes: this one, where it is new enough. */
export async function installRivals(say: (line: string) => void): Promise<{ node: string }> {
  if (!(await isInstalled())) {
    say(`npm ci in ${path.relative(process.cwd(), FOLDER)}`);
    await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund'], { cwd: FOLDER });
  }
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > NODE_MIN.major || (major === NODE_MIN.major && minor >= NODE_MIN.minor)) return { node: process.execPath };
  const node = path.join(FOLDER, 'node_modules', `node-${process.platform}-${process.arch}`, 'bin', 'node');
  await access(node).catch(() => {
    throw new Error(`the peers need Node.js ${NODE_MIN.major}.${NODE_MIN.minor}: there is none for ${process.platform} ${process.arch}`);
  });
  return { node };
}

/** Whether npm has installed just this lock file's packages. */
async function isInstalled(): Promise<boolean> {
  const versions = async (file: string): Promise<string> => {
    const { packages } = JSON.parse(await readFile(path.join(FOLDER, file), 'utf8')) as { packages: Record<string, { version: string }> };
    return Object.entries(packages)
      .filter(([name]) => name.startsWith('node_modules/') && !name.startsWith('node_modules/node-'))
      .map(([name, { version }]) => `${name} ${version}`)
      .join();
  };
  const [wanted, there] = await Promise.all([versions('package-lock.json'), versions('node_modules/.package-lock.json').catch(() => '')]);
  return wanted === there;
}
