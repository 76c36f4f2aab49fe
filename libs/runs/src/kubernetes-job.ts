import type { V1Container, V1Job, V1PodSpec, V1PodTemplateSpec, V1Secret, V1Volume } from '@kubernetes/client-node';
import { JOB_FILE_VARIABLE, type KubernetesPlacement, type ProcessJob, sha256Hex } from '@runplane/contracts';
import type { LaunchRequest, ObservedJob } from './launcher';
import { folderNameOf } from './launch-place';

// What a Job of ours looks like, and what one tells. Pure: no request is made here.
//
// Nothing secret stands in the Job: its pod mounts a Secret of the Job's own, which holds the runner's job with its token. The Job is made
// first, so that the Secret can name it as its owner and the garbage collector removes both; the pod waits until the Secret is there. The
// Secret's name is drawn anew for each Job and read back from it: a Secret of an earlier Job of that name is never taken for it.

const PREFIX = 'runplane.dev';
const JOB_FOLDER = '/var/run/runplane';
const JOB_KEY = 'job.json';
const JOB_VOLUME = 'runplane-job';
const WORKSPACE_VOLUME = 'workspace';
/** For pulling the image before the claim, and for the grace of a cancel after it. */
const START_AND_STOP_MS = 600_000;

const ANNOTATIONS = {
  store: `${PREFIX}/store-id`,
  tenantId: `${PREFIX}/tenant-id`,
  runId: `${PREFIX}/run-id`,
  commandId: `${PREFIX}/command-id`,
  intentId: `${PREFIX}/intent-id`,
  runnerJobId: `${PREFIX}/runner-job-id`,
  runnerId: `${PREFIX}/runner-id`,
  profile: `${PREFIX}/backend-profile`,
} as const;

/** A valid label value for any id: itself where it is one, else its hash. The true id stands in an annotation. */
export function labelValueOf(id: string): string {
  return /^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/.test(id) ? id : `sha256-${sha256Hex(id).slice(0, 40)}`;
}

/** The selector of everything that a store has made: two stores may share a namespace. */
export function jobSelector(storeId: string): string {
  return `app.kubernetes.io/managed-by=runplane,${PREFIX}/store=${labelValueOf(storeId)}`;
}

/** The same for every try of one planned job; the next generation after one that has ended without being recorded. At most 63 characters. */
export function jobNameOf({ tenantId, runnerJobId }: LaunchRequest, generation: number): string {
  const name = `runplane-${sha256Hex(`${tenantId}\0${runnerJobId}`).slice(0, 40)}`;
  return generation === 1 ? name : `${name}-${generation}`;
}

/** One incarnation each: a runner of a later generation is somebody else. */
export function runnerIdOf({ runnerId }: LaunchRequest, generation: number): string {
  return generation === 1 ? runnerId : `${runnerId}.${generation}`;
}

export interface JobPlan {
  readonly storeId: string;
  readonly request: LaunchRequest;
  readonly generation: number;
  readonly placement: KubernetesPlacement;
  /** Between SIGTERM and the end of a program; the runner needs a little more for its own. */
  readonly graceMs: number;
  /** Unlike that of any other Job. */
  readonly secretName: string;
}

/** A Job that runs one runner once: what becomes of a lost runner is the run's policy, not the cluster's. */
export function newJob(plan: JobPlan): V1Job {
  const { request, placement } = plan;
  return {
    apiVersion: 'batch/v1',
    kind: 'Job',
    metadata: {
      name: jobNameOf(request, plan.generation),
      namespace: placement.namespace,
      labels: labelsOf(plan),
      annotations: annotationsOf(plan),
    },
    spec: {
      backoffLimit: 0,
      completions: 1,
      parallelism: 1,
      ttlSecondsAfterFinished: seconds(placement.keptMs),
      ...deadlineOf(plan),
      template: podTemplate(plan),
    },
  };
}

