import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { faultsOf, isSelected, type StoredObject } from './kubernetes-schema';

/** One request, as rules and tests see it. */
export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  // eslint-disable-next-line @typescript-eslint/no-explicit-any -- whatever was sent
  readonly body: any;
}

/**
 * What happens to a request instead of its answer. `drop-before`, `hang-before`: nothing has happened; `drop-after`, `hang-after`: it has
 * taken effect and nobody is told.
 */
export type Disturbance =
  | { readonly status: number; readonly message?: string; readonly reason?: string; readonly retryAfter?: string }
  | 'drop-before'
  | 'drop-after'
  | 'hang-before'
  | 'hang-after';

interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

type Kind = 'Job' | 'Secret';
const KINDS: Readonly<Record<string, Kind>> = { '/apis/batch/v1/jobs': 'Job', '/api/v1/secrets': 'Secret' };
const BODY_BYTES_MAX = 3 * 1024 * 1024;

/**
 * The part of the Kubernetes API that the launcher uses, over HTTP: it stores Jobs and Secrets with uid and resourceVersion, refuses what
 * the real one refuses (see kubernetes-schema.ts; preconditions, the bearer token, unknown namespaces), pages lists through snapshots, and
 * collects Secrets whose owner is gone. What a cluster does by itself comes from the test: `end`, `removeJob`, `onPod`.
 */
export class KubernetesApiServer {
  readonly token = `token-${randomUUID()}`;
  readonly seen: SeenRequest[] = [];
  /** Says what to do with a request; the test's to replace. */
  disturb: (request: SeenRequest) => Disturbance | undefined = () => undefined;
  /** Called once for each Job as soon as the Secret that it mounts is there: a kubelet would start its pod now. */
  onPod: (job: StoredObject, secret: StoredObject) => void = () => undefined;
  private readonly server: Server;
  private readonly objects = new Map<string, StoredObject>();
  private readonly snapshots = new Map<string, StoredObject[]>();
  private readonly started = new Set<string>();
  private readonly namespaces: ReadonlySet<string>;
  private version = 100;

  private constructor(namespaces: readonly string[]) {
    this.namespaces = new Set(namespaces);
    this.server = createServer((request, response) => void this.serve(request, response));
  }

