import { allowedEnvironment, type BackendProfiles, processBackendOf, type ProcessBackend, type ProcessJob } from '@runplane/contracts';
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import {
  LaunchFailed,
  type Launcher,
  type LaunchOptions,
  type LaunchRequest,
  type LaunchResult,
  type ObservedJob,
  type RecordedJob,
} from './launcher';
import { requireBackend, requireWorkspace } from './launch-place';
import { processStart } from './process-start';
import { RunnerProcesses } from './runner-processes';

export interface ProcessLauncherOptions {
  /** The runner program and its arguments; it reads a ProcessJob from standard input. */
  readonly runnerCommand: readonly string[];
  /** Where the launcher notes which processes it has started, with their logs; kept over restarts. */
  readonly stateDir: string;
  readonly apiUrl: string;
  readonly backends: BackendProfiles | (() => BackendProfiles | Promise<BackendProfiles>);
  /** Each tenant's workspaces lie in a folder of its own below it. */
  readonly workspaceRoot: string;
  /** A token for this one run. */
  readonly issueToken: (request: LaunchRequest) => Promise<string>;
  readonly log?: ((message: string) => void) | undefined;
}

/**
 * Starts each runner as a process of its own on this machine, in a session of its own, so that it outlives this process. Which process
 * belongs to a job stands in a file (see RunnerProcesses), so that a launch after a crash finds it alive and answers `adopted`.
 *
 * The order makes a crash at any point harmless: reserve → start → note pid and start time → hand over the job. A runner without a job
 * ends by itself, and a job that is handed over has its process noted. The token goes through standard input alone.
 */
export function createProcessLauncher(options: ProcessLauncherOptions): Launcher {
  const { runnerCommand, apiUrl, workspaceRoot, issueToken, log = () => undefined } = options;
  const stateDir = path.resolve(options.stateDir);
  const processes = new RunnerProcesses(stateDir);

  async function launch(request: LaunchRequest, { signal }: LaunchOptions = {}): Promise<LaunchResult> {
    const backend = processBackendOf(await requireBackend(options.backends, request.backendProfile));
    const folder = requireWorkspace(request);
    await mkdir(stateDir, { recursive: true, mode: 0o700 });
    const place = await processes.reserve(request.runnerJobId);
    if (place.kind === 'alive') return launched('adopted', place.pid, place.runnerId);
    const runnerId = place.generation === 1 ? request.runnerId : `${request.runnerId}.${place.generation}`; // one incarnation each
    let child: Started | undefined;
    try {
      const token = await issueToken({ ...request, runnerId });
      signal?.throwIfAborted();
      child = await start(runnerCommand, path.join(stateDir, place.logName), backend);
      await place.note({ pid: child.pid, startTime: await processStart(child.pid), runnerId });
      const { tenantId, runId, commandId } = request;
      // A path comes from a request: it may name no folder of another tenant (TEN-1), also through a symbolic link.
      const root = path.join(workspaceRoot, tenantId);
      const job: ProcessJob = { apiUrl, token, runId, commandId, runnerId, backend, workspaceRoot: root, workspacePath: folder };
      await handOver(child.process, job);
      log(`runner ${runnerId} for run ${runId} is process ${child.pid}`);
      return { ...launched('created', child.pid, runnerId), ended: child.ended };
    } catch (error) {
      child?.process.stdin?.destroy(); // without a job it ends
      await place.giveBack();
      throw error;
    } finally {
      await processes.prune().catch((error: Error) => log(`old runner files could not be removed: ${error.message}`));
    }
  }

  /** A job without a note here was started on another machine. */
  async function find({ runnerJobId }: RecordedJob): Promise<ObservedJob> {
    return { state: await processes.look(runnerJobId) };
  }
  return { kind: 'process', launch, find };
}

function launched(outcome: LaunchResult['outcome'], pid: number, runnerId: string): LaunchResult {
  return { outcome, jobName: `process-${pid}`, result: { pid, runnerId }, place: { runnerId } };
}

interface Started {
  readonly process: ChildProcess;
  readonly pid: number;
  readonly ended: Promise<string>;
}

/** A session of its own; its few lines of output go to a file; its environment is what its program may see, and certificates. */
async function start([program = '', ...args]: readonly string[], logFile: string, backend: ProcessBackend): Promise<Started> {
  const log = await open(logFile, 'a', 0o600);
  try {
    const child = spawn(program, args, {
      detached: true,
      stdio: ['pipe', log.fd, log.fd],
      cwd: path.dirname(logFile),
      env: { ...allowedEnvironment(process.env, { ...backend, env: {} }), ...certificates() },
    });
    const ended = new Promise<string>((resolve) => {
      child.once('exit', (code, signal) =>
        resolve(`its process ended with ${signal ?? `exit code ${code}`}; see ${path.basename(logFile)}`),
      );
    });
    await new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject));
    child.on('error', () => undefined);
    child.unref();
    return { process: child, pid: child.pid as number, ended };
  } catch (error) {
    throw new LaunchFailed(`The runner program could not be started: ${(error as Error).message}`, { permanent: false, cause: error });
  } finally {
    await log.close();
  }
}

function certificates(): Record<string, string> {
  const file = process.env['NODE_EXTRA_CA_CERTS'];
  return file === undefined ? {} : { NODE_EXTRA_CA_CERTS: file };
}

async function handOver({ stdin }: ChildProcess, job: ProcessJob): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    stdin?.once('error', reject);
    stdin?.end(`${JSON.stringify(job)}\n`, resolve);
  }).catch((error: Error) => {
    throw new LaunchFailed(`The runner program ended at once: ${error.message}`, { permanent: false, cause: error });
  });
}