/** The Secret of a Job that exists: it goes when the Job goes. */
export function newSecret(job: V1Job, storeId: string, runnerJob: ProcessJob): V1Secret {
  const { name, namespace, uid } = identityOf(job);
  return {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: {
      name: secretNameOf(job),
      namespace,
      labels: { 'app.kubernetes.io/managed-by': 'runplane', [`${PREFIX}/store`]: labelValueOf(storeId) },
      ownerReferences: [{ apiVersion: 'batch/v1', kind: 'Job', name, uid }],
    },
    type: 'Opaque',
    immutable: true,
    data: { [JOB_KEY]: Buffer.from(JSON.stringify(runnerJob)).toString('base64') },
  };
}

/** Where the pod finds the tenant's workspaces. */
export function workspaceRootOf(placement: KubernetesPlacement): string {
  return placement.workspace.mountPath;
}

/** Whether a Job is this store's for this very planned job: names can be chosen by anybody, so the ids decide. */
export function isJobOf(job: V1Job, storeId: string, { tenantId, runnerJobId }: LaunchRequest): boolean {
  const ids = idsOf(job);
  return ids?.storeId === storeId && ids.tenantId === tenantId && ids.runnerJobId === runnerJobId;
}

/** Whose Job it is, as its annotations say; undefined when it is none of ours. */
export function idsOf(job: V1Job): { storeId: string; tenantId: string; runId: string; runnerJobId: string; runnerId: string } | undefined {
  const text = (key: keyof typeof ANNOTATIONS) => job.metadata?.annotations?.[ANNOTATIONS[key]];
  const [storeId, tenantId, runId] = [text('store'), text('tenantId'), text('runId')];
  const [runnerJobId, runnerId] = [text('runnerJobId'), text('runnerId')];
  if (storeId === undefined || tenantId === undefined || runId === undefined) return undefined;
  return runnerJobId === undefined || runnerId === undefined ? undefined : { storeId, tenantId, runId, runnerJobId, runnerId };
}

/** What an object that the API has stored always has. */
export function identityOf({ metadata }: V1Job): { name: string; namespace: string; uid: string; resourceVersion: string } {
  const { name, namespace, uid, resourceVersion } = metadata ?? {};
  if (name !== undefined && namespace !== undefined && uid !== undefined && resourceVersion !== undefined) {
    return { name, namespace, uid, resourceVersion };
  }
  throw new Error('the Kubernetes API has answered with a Job that lacks its name, uid or version');
}

/** What has become of a Job, by its conditions. One that is being deleted works for nobody any more. */
export function observedJob(job: V1Job): ObservedJob {
  const conditions = job.status?.conditions ?? [];
  const ended = (type: string) => conditions.find((condition) => condition.type === type && condition.status === 'True');
  const failed = ended('Failed');
  if (failed !== undefined) return { state: 'failed', reason: failed.reason, message: failed.message };
  if (ended('Complete') !== undefined) return { state: 'succeeded' };
  return { state: job.metadata?.deletionTimestamp === undefined ? 'active' : 'gone' };
}

function labelsOf({ storeId, request }: JobPlan): Record<string, string> {
  return {
    'app.kubernetes.io/name': 'runplane-runner',
    'app.kubernetes.io/managed-by': 'runplane',
    [`${PREFIX}/store`]: labelValueOf(storeId),
    [`${PREFIX}/tenant`]: labelValueOf(request.tenantId),
    [`${PREFIX}/run`]: labelValueOf(request.runId),
  };
}

function annotationsOf({ storeId, request, generation }: JobPlan): Record<string, string> {
  return {
    [ANNOTATIONS.store]: storeId,
    [ANNOTATIONS.tenantId]: request.tenantId,
    [ANNOTATIONS.runId]: request.runId,
    [ANNOTATIONS.commandId]: request.commandId,
    [ANNOTATIONS.intentId]: request.intentId,
    [ANNOTATIONS.runnerJobId]: request.runnerJobId,
    [ANNOTATIONS.runnerId]: runnerIdOf(request, generation),
    [ANNOTATIONS.profile]: request.backendProfile,
  };
}

/**
 * The profile's limit, and behind it the run's own as a backstop: the server cancels the run at its deadline, which counts from the claim,
 * so the pod has time to start and to stop on top.
 */
