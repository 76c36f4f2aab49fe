import { randomBytes } from 'node:crypto';
import type { V1Job } from '@kubernetes/client-node';
import {
  type BackendProfile,
  BackendProfiles,
  DISPATCH_ATTEMPTS_MAX,
  type KubernetesPlacement,
  type ProcessJob,
  processBackendOf,
} from '@runplane/contracts';
import { connectKubernetes, type KubernetesApi, KubernetesFailure, type KubernetesApiOptions } from './kubernetes-api';
import {
  identityOf,
  idsOf,
  isJobOf,
  jobNameOf,
  jobSelector,
  newJob,
  newSecret,
  observedJob,
  runnerIdOf,
  workspaceRootOf,
} from './kubernetes-job';
import { type Backends, requireBackend, requireWorkspace } from './launch-place';
import {
  JobHidden,
  LaunchFailed,
  type Launcher,
  type LaunchOptions,
  type LaunchRequest,
  type LaunchResult,
  type ListedJob,
  type ObservedJob,
  type RecordedJob,
} from './launcher';

export interface KubernetesLauncherOptions extends KubernetesApiOptions {
  /** Marks what is ours: several stores may share a namespace. */
  readonly storeId: string;
  /** Where pods reach the API. */
  readonly apiUrl: string;
  readonly backends: Backends;
  /** A token for this one run. */
  readonly issueToken: (request: LaunchRequest) => Promise<string>;
  readonly log?: ((message: string) => void) | undefined;
}

export type KubernetesLauncher = Launcher & Required<Pick<Launcher, 'find' | 'list' | 'remove'>>;

/** One more than a planned job can be tried: each try makes one Job at most. */
const GENERATIONS_MAX = DISPATCH_ATTEMPTS_MAX + 1;
const LIST_PAGE = 500;
/** The places of a list expire after minutes; one that expires so often is read too slowly to be of use. */
const LIST_STARTS_MAX = 3;
const REMOVE_TRIES_MAX = 3;

type Version = Omit<ReturnType<typeof identityOf>, never>;

/**
 * Starts each runner as a `batch/v1` Job. The name follows from the planned job, so a repeat after a crash, or after an answer that got
 * lost, meets `409 AlreadyExists`, reads the Job back and adopts it; a Job of that name that is not ours is left alone and fails the launch.
 *
 * The order makes a crash at any point harmless: Job → Secret → record. A Job without its Secret waits; the repeat makes it. See
 * docs/adr/0017-kubernetes-jobs.md.
 */
export async function createKubernetesLauncher(options: KubernetesLauncherOptions): Promise<KubernetesLauncher> {
  const { storeId, backends, log = () => undefined } = options;
  const api = await connectKubernetes(options);

  async function launch(request: LaunchRequest, { signal }: LaunchOptions = {}): Promise<LaunchResult> {
    const backend = await requireBackend(backends, request.backendProfile);
    const workspacePath = requireWorkspace(request);
    const placed = requirePlacement(backend, request);
    signal?.throwIfAborted();
    const { job, runnerId, outcome } = await asLaunch(() => placeJob(api, storeId, request, placed));
    const token = await options.issueToken({ ...request, runnerId });
    const runnerJob: ProcessJob = {
      apiUrl: options.apiUrl,
      token,
      runId: request.runId,
      commandId: request.commandId,
      runnerId,
      backend: processBackendOf(backend),
      workspaceRoot: workspaceRootOf(placed.kubernetes),
      workspacePath,
    };
    // It exists when an earlier try came so far, or another one was faster: its content is as good.
    await asLaunch(() => api.createSecret(newSecret(job, storeId, runnerJob)));
    const { namespace, name, uid } = identityOf(job);
    log(`runner ${runnerId} for run ${request.runId} is Job ${namespace}/${name}`);
    const { image, serviceAccountName } = placed.kubernetes;
    return { outcome, jobName: name, result: { namespace, uid, runnerId }, place: { runnerId, namespace, image, serviceAccountName } };
  }

  async function find({ jobName, tenantId, runnerJobId, result }: RecordedJob): Promise<ObservedJob> {
    const { namespace, uid } = result;
    if (typeof namespace !== 'string') return { state: 'unknown' };
    const job = await api.readJob(namespace, jobName).catch((error: unknown) => {
      throw error instanceof KubernetesFailure && error.status === 403 ? new JobHidden(error.message, { cause: error }) : error;
    });
    if (job === undefined || job.metadata?.uid !== uid) return { state: 'gone' };
    const ids = idsOf(job);
    return ids?.tenantId === tenantId && ids.runnerJobId === runnerJobId ? observedJob(job) : { state: 'gone' };
  }

  async function list({ onFailure }: Parameters<Required<Launcher>['list']>[0] = {}): Promise<ListedJob[]> {
    const namespaces = [...new Set(Object.values(await resolved(backends)).flatMap(({ kubernetes }) => kubernetes?.namespace ?? []))];
    const lists = await Promise.allSettled(namespaces.map((namespace) => listNamespace(api, namespace, storeId)));
    const found = lists.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
    for (const [i, each] of lists.entries()) {
      if (each.status === 'fulfilled') continue;
      if (onFailure === undefined || found.length === 0) throw each.reason;
      onFailure(`the Jobs in ${namespaces[i] ?? ''}`, each.reason);
    }
    return found.flat().flatMap((job) => listed(job, storeId) ?? []);
  }

  async function remove({ version }: ListedJob): Promise<boolean> {
    let target = version as Version;
    for (let tries = 0; tries < REMOVE_TRIES_MAX; tries += 1) {
      const answer = await api.deleteJob(target);
      if (answer !== 'changed') return answer === 'deleted';
      const job = await api.readJob(target.namespace, target.name);
      if (job === undefined || job.metadata?.uid !== target.uid || observedJob(job).state !== 'active') return false;
      target = identityOf(job);
    }
    return false;
  }
  return { kind: 'kubernetes', launch, find, list, remove };
}