  static async start(...namespaces: string[]): Promise<KubernetesApiServer> {
    const api = new KubernetesApiServer(namespaces);
    api.server.listen(0, '127.0.0.1');
    await once(api.server, 'listening');
    return api;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, 'close');
  }

  /** Writes a kubeconfig that leads here. */
  async writeKubeconfig(file: string, token = this.token): Promise<string> {
    const server = `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'test', cluster: { server, 'insecure-skip-tls-verify': true } }],
      users: [{ name: 'test', user: { token } }],
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
      'current-context': 'test',
    };
    await writeFile(file, JSON.stringify(config), { mode: 0o600 });
    return file;
  }

  jobs(): StoredObject[] {
    return [...this.objects.values()].filter(({ kind }) => kind === 'Job');
  }

  secrets(): StoredObject[] {
    return [...this.objects.values()].filter(({ kind }) => kind === 'Secret');
  }

  /** Puts an object there as somebody else would. */
  put(object: StoredObject): void {
    this.objects.set(keyOf(object.kind as Kind, object.metadata.namespace, object.metadata.name), object);
  }

  /** The Job controller's word that a Job has ended. */
  end({ metadata }: StoredObject, condition: { type: 'Complete' | 'Failed'; reason?: string; message?: string }): void {
    const job = this.objects.get(keyOf('Job', metadata.namespace, metadata.name));
    if (job === undefined) return;
    job['status'] = { conditions: [{ ...condition, status: 'True' }] };
    this.touch(job);
  }

  /** As a resource that anybody has written to: it has another version now. */
  touch({ metadata }: StoredObject): void {
    metadata.resourceVersion = String((this.version += 1));
  }

  /** Lets a Job have been created some time ago. */
  age({ metadata }: StoredObject, ms: number): void {
    metadata.creationTimestamp = new Date(Date.now() - ms).toISOString();
  }

  removeJob({ metadata }: StoredObject): void {
    this.objects.delete(keyOf('Job', metadata.namespace, metadata.name));
    for (const [key, { metadata: owned }] of this.objects) {
      if (owned.ownerReferences?.some(({ uid }) => uid === metadata.uid) === true) this.objects.delete(key);
    }
  }

  /** Lists that are being read page by page are too old from now on. */
  expireLists(): void {
    this.snapshots.clear();
  }

  private async serve(message: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname: path, searchParams: query } = new URL(message.url ?? '/', 'http://localhost');
    const text = await bodyOf(message).catch(() => undefined);
    if (text === undefined) return void response.destroy();
    if (message.headers.authorization !== `Bearer ${this.token}`) return send(response, failure(401, 'Unauthorized', 'Unauthorized'));
    const request: SeenRequest = {
      method: message.method ?? '',
      path,
      query,
      body: text === '' ? undefined : (JSON.parse(text) as unknown),
    };
    this.seen.push(request);
    const disturbance = this.disturb(request);
    if (disturbance === 'drop-before') return void response.destroy();
    if (disturbance === 'hang-before') return;
    if (typeof disturbance === 'object') return send(response, disturbed(disturbance));
    const answer = this.answer(request, message.headers['content-type']);
    this.startPods();
    if (disturbance === 'drop-after') return void response.destroy();
    if (disturbance === undefined) send(response, answer);
  }

  private answer(request: SeenRequest, contentType: string | undefined): Answer {
    const [, group = '', namespace = '', plural = '', name] =
      /^(\/api\/v1|\/apis\/batch\/v1)\/namespaces\/([^/]+)\/(\w+)(?:\/([^/]+))?$/.exec(request.path) ?? [];
    const kind = KINDS[`${group}/${plural}`];
    if (kind === undefined) return failure(404, 'NotFound', 'the server could not find the requested resource');
    const target = `${request.method}${name === undefined ? '' : ' one'}`;
    if (request.body !== undefined && contentType !== 'application/json') return failure(415, 'UnsupportedMediaType', `${contentType}`);
    if (target === 'POST') return this.create(kind, namespace, request);
    if (kind !== 'Job') return failure(403, 'Forbidden', 'secrets is forbidden: only create is granted');
    if (target === 'GET') return this.list(namespace, request.query);
    const job = this.objects.get(keyOf(kind, namespace, name ?? ''));
    if (job === undefined) return failure(404, 'NotFound', `jobs.batch "${name}" not found`, name);
    if (target === 'GET one') return { status: 200, body: job };
    return target === 'DELETE one' ? this.delete(job, request) : failure(405, 'MethodNotAllowed', target);
  }

  private create(kind: Kind, namespace: string, { body, query }: SeenRequest): Answer {
    if (query.get('fieldValidation') !== 'Strict') return failure(400, 'BadRequest', 'the test wants fieldValidation=Strict');
    const faults = faultsOf(kind, body);
    const { metadata } = body as StoredObject;
    if (faults.length > 0) return failure(422, 'Invalid', `${kind} is invalid: ${faults.join(', ')}`);
    if (metadata.namespace !== namespace) return failure(400, 'BadRequest', 'the namespace of the object does not match');
    if (!this.namespaces.has(namespace)) return failure(404, 'NotFound', `namespaces "${namespace}" not found`);
    const key = keyOf(kind, namespace, metadata.name);
    if (this.objects.has(key)) return failure(409, 'AlreadyExists', `"${metadata.name}" already exists`);
    const stored = structuredClone(body) as StoredObject;
    const creationTimestamp = new Date().toISOString().replace(/\.\d+/, '');
    stored.metadata = { ...metadata, uid: randomUUID(), resourceVersion: String((this.version += 1)), creationTimestamp };
    this.objects.set(key, stored);
    return { status: 201, body: stored };
  }

  private list(namespace: string, query: URLSearchParams): Answer {
    const limit = Number(query.get('limit') ?? 500);
    const token = query.get('continue');
    const [id, offset] = token === null ? [randomUUID(), 0] : [token.split(':')[0] ?? '', Number(token.split(':')[1])];
    if (token === null) {
      const selected = this.jobs().filter(
        (job) => job.metadata.namespace === namespace && isSelected(job, query.get('labelSelector') ?? ''),
      );
      this.snapshots.set(id, structuredClone(selected));
    }
    const snapshot = this.snapshots.get(id);
    if (snapshot === undefined) return failure(410, 'Expired', 'The provided continue parameter is too old');
    const end = offset + limit;
    const metadata = { resourceVersion: String(this.version), ...(end < snapshot.length ? { continue: `${id}:${end}` } : {}) };
    return { status: 200, body: { apiVersion: 'batch/v1', kind: 'JobList', metadata, items: snapshot.slice(offset, end) } };
  }

  private delete(job: StoredObject, { body }: SeenRequest): Answer {
    const { preconditions = {}, propagationPolicy } = (body ?? {}) as {
      preconditions?: { uid?: string; resourceVersion?: string };
      propagationPolicy?: string;
    };
    const { uid, resourceVersion } = job.metadata;
    const isWanted = (preconditions.uid ?? uid) === uid && (preconditions.resourceVersion ?? resourceVersion) === resourceVersion;
    if (!isWanted)
      return failure(409, 'Conflict', `Operation cannot be fulfilled on jobs.batch "${job.metadata.name}": Precondition failed`);
    if (propagationPolicy !== 'Background') return failure(400, 'BadRequest', 'the test wants pods to go in the background');
    this.removeJob(job);
    return { status: 200, body: { apiVersion: 'v1', kind: 'Status', status: 'Success' } };
  }

  private startPods(): void {
    for (const job of this.jobs()) {
      const { volumes } = (job['spec'] as { template: { spec: { volumes: { secret?: { secretName: string } }[] } } }).template.spec;
      const name = volumes.find(({ secret }) => secret !== undefined)?.secret?.secretName ?? '';
      const secret = this.objects.get(keyOf('Secret', job.metadata.namespace, name));
      if (secret === undefined || this.started.has(job.metadata.uid)) continue;
      this.started.add(job.metadata.uid);
      this.onPod(job, secret);
    }
  }
}

const keyOf = (kind: Kind, namespace: string, name: string): string => `${kind}/${namespace}/${name}`;

function failure(code: number, reason: string, message: string, name?: string): Answer {
  const details = name === undefined ? {} : { details: { name } };
  return { status: code, body: { apiVersion: 'v1', kind: 'Status', metadata: {}, status: 'Failure', code, reason, message, ...details } };
}

function disturbed({ status, message = 'disturbed', reason = 'Disturbed', retryAfter }: Exclude<Disturbance, string>): Answer {
  const answer = failure(status, reason, message);
  return retryAfter === undefined ? answer : { ...answer, headers: { 'retry-after': retryAfter } };
}

function send(response: ServerResponse, { status, body, headers = {} }: Answer): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
}

async function bodyOf(message: IncomingMessage): Promise<string> {
  let text = '';
  for await (const chunk of message.setEncoding('utf8') as AsyncIterable<string>) {
    text += chunk;
    if (text.length > BODY_BYTES_MAX) throw new Error('the body is too long');
  }
  return text;
}
