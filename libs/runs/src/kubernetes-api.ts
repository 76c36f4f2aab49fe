import type { BatchV1Api, CoreV1Api, KubeConfig, V1Job, V1Secret } from '@kubernetes/client-node';
import { redactError } from '@runplane/contracts';
import { z } from 'zod';

/** A request that failed. `retryable`: the same request may succeed later; it may also have taken effect. */
export class KubernetesFailure extends Error {
  readonly status: number | undefined;
  /** Of the object that the API speaks of. */
  readonly about: string | undefined;
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    answer: { status?: number | undefined; about?: string | undefined; retryable: boolean; retryAfterMs?: number | undefined },
  ) {
    super(message);
    this.name = 'KubernetesFailure';
    this.status = answer.status;
    this.about = answer.about;
    this.retryable = answer.retryable;
    this.retryAfterMs = answer.retryAfterMs;
  }
}

export interface KubernetesApiOptions {
  /** A file; without it the service account of the pod is used. */
  readonly kubeconfig?: string | undefined;
  /** Longest time for one request, body included. */
  readonly requestTimeoutMs?: number | undefined;
  /** Ends every request under way. */
  readonly signal?: AbortSignal | undefined;
}

export interface JobPage {
  readonly jobs: readonly V1Job[];
  readonly next: string | undefined;
}

/** The few requests that the launcher makes, with their timeouts and errors. */
export interface KubernetesApi {
  /** `exists`: somebody has an object of that name, perhaps we. */
  createJob(job: V1Job): Promise<V1Job | 'exists'>;
  createSecret(secret: V1Secret): Promise<'created' | 'exists'>;
  /** Undefined when there is none. */
  readJob(namespace: string, name: string): Promise<V1Job | undefined>;
  /** `expired`: the place has become too old; start over. */
  listJobs(namespace: string, page: { selector: string; limit: number; from: string | undefined }): Promise<JobPage | 'expired'>;
  /** Deletes exactly that version, and its pods in the background. `changed`: there is another version, or another object. */
  deleteJob(job: { namespace: string; name: string; uid: string; resourceVersion: string }): Promise<'deleted' | 'gone' | 'changed'>;
}

const REQUEST_TIMEOUT_MS = 5_000;

/** Reads the configuration and checks it as far as that goes without a request. The client is loaded now: others need not pay for it. */
export async function connectKubernetes({
  kubeconfig,
  requestTimeoutMs = REQUEST_TIMEOUT_MS,
  signal,
}: KubernetesApiOptions): Promise<KubernetesApi> {
  const k8s = await import('@kubernetes/client-node');
  const config = new k8s.KubeConfig();
  if (kubeconfig === undefined) config.loadFromCluster();
  else config.loadFromFile(kubeconfig);
  const server = requireServer(config);

  const limited = (): AbortSignal => {
    const timeout = AbortSignal.timeout(requestTimeoutMs);
    return signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
  };
  const configuration = k8s.createConfiguration({
    baseServer: new k8s.ServerConfiguration(server, {}),
    authMethods: { default: config },
    promiseMiddleware: [
      {
        pre: async (request) => {
          request.setSignal(limited());
          return request;
        },
        post: async (response) => response,
      },
    ],
  });
  return requestsOf(new k8s.BatchV1Api(configuration), new k8s.CoreV1Api(configuration));
}

function requireServer(config: KubeConfig): string {
  const server = config.getCurrentCluster()?.server;
  if (server !== undefined && URL.canParse(server)) return server;
  throw new Error('there is no Kubernetes cluster in the configuration');
}

/** A field that the API does not know is a mistake of ours: it shall be refused, not dropped. */
const STRICT = { fieldValidation: 'Strict' } as const;

