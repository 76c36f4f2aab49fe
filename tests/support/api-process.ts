import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { BackendProfile } from '@runplane/contracts';

/** Where `npm run build` puts the program of the API. */
const PROGRAM = path.resolve(path.dirname(require.resolve('@runplane/api/package.json')), 'dist/main.js');
const START_MS = 60_000;
const POLL_MS = 50;

export interface ApiProcessOptions {
  readonly databaseUrl: string;
  /** Runners, workspaces, logs and the backend profiles live below it. Processes that share it see each other's runners. */
  readonly dataDir: string;
  readonly backends?: Readonly<Record<string, Partial<BackendProfile>>> | undefined;
  /** A free one when not given; kept over restarts. */
  readonly port?: number | undefined;
  readonly env?: Readonly<Record<string, string>> | undefined;
}

/** The API as an operating-system process of its own, as `npm start` would run it. It can be killed, stopped and started again. */
export class ApiProcess {
  readonly url: string;
  readonly logFile: string;
  /** How a process ended that nobody here had ended. */
  readonly accidents: string[] = [];
  private child: ChildProcess;
  private readonly launch: () => ChildProcess;
  /** Processes whose end is nobody's fault: not ready yet (the database may be down), or ended from here. */
  private readonly mayEnd = new WeakSet<ChildProcess>();

  private constructor(port: number, logFile: string, launch: () => ChildProcess) {
    this.url = `http://127.0.0.1:${port}`;
    this.logFile = logFile;
    this.launch = launch;
    this.child = this.spawned();
  }

  /** Starts it and waits until it is ready. */
  static async start({ databaseUrl, dataDir, backends = {}, port: wanted, env = {} }: ApiProcessOptions): Promise<ApiProcess> {
    const port = wanted ?? (await freePort());
    await mkdir(dataDir, { recursive: true });
    const backendsFile = path.join(dataDir, 'backends.json');
    await writeFile(backendsFile, JSON.stringify(backends));
    const logFile = path.join(dataDir, `api-${port}.log`);
    const variables = {
      PATH: process.env['PATH'] ?? '',
      HOME: process.env['HOME'] ?? '/',
      DATABASE_URL: databaseUrl,
      PORT: String(port),
      RUNPLANE_DATA_DIR: dataDir,
      RUNPLANE_BACKENDS_FILE: backendsFile,
      ...env,
    };
    const api = new ApiProcess(port, logFile, () => {
      const log = openSync(logFile, 'a');
      const child = spawn(process.execPath, [PROGRAM], { cwd: dataDir, env: variables, stdio: ['ignore', log, log] });
      closeSync(log);
      return child;
    });
    await api.untilUp();
    return api;
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  get isRunning(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  async isReady(): Promise<boolean> {
    const answer = await fetch(`${this.url}/readyz`, { signal: AbortSignal.timeout(5_000) }).catch(() => undefined);
    await answer?.arrayBuffer().catch(() => undefined);
    return answer?.status === 200;
  }

  /** Waits until it says that it is ready, or with `false` that it is not. */
  async untilReady(ready = true, timeoutMs = START_MS): Promise<void> {
    for (const late = Date.now() + timeoutMs; (await this.isReady()) !== ready; await sleep(POLL_MS)) {
      if (this.isRunning && Date.now() < late) continue;
      const how = this.isRunning ? `is ${ready ? 'not ready' : 'still ready'} after ${timeoutMs} ms` : 'has ended';
      throw new Error(`the API ${this.url} ${how}; the end of its log:\n${(await this.log()).slice(-3_000)}`);
    }
  }

  /** SIGKILL; resolves when it is gone. */
  async kill(): Promise<void> {
    await this.end('SIGKILL');
  }

  /** SIGTERM; resolves with the exit code. */
  async stop(): Promise<number | null> {
    return this.end('SIGTERM');
  }

  /** After an end: the same configuration, the same port, another process. Fails when that ends before it is ready: without a database it does. */
  async restart(): Promise<void> {
    if (this.isRunning) throw new Error(`the API ${this.url} is running`);
    this.child = this.spawned();
    await this.untilUp();
  }

  async log(): Promise<string> {
    return readFile(this.logFile, 'utf8').catch(() => '');
  }

  private async untilUp(): Promise<void> {
    await this.untilReady();
    this.mayEnd.delete(this.child);
  }

  private async end(signal: NodeJS.Signals): Promise<number | null> {
    const { child } = this;
    this.mayEnd.add(child);
    if (this.isRunning) {
      const exited = once(child, 'exit');
      child.kill(signal);
      await exited;
    }
    return child.exitCode;
  }

  private spawned(): ChildProcess {
    const child = this.launch();
    this.mayEnd.add(child);
    child.on('exit', (code, signal) => {
      if (!this.mayEnd.has(child)) this.accidents.push(`the API ${this.url} (${child.pid}) ended by itself with ${code ?? signal}`);
    });
    return child;
  }
}

/** A fetch that reaches any of the processes, another one by chance with each call, whatever host the address names: a load balancer. */
export function balanced(apis: readonly { readonly url: string }[]): typeof fetch {
  return (address, init) => {
    const { pathname, search } = new URL(address instanceof Request ? address.url : address);
    const target = apis[Math.floor(Math.random() * apis.length)];
    if (target === undefined) throw new Error('there is nothing to balance between');
    return fetch(`${target.url}${pathname}${search}`, init);
  };
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