function deadlineOf({ placement, request }: JobPlan): { activeDeadlineSeconds?: number } {
  const own = request.maxDurationMs == null ? undefined : request.maxDurationMs + START_AND_STOP_MS;
  const limits = [placement.maxDurationMs, own].filter((ms) => ms !== undefined);
  return limits.length === 0 ? {} : { activeDeadlineSeconds: seconds(Math.min(...limits)) };
}

function podTemplate(plan: JobPlan): V1PodTemplateSpec {
  const { placement } = plan;
  const { runAsUser, runAsGroup, fsGroup } = placement.security;
  const spec: V1PodSpec = {
    restartPolicy: 'Never',
    terminationGracePeriodSeconds: seconds(plan.graceMs) + 5,
    enableServiceLinks: false,
    // Without an account of its own the pod can say nothing to the cluster.
    automountServiceAccountToken: placement.serviceAccountName !== undefined,
    ...defined({ serviceAccountName: placement.serviceAccountName }),
    ...filled({ nodeSelector: placement.nodeSelector }),
    ...(placement.tolerations.length === 0 ? {} : { tolerations: placement.tolerations.map((toleration) => defined(toleration)) }),
    ...(placement.imagePullSecrets.length === 0 ? {} : { imagePullSecrets: placement.imagePullSecrets.map((name) => ({ name })) }),
    securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' }, ...defined({ runAsUser, runAsGroup, fsGroup }) },
    volumes: [
      // Owned by root: without a group of its own the runner could not read it unless everybody in its pod can.
      { name: JOB_VOLUME, secret: { secretName: plan.secretName, defaultMode: fsGroup === undefined ? 0o444 : 0o440 } },
      workspaceVolume(placement),
    ],
    containers: [container(plan)],
  };
  return { metadata: { labels: { ...placement.podLabels, ...labelsOf(plan) } }, spec };
}

function container({ placement, request }: JobPlan): V1Container {
  const { mountPath, claimName } = placement.workspace;
  const variables = { ...placement.env, [JOB_FILE_VARIABLE]: `${JOB_FOLDER}/${JOB_KEY}` };
  return {
    name: 'runner',
    image: placement.image,
    ...defined({ imagePullPolicy: placement.imagePullPolicy, command: placement.runnerCommand }),
    env: Object.entries(variables).map(([name, value]) => ({ name, value })),
    ...(placement.envFrom.length === 0 ? {} : { envFrom: placement.envFrom.map(environmentSource) }),
    resources: { ...filled(placement.resources) },
    securityContext: {
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'] },
      readOnlyRootFilesystem: placement.security.readOnlyRootFilesystem ?? false,
    },
    volumeMounts: [
      { name: JOB_VOLUME, mountPath: JOB_FOLDER, readOnly: true },
      // A pod sees the folder of its own tenant and nothing else of a shared volume (TEN-1).
      { name: WORKSPACE_VOLUME, mountPath, ...(claimName === undefined ? {} : { subPath: folderNameOf(request.tenantId) }) },
    ],
  };
}

function environmentSource(source: KubernetesPlacement['envFrom'][number]) {
  const prefix = defined({ prefix: source.prefix });
  return 'secret' in source ? { ...prefix, secretRef: { name: source.secret } } : { ...prefix, configMapRef: { name: source.configMap } };
}

function workspaceVolume({ workspace: { claimName, sizeLimit } }: KubernetesPlacement): V1Volume {
  if (claimName !== undefined) return { name: WORKSPACE_VOLUME, persistentVolumeClaim: { claimName } };
  return { name: WORKSPACE_VOLUME, emptyDir: defined({ sizeLimit }) };
}

function secretNameOf(job: V1Job): string {
  const name = job.spec?.template.spec?.volumes?.find((volume) => volume.name === JOB_VOLUME)?.secret?.secretName;
  if (name === undefined) throw new Error(`the Job ${job.metadata?.name ?? ''} mounts no Secret of its own`);
  return name;
}

const seconds = (ms: number): number => Math.ceil(ms / 1_000);

/** Without the fields that are undefined. */
function defined<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as {
    [K in keyof T]?: Exclude<T[K], undefined>;
  };
}

/** Without the fields that are empty. */
function filled<T extends Record<string, object>>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => Object.keys(value).length > 0)) as Partial<T>;
}