function requestsOf(batch: BatchV1Api, core: CoreV1Api): KubernetesApi {
  return {
    createJob: (body) =>
      judged(batch.createNamespacedJob({ namespace: namespaceOf(body), body, ...STRICT }), (failure) => isExists(failure) && 'exists'),

    createSecret: (body) =>
      judged(
        core.createNamespacedSecret({ namespace: namespaceOf(body), body, ...STRICT }).then(() => 'created' as const),
        (failure) => isExists(failure) && 'exists',
      ),

    readJob: async (namespace, name) => {
      const job = await judged(batch.readNamespacedJob({ namespace, name }), (failure) => isGone(failure, name) && 'gone');
      return job === 'gone' ? undefined : job;
    },

    listJobs: (namespace, { selector, limit, from }) =>
      judged(
        batch
          .listNamespacedJob({ namespace, labelSelector: selector, limit, ...(from === undefined ? {} : { _continue: from }) })
          .then(({ items, metadata }) => ({ jobs: items, next: metadata?._continue === '' ? undefined : metadata?._continue })),
        ({ status }) => status === 410 && 'expired',
      ),

    deleteJob: ({ namespace, name, uid, resourceVersion }) =>
      judged(
        batch
          .deleteNamespacedJob({ namespace, name, body: { propagationPolicy: 'Background', preconditions: { uid, resourceVersion } } })
          .then(() => 'deleted' as const),
        (failure) => (isGone(failure, name) ? 'gone' : failure.status === 409 && 'changed'),
      ),
  };
}

const namespaceOf = ({ metadata }: V1Job | V1Secret): string => metadata?.namespace ?? 'default';
const isExists = ({ status }: KubernetesFailure): boolean => status === 409;
/** Only the API's word about that very object: a server or proxy that is starting up answers 404 to everything, and nothing is gone. */
const isGone = ({ status, about }: KubernetesFailure, name: string): boolean => status === 410 || (status === 404 && about === name);

/** What a request answers; a failure that `expected` knows is an answer too (anything but false), every other is thrown. */
async function judged<T, E = never>(request: Promise<T>, expected: (failure: KubernetesFailure) => E | false): Promise<T | E> {
  try {
    return await request;
  } catch (error) {
    const failure = failureOf(error);
    const answer = expected(failure);
    if (answer === false) throw failure;
    return answer;
  }
}

interface ApiError {
  readonly code: number;
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string>>;
}

function isApiError(error: unknown): error is ApiError {
  return error instanceof Error && 'code' in error && typeof error.code === 'number' && 'headers' in error;
}

/** The client's own message holds the whole answer; only the API's sentence is kept, redacted. */
function failureOf(error: unknown): KubernetesFailure {
  if (!isApiError(error)) return new KubernetesFailure(`the Kubernetes API did not answer: ${redactError(error)}`, { retryable: true });
  const { code: status, headers } = error;
  const { reason, message, about } = statusOf(error.body);
  const text = redactError(new Error(message ?? 'no reason given'));
  return new KubernetesFailure(`the Kubernetes API has answered ${status}${reason === undefined ? '' : ` ${reason}`}: ${text}`, {
    status,
    about,
    retryable: isPassing(status, message ?? ''),
    retryAfterMs: retryAfterOf(headers['retry-after']),
  });
}

/** 401 passes: tokens are rotated. So does a full quota, which comes as 403. */
function isPassing(status: number, message: string): boolean {
  return [401, 408, 409, 429].includes(status) || status >= 500 || (status === 403 && message.includes('exceeded quota'));
}

const Status = z.object({
  reason: z.string().optional().catch(undefined),
  message: z.string().optional().catch(undefined),
  details: z.object({ name: z.string().optional() }).optional().catch(undefined),
});

/** The API's own `Status` object; a proxy's page is none. */
function statusOf(body: unknown): { reason?: string | undefined; message?: string | undefined; about?: string | undefined } {
  try {
    const { reason, message, details } = Status.parse(typeof body === 'string' ? JSON.parse(body) : body);
    return { reason, message, about: details?.name };
  } catch {
    return {};
  }
}

function retryAfterOf(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const ms = /^\d+$/.test(header) ? Number(header) * 1_000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) && ms > 0 ? ms : undefined;
}