type PlacedBackend = BackendProfile & { readonly kubernetes: KubernetesPlacement };

function requirePlacement(backend: BackendProfile, { backendProfile }: LaunchRequest): PlacedBackend {
  const { kubernetes } = backend;
  if (kubernetes !== undefined) return { ...backend, kubernetes };
  throw new LaunchFailed(`The backend profile '${backendProfile}' does not say where its Jobs are to run.`, {
    permanent: true,
    failureKind: 'schema-invalid',
  });
}

interface PlacedJob {
  readonly job: V1Job;
  readonly runnerId: string;
  readonly outcome: 'created' | 'adopted';
}

/** Creates the Job, or finds that of an earlier try. One that has ended unrecorded has done nothing for the run: the next follows it. */
async function placeJob(api: KubernetesApi, storeId: string, request: LaunchRequest, backend: PlacedBackend): Promise<PlacedJob> {
  const { kubernetes: placement, graceMs } = backend;
  for (let generation = 1; generation <= GENERATIONS_MAX; generation += 1) {
    const name = jobNameOf(request, generation);
    const secretName = `${name}-${randomBytes(4).toString('hex')}`;
    const created = await api.createJob(newJob({ storeId, request, generation, placement, graceMs, secretName }));
    if (created !== 'exists') return { job: created, runnerId: runnerIdOf(request, generation), outcome: 'created' };
    const found = await api.readJob(placement.namespace, name);
    if (found === undefined) throw new KubernetesFailure(`the Job ${name} was removed while it was looked at`, { retryable: true });
    if (!isJobOf(found, storeId, request)) {
      throw new LaunchFailed(`There is a Job ${placement.namespace}/${name} that is not ours.`, { permanent: true });
    }
    if (observedJob(found).state === 'active') {
      return { job: found, runnerId: idsOf(found)?.runnerId ?? runnerIdOf(request, generation), outcome: 'adopted' };
    }
  }
  throw new LaunchFailed(`${GENERATIONS_MAX} Jobs for one launch have ended before they were recorded.`, { permanent: true });
}

/** Failures of requests as the dispatcher understands them. */
async function asLaunch<T>(request: () => Promise<T>): Promise<T> {
  try {
    return await request();
  } catch (error) {
    if (!(error instanceof KubernetesFailure)) throw error;
    throw new LaunchFailed(error.message, { permanent: !error.retryable, retryAfterMs: error.retryAfterMs });
  }
}

/** Page by page, from the start when the place has expired: a list is whole or there is none. */
async function listNamespace(api: KubernetesApi, namespace: string, storeId: string): Promise<V1Job[]> {
  const selector = jobSelector(storeId);
  for (let starts = 0; starts < LIST_STARTS_MAX; starts += 1) {
    const jobs: V1Job[] = [];
    for (let from: string | undefined; ;) {
      const page = await api.listJobs(namespace, { selector, limit: LIST_PAGE, from });
      if (page === 'expired') break;
      jobs.push(...page.jobs);
      if (page.next === undefined) return jobs;
      from = page.next;
    }
  }
  throw new KubernetesFailure(`the list of Jobs in ${namespace} has expired ${LIST_STARTS_MAX} times while it was read`, {
    retryable: true,
  });
}

/** The label's hash may be shared; the annotation is the store's id itself. */
function listed(job: V1Job, storeId: string): ListedJob | undefined {
  const ids = idsOf(job);
  if (ids?.storeId !== storeId) return undefined;
  const { tenantId, runId, runnerJobId } = ids;
  const version: Version = identityOf(job);
  const ageMs = Date.now() - (job.metadata?.creationTimestamp?.getTime() ?? Date.now());
  return { ...observedJob(job), tenantId, runId, runnerJobId, launcher: 'kubernetes', jobName: version.name, ageMs, version };
}

async function resolved(backends: Backends): Promise<BackendProfiles> {
  return BackendProfiles.parse(typeof backends === 'function' ? await backends() : backends);
}
