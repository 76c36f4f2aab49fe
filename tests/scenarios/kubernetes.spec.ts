import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { loadAllYaml } from '@kubernetes/client-node';
import { createApiKey, readConfig } from '@runplane/api';
import { type Client, createClient } from '@runplane/client';
import { type AdmittedTurn, BackendProfiles, type ProcessJob, type Run, SCOPES } from '@runplane/contracts';
import { checkStore, ensureTenant, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import {
  createKubernetesLauncher,
  JobHidden,
  type KubernetesLauncher,
  type LaunchFailed,
  type LaunchRequest,
  reconcileRunnerJobsOnce,
} from '@runplane/runs';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { ApiProcess, freePort } from '../support/api-process';
import { type Disturbance, KubernetesApiServer } from '../support/kubernetes-api';
import type { StoredObject } from '../support/kubernetes-schema';
import { until } from '../support/until';

// The Kubernetes launcher against an HTTP server that speaks the API: no method of the client is replaced. The last part needs a build: API
// processes dispatch, and where a kubelet would start a pod the test starts the runner with the Job's variables and its Secret.

jest.setTimeout(60_000);

const RUNNER = path.join(path.dirname(require.resolve('@runplane/runner/package.json')), 'dist/main.js');
const NAMESPACE = 'agents';

let cluster: KubernetesApiServer;
let dir: string;
let kubeconfig: string;

beforeAll(async () => {
  dir = await realpath(await mkdtemp(path.join(os.tmpdir(), 'kubernetes-')));
  cluster = await KubernetesApiServer.start(NAMESPACE);
  kubeconfig = await cluster.writeKubeconfig(path.join(dir, 'kubeconfig.json'));
});
afterEach(() => {
  cluster.disturb = () => undefined;
});
afterAll(async () => {
  await cluster.close();
  await rm(dir, { recursive: true });
});

const profiles = (workspaces: string) => ({
  agent: {
    command: ['/bin/sh', '-c', 'read turn; echo "hello from $RUNPLANE_RUN_ID"'],
    launcher: 'kubernetes' as const,
    kubernetes: {
      namespace: NAMESPACE,
      image: 'registry.example/agent:1',
      runnerCommand: [process.execPath, RUNNER],
      resources: { requests: { cpu: '250m', memory: '256Mi' }, limits: { memory: '1Gi' } },
      serviceAccountName: 'agent',
      imagePullSecrets: ['registry'],
      nodeSelector: { 'runplane.dev/pool': 'agents' },
      tolerations: [{ key: 'agents', operator: 'Exists' as const, effect: 'NoSchedule' as const }],
      env: { MODE: 'batch' },
      envFrom: [{ secret: 'model-keys', prefix: 'KEYS_' }, { configMap: 'agent' }],
      podLabels: { team: 'agents' },
      workspace: { mountPath: workspaces, claimName: 'workspaces' },
      security: { runAsUser: 1000, fsGroup: 1000 },
      maxDurationMs: 3_600_000,
    },
  },
});

const request = (over: Partial<LaunchRequest> = {}): LaunchRequest => ({
  tenantId: 'acme',
  runId: 'run_1',
  commandId: 'cmd_1',
  intentId: 'intent_1',
  runnerJobId: 'rjob_1',
  runnerId: 'runner_rjob_1',
  backendProfile: 'agent',
  workspaceRef: { path: 'team/a' },
  input: {},
  executionPolicy: {},
  ...over,
});

let planned = 0;
/** One that nobody has launched yet. */
const newRequest = (over: Partial<LaunchRequest> = {}): LaunchRequest => {
  planned += 1;
  return request({ runnerJobId: `rjob-${planned}`, runnerId: `runner-${planned}`, ...over });
};

const secretOf = (job: StoredObject): StoredObject | undefined =>
  cluster.secrets().find(({ metadata }) => metadata.ownerReferences?.some(({ uid }) => uid === job.metadata.uid));
const jobInSecret = (secret: StoredObject | undefined): ProcessJob =>
  JSON.parse(Buffer.from(String(secret?.['data']['job.json']), 'base64').toString()) as ProcessJob;
const jobNamed = (name: string) => cluster.jobs().find(({ metadata }) => metadata.name === name) as StoredObject;

describe('the Kubernetes launcher', () => {
  const stopping = new AbortController();
  let launcher: KubernetesLauncher;
  let tokens = 0;

  const connect = (over: { signal?: AbortSignal; requestTimeoutMs?: number; kubeconfig?: string; backends?: BackendProfiles } = {}) =>
    createKubernetesLauncher({
      kubeconfig,
      storeId: 'store one',
      apiUrl: 'http://runplane.example',
      backends: BackendProfiles.parse(profiles('/workspace')),
      issueToken: async () => `secret-token-${(tokens += 1)}`,
      requestTimeoutMs: 300,
      signal: stopping.signal,
      ...over,
    });
  /** What the next request of a method meets, once. */
  const disturbNext = (method: string, pattern: RegExp, disturbance: Disturbance): void => {
    let left = 1;
    cluster.disturb = (seen) => (seen.method === method && pattern.test(seen.path) && (left -= 1) === 0 ? disturbance : undefined);
  };
  const failureOf = async (launch: Promise<unknown>): Promise<LaunchFailed> =>
    launch.then(
      () => Promise.reject(new Error('it was launched')),
      (error: LaunchFailed) => error,
    );

  beforeAll(async () => {
    launcher = await connect();
  });

  it('makes a Job that tells whose it is and nothing secret, and a Secret that goes with it', async () => {
    const { outcome, jobName, result } = await launcher.launch(newRequest({ maxDurationMs: 60_000 }));

    const job = jobNamed(jobName);
    const secret = secretOf(job);
    const pod = job['spec'].template.spec;
    expect(outcome).toBe('created');
    expect(result).toMatchObject({ namespace: NAMESPACE, uid: job.metadata.uid });
    expect(job['spec']).toMatchObject({ backoffLimit: 0, ttlSecondsAfterFinished: 3_600, activeDeadlineSeconds: 660 });
    expect(pod).toMatchObject({ restartPolicy: 'Never', serviceAccountName: 'agent', enableServiceLinks: false });
    expect(pod.containers[0]).toMatchObject({
      command: [process.execPath, RUNNER],
      resources: { requests: { cpu: '250m', memory: '256Mi' }, limits: { memory: '1Gi' } },
      securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
      env: [
        { name: 'MODE', value: 'batch' },
        { name: 'RUNPLANE_JOB_FILE', value: '/var/run/runplane/job.json' },
      ],
    });
    expect(pod.containers[0].volumeMounts).toContainEqual({ name: 'workspace', mountPath: '/workspace', subPath: 'acme' });
    expect(JSON.stringify(job)).not.toContain('token-');
    expect(secret).toMatchObject({ immutable: true, metadata: { ownerReferences: [{ kind: 'Job', name: jobName }] } });
    expect(jobInSecret(secret)).toMatchObject({
      token: `secret-token-${tokens}`,
      runId: 'run_1',
      workspaceRoot: '/workspace',
      workspacePath: 'team/a',
    });
  });

  it('accepts any tenant and run: labels are valid for all of them, annotations hold the true ids', async () => {
    const long = 'ä/b c'.repeat(20);
    const { jobName } = await launcher.launch(newRequest({ tenantId: '会话 one', runId: long, workspaceRef: {} }));

    const { labels = {}, annotations } = jobNamed(jobName).metadata;
    expect(labels['runplane.dev/run']).toMatch(/^sha256-[0-9a-f]{40}$/);
    expect(annotations).toMatchObject({
      'runplane.dev/tenant-id': '会话 one',
      'runplane.dev/run-id': long,
      'runplane.dev/store-id': 'store one',
    });
    expect((await launcher.list()).find((job) => job.jobName === jobName)).toMatchObject({
      tenantId: '会话 one',
      runId: long,
      state: 'active',
    });
  });

  it('adopts what an earlier try has made, and follows one that has ended with the next', async () => {
    const again = newRequest();
    const first = await launcher.launch(again);
    const second = await launcher.launch(again);
    cluster.end(jobNamed(first.jobName), { type: 'Failed', reason: 'BackoffLimitExceeded' });
    const third = await launcher.launch(again);

    expect(second).toEqual({ ...first, outcome: 'adopted' });
    expect(third).toMatchObject({ outcome: 'created', jobName: `${first.jobName}-2`, result: { runnerId: `${again.runnerId}.2` } });
    expect(jobInSecret(secretOf(jobNamed(third.jobName))).runnerId).toBe(`${again.runnerId}.2`);
  });

  it("leaves somebody else's Job of that name alone and says that no repeat can help", async () => {
    const taken = newRequest();
    const { jobName } = await launcher.launch(taken);
    const theirs = jobNamed(jobName);
    theirs.metadata.annotations = { ...theirs.metadata.annotations, 'runplane.dev/store-id': 'another store' };
    const before = structuredClone(theirs);

    const failed = await failureOf(launcher.launch(taken));

    expect(failed).toMatchObject({ name: 'LaunchFailed', permanent: true, message: expect.stringContaining('not ours') });
    expect(jobNamed(jobName)).toEqual(before);
    expect((await launcher.list()).map((job) => job.jobName)).not.toContain(jobName);
  });

  it.each<[Exclude<Disturbance, string>, { permanent: boolean; retryAfterMs?: number }]>([
    [{ status: 400 }, { permanent: true }],
    [{ status: 401 }, { permanent: false }],
    [{ status: 403 }, { permanent: true }],
    [{ status: 403, message: 'exceeded quota: jobs' }, { permanent: false }],
    [{ status: 404 }, { permanent: true }],
    [{ status: 422 }, { permanent: true }],
    [
      { status: 429, retryAfter: '7' },
      { permanent: false, retryAfterMs: 7_000 },
    ],
    [{ status: 500 }, { permanent: false }],
    [
      { status: 503, retryAfter: '2' },
      { permanent: false, retryAfterMs: 2_000 },
    ],
  ])('takes the answer %j as %j', async (disturbance, expected) => {
    for (const kind of [/jobs$/, /secrets$/]) {
      disturbNext('POST', kind, { message: 'no: password=hunter2', ...disturbance });
      const failed = await failureOf(launcher.launch(newRequest()));
      expect(failed).toMatchObject({ name: 'LaunchFailed', failureKind: 'infra-failed', retryAfterMs: undefined, ...expected });
      expect(failed.message).toContain(String(disturbance.status));
      expect(failed.message).not.toContain('hunter2');
    }
  });

  it.each<[string, RegExp, Disturbance, 'created' | 'adopted']>([
    ['POST', /jobs$/, 'drop-before', 'created'],
    ['POST', /jobs$/, 'drop-after', 'adopted'],
    ['POST', /jobs$/, 'hang-before', 'created'],
    ['POST', /jobs$/, 'hang-after', 'adopted'],
    ['POST', /secrets$/, 'drop-before', 'adopted'],
    ['POST', /secrets$/, 'drop-after', 'adopted'],
  ])('gets over a %s of %s that ends with %s: the repeat has %s it, once', async (method, pattern, disturbance, outcome) => {
    const wanted = newRequest();
    const known = cluster.jobs().length;
    disturbNext(method, pattern, disturbance);

    const failed = await failureOf(launcher.launch(wanted));
    const launched = await launcher.launch(wanted);

    expect(failed).toMatchObject({ permanent: false });
    expect(launched.outcome).toBe(outcome);
    expect(cluster.jobs()).toHaveLength(known + 1);
    expect(jobInSecret(secretOf(jobNamed(launched.jobName)))).toMatchObject({ runnerId: wanted.runnerId });
  });

  it('needs the token of its configuration, and ends its requests when the process stops', async () => {
    const stop = new AbortController();
    const stranger = await connect({ kubeconfig: await cluster.writeKubeconfig(path.join(dir, 'stranger.json'), 'wrong') });
    const patient = await connect({ signal: stop.signal, requestTimeoutMs: 60_000 });
    expect(await failureOf(stranger.launch(newRequest()))).toMatchObject({ message: expect.stringContaining('401') });

    cluster.disturb = () => {
      setImmediate(() => stop.abort(new Error('stopping')));
      return 'hang-before';
    };
    expect(await failureOf(patient.launch(newRequest()))).toMatchObject({ permanent: false });
  });

  it('lists page by page, starts over when the place has expired, and knows what has become of each Job', async () => {
    const { jobName } = await launcher.launch(newRequest());
    const model = jobNamed(jobName);
    for (let n = 0; n < 600; n += 1) cluster.put({ ...model, metadata: { ...model.metadata, name: `many-${n}`, uid: `many-${n}` } });
    cluster.end(model, { type: 'Failed', reason: 'DeadlineExceeded', message: 'Job was active longer than specified deadline' });
    let pages = 0;
    cluster.disturb = ({ method, query }) => {
      if (method === 'GET' && query.has('limit') && (pages += 1) === 2) cluster.expireLists();
      return undefined;
    };

    const jobs = await launcher.list();

    expect(pages).toBe(4);
    expect(new Set(jobs.map((job) => job.jobName)).size).toBe(jobs.length);
    expect(jobs.length).toBeGreaterThan(600);
    expect(jobs.find((job) => job.jobName === jobName)).toMatchObject({ state: 'failed', reason: 'DeadlineExceeded' });
    for (const job of cluster.jobs()) if (job.metadata.name.startsWith('many-')) cluster.removeJob(job);
  });

  it('lists what it may list: a namespace that is forbidden is told of and skipped, and its Jobs are hidden', async () => {
    const { agent } = profiles('/workspace');
    const elsewhere = { ...agent, kubernetes: { ...agent.kubernetes, namespace: 'forbidden' } };
    const both = await connect({ backends: BackendProfiles.parse({ agent, elsewhere }) });
    const wanted = newRequest();
    const { jobName, result } = await both.launch(wanted);
    cluster.disturb = ({ path: at }) =>
      at.includes('/forbidden/') ? { status: 403, reason: 'Forbidden', message: 'jobs is forbidden' } : undefined;
    const failures: string[] = [];

    const jobs = await both.list({ onFailure: (what) => failures.push(what) });

    expect(jobs.map((job) => job.jobName)).toContain(jobName);
    expect(failures).toEqual(['the Jobs in forbidden']);
    await expect(both.list()).rejects.toMatchObject({ status: 403 });
    const there = { ...wanted, launcher: 'kubernetes', jobName, result: { ...result, namespace: 'forbidden' } };
    await expect(both.find(there)).rejects.toBeInstanceOf(JobHidden);
    cluster.disturb = () => ({ status: 403, reason: 'Forbidden', message: 'nothing is allowed' });
    await expect(both.list({ onFailure: fail })).rejects.toMatchObject({ status: 403 });
  });

  it('takes no 404 but that about the Job itself for its absence', async () => {
    const wanted = newRequest();
    const { jobName, result } = await launcher.launch(wanted);
    const recorded = { ...wanted, launcher: 'kubernetes', jobName, result };

    expect(await launcher.find(recorded)).toEqual({ state: 'active' });
    cluster.disturb = () => ({ status: 404, message: 'the server could not find the requested resource' });
    await expect(launcher.find(recorded)).rejects.toMatchObject({ status: 404 });
    cluster.disturb = () => undefined;
    expect(await launcher.find({ ...recorded, result: { ...result, uid: 'of an earlier one' } })).toEqual({ state: 'gone' });
    cluster.removeJob(jobNamed(jobName));
    expect(await launcher.find(recorded)).toEqual({ state: 'gone' });
    expect(await launcher.find({ ...recorded, result: {} })).toEqual({ state: 'unknown' });
  });

  it('removes exactly the Job that it has seen: not one that has ended, not one that took its name', async () => {
    const listed = async (name: string) => (await launcher.list()).find((job) => job.jobName === name) ?? fail(name);
    const names = await Promise.all([0, 1, 2, 3].map(async () => (await launcher.launch(newRequest())).jobName));
    const [moved, ended, replaced, gone] = await Promise.all(names.map(listed));
    const at = (index: number) => jobNamed(names[index] ?? '');
    const secret = secretOf(at(0));
    cluster.touch(at(0));
    cluster.end(at(1), { type: 'Complete' });
    at(2).metadata.uid = 'another';
    cluster.removeJob(at(3));

    expect(await launcher.remove(moved ?? fail())).toBe(true);
    expect(await launcher.remove(ended ?? fail())).toBe(false);
    expect(await launcher.remove(replaced ?? fail())).toBe(false);
    expect(await launcher.remove(gone ?? fail())).toBe(false);

    expect(names.map((name) => cluster.jobs().some(({ metadata }) => metadata.name === name))).toEqual([false, true, true, false]);
    expect(cluster.secrets()).not.toContain(secret);
  });
});

describe('examples/kubernetes', () => {
  const example = path.resolve(__dirname, '../../examples/kubernetes');
  const read = async (file: string): Promise<Record<string, any>[]> => loadAllYaml(await readFile(path.join(example, file), 'utf8')); // eslint-disable-line @typescript-eslint/no-explicit-any

  it('grants what the launcher has done in these tests, and nothing more', async () => {
    const verbs: Record<string, string> = { POST: 'create', GET: 'list', 'GET one': 'get', 'DELETE one': 'delete' };
    const used = cluster.seen.map(({ method, path: at }) => {
      const [, group = '', resource = '', name] = /^\/apis?\/(?:(batch)\/)?v1\/namespaces\/[^/]+\/(\w+)(?:\/(.+))?$/.exec(at) ?? [];
      return `${group}/${resource} ${verbs[name === undefined ? method : `${method} one`]}`;
    });

    const role = (await read('rbac.yaml')).find(({ kind }) => kind === 'Role');
    const granted = role?.['rules'].flatMap((rule: Record<'apiGroups' | 'resources' | 'verbs', string[]>) =>
      rule.verbs.map((verb) => `${rule.apiGroups[0]}/${rule.resources[0]} ${verb}`),
    );
    expect([...new Set(used)].sort()).toEqual(granted.sort());
  });

  it('is valid: every object by its schema, the profiles by ours, and each name that one says another has', async () => {
    const objects = [...(await read('rbac.yaml')), ...(await read('runplane.yaml'))];
    const [profile] = objects.flatMap(({ kind, data }) => (kind === 'ConfigMap' ? Object.values(data as object) : [])) as string[];
    const deployment = objects.find(({ kind }) => kind === 'Deployment')?.['spec'].template.spec;

    new Deployment(objects.find(({ kind }) => kind === 'Deployment') as ConstructorParameters<typeof Deployment>[0]).validate();
    const file = path.join(dir, 'example.json');
    await writeFile(file, profile ?? '');
    const variables = deployment.containers[0].env.map(({ name, value }: { name: string; value: string }) => [name, value] as const);
    const env = { ...Object.fromEntries(variables), RUNPLANE_BACKENDS_FILE: file, KUBERNETES_SERVICE_HOST: '10.0.0.1' };
    const agent = (await readConfig(env)).backends['agent'];
    expect(agent?.kubernetes?.namespace).toBe(objects.find(({ kind }) => kind === 'Role')?.['metadata'].namespace);
    expect(objects.find(({ kind }) => kind === 'RoleBinding')?.['subjects'][0].name).toBe(deployment.serviceAccountName);
  });
});

function fail(what = 'a Job'): never {
  throw new Error(`${what} is not there`);
}

describe('runs in a cluster', () => {
  const errors: string[] = [];
  const database = useDatabase({ db: { onError: ({ message }) => errors.push(message) } });
  const pods: ChildProcess[] = [];
  let api: ApiProcess;
  let client: Client;
  let launcher: KubernetesLauncher;
  let turns = 0;
  /** Runs whose pods never start: their image cannot be pulled. */
  let isStuck: (job: StoredObject) => boolean = () => false;

  beforeAll(async () => {
    await ensureTenant(database.db.sql, 'acme');
    const { key } = await createApiKey(database.db.sql, { tenantId: 'acme', name: 'test', scopes: [...SCOPES] });
    const backends = profiles(path.join(dir, 'workspaces'));
    cluster.onPod = (job, secret) => void startPod(job, secret);
    const port = await freePort();
    const env = { RUNPLANE_KUBECONFIG: kubeconfig, RUNPLANE_PUBLIC_URL: `http://127.0.0.1:${port}` };
    api = await ApiProcess.start({
      databaseUrl: database.url,
      dataDir: path.join(dir, 'api'),
      port,
      backends: BackendProfiles.parse(backends),
      env,
    });
    client = createClient({ url: api.url, apiKey: key });
    const { storeId } = await checkStore(database.db);
    launcher = await createKubernetesLauncher({
      kubeconfig,
      storeId,
      apiUrl: api.url,
      backends: BackendProfiles.parse(backends),
      issueToken: () => Promise.reject(new Error('only the API launches')),
    });
  });
  afterEach(() => {
    isStuck = () => false;
  });
  afterAll(async () => {
    await api.stop();
    for (const pod of pods) pod.kill('SIGKILL');
  });

  /** What a kubelet does: mounts the Secret, runs the container with its variables, tells the end. */
  async function startPod(job: StoredObject, secret: StoredObject): Promise<void> {
    if (isStuck(job)) return;
    const mount = path.join(dir, 'pods', job.metadata.uid);
    await mkdir(mount, { recursive: true });
    for (const [name, data] of Object.entries(secret['data'] as Record<string, string>)) {
      await writeFile(path.join(mount, name), Buffer.from(data, 'base64'));
    }
    const [container] = job['spec'].template.spec.containers as { command: string[]; env: { name: string; value: string }[] }[];
    const [program = '', ...args] = container?.command ?? [];
    const env = Object.fromEntries(container?.env.map(({ name, value }) => [name, value.replace('/var/run/runplane', mount)]) ?? []);
    const pod = spawn(program, args, { cwd: mount, env: { PATH: process.env['PATH'], ...env }, stdio: 'ignore' });
    pods.push(pod);
    pod.once('exit', (code) => cluster.end(job, code === 0 ? { type: 'Complete' } : { type: 'Failed', reason: 'BackoffLimitExceeded' }));
  }

  const startTurn = async (over: { onRunnerLost?: 'fail' | 'requeue' } = {}): Promise<AdmittedTurn> => {
    turns += 1;
    return client.admitTurn(
      `session-${turns}`,
      { run: { projectId: 'p', backendProfile: 'agent', workspaceRef: { path: `w${turns}` }, ...over }, payload: { text: 'Do it.' } },
      { idempotencyKey: `turn-${turns}` },
    );
  };
  const jobsOf = ({ run }: AdmittedTurn) =>
    cluster.jobs().filter(({ metadata }) => metadata.annotations?.['runplane.dev/run-id'] === run.id);
  const isDispatched = async ({ command }: AdmittedTurn) => (await client.getDispatchIntent(command.id)).state === 'dispatched';
  const dispatchedJob = async (turn: AdmittedTurn): Promise<StoredObject> => {
    await until('the turn is dispatched', () => isDispatched(turn));
    return jobsOf(turn).at(-1) ?? fail();
  };
  const ended = async ({ run }: AdmittedTurn): Promise<Run> => {
    await until('the run has ended', async () => (await client.getRun(run.id)).finishedAt !== null);
    return client.getRun(run.id);
  };
  const phases = async ({ run }: AdmittedTurn) => (await client.listEvents(run.id)).events.map(({ payload }) => payload['phase']);
  const reconcile = () => reconcileRunnerJobsOnce(database.db, { launcher, restMs: 0 });
  const resultOf = async (job: StoredObject) => {
    const found = await database.db.sql.query(sql`SELECT result::text AS "result", (settled_at IS NOT NULL)::text AS "isSettled"
      FROM runplane.runner_jobs WHERE job_name = ${job.metadata.name}::text`);
    return { ...(JSON.parse(String(found[0]?.['result'])) as object), isSettled: found[0]?.['isSettled'] };
  };

  it('run from the turn to the end: dispatcher, Job, pod, runner, program', async () => {
    const turn = await startTurn();

    const run = await ended(turn);

    const output = (await client.listEvents(turn.run.id)).events.map(({ payload }) => payload['text']);
    expect(run.status).toBe('completed');
    expect(output).toContain(`hello from ${turn.run.id}\n`);
    await until('the Job is complete', () => jobsOf(turn)[0]?.['status']?.conditions?.[0]?.type === 'Complete');
    await reconcile();
    expect(await resultOf(jobsOf(turn)[0] ?? fail())).toMatchObject({
      namespace: NAMESPACE,
      ended: { state: 'succeeded' },
      isSettled: 'true',
    });
  });

  it('end at once, and say why, when the Job fails before anybody has come', async () => {
    isStuck = () => true;
    const turn = await startTurn();
    const job = await dispatchedJob(turn);
    cluster.end(job, { type: 'Failed', reason: 'DeadlineExceeded', message: 'no image; token=abc123secret' });

    await reconcile();

    const run = await ended(turn);
    expect(run).toMatchObject({
      status: 'failed',
      failure: { kind: 'infra-failed', message: expect.stringContaining('DeadlineExceeded') },
    });
    expect(run.failure?.message).not.toContain('abc123secret');
    expect(await phases(turn)).toContain('runner-dispatch-lost');
    expect(await resultOf(job)).toMatchObject({
      ended: { state: 'failed', reason: 'DeadlineExceeded', message: 'no image; token=[redacted]' },
    });
  });

  it('follow their policy when the Job vanishes: another runner comes, or the run ends as runner-lost', async () => {
    isStuck = () => true;
    const [again, never] = await Promise.all([startTurn({ onRunnerLost: 'requeue' }), startTurn()]);
    for (const turn of [again, never]) cluster.removeJob(await dispatchedJob(turn));
    isStuck = () => false;
    cluster.disturb = () => ({ status: 404, message: 'the server could not find the requested resource' });
    expect(await reconcile()).toMatchObject({ changed: 0, failed: 1 }); // a server that knows nothing yet has not said that a Job is gone
    expect(errors).toEqual([expect.stringContaining('404')]);
    cluster.disturb = () => undefined;

    await reconcile();

    expect(await ended(never)).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
    expect(await ended(again)).toMatchObject({ status: 'completed' });
    expect(await phases(again)).toEqual(expect.arrayContaining(['runner-dispatch-lost', 'run-requeued']));
  });

  it('wait as long as the API asks for', async () => {
    cluster.disturb = ({ path: at }) => (at.endsWith('/jobs') ? { status: 429, retryAfter: '200' } : undefined);
    const turn = await startTurn();

    const intent = await until('the launch is put off', async () => {
      const found = await client.getDispatchIntent(turn.command.id);
      return found.state === 'retry' && found;
    });

    expect(Date.parse(intent.readyAt) - Date.now()).toBeGreaterThan(150_000);
    expect(intent.lastError).toContain('429');
    await client.cancelRun(turn.run.id, {});
  });

  it('leave no Job behind: one whose run has ended is removed after its grace', async () => {
    isStuck = () => true;
    const [young, old] = await Promise.all([startTurn(), startTurn()]);
    const jobs = { young: await dispatchedJob(young), old: await dispatchedJob(old) };
    await client.cancelRun(old.run.id, {});
    await client.cancelRun(young.run.id, {});
    await database.db.sql.query(
      sql`UPDATE runplane.runs SET created_at = created_at - interval '1 hour', finished_at = finished_at - interval '2 minutes' WHERE id = ${old.run.id}::text`,
    );
    for (const job of Object.values(jobs)) cluster.age(job, 120_000);

    await reconcile();

    await until('the Job is removed', () => jobsOf(old).length === 0);
    expect(secretOf(jobs.old)).toBeUndefined();
    expect(jobsOf(young)).toEqual([jobs.young]);
  });

  it('have one Job when the API dies between making it and recording it', async () => {
    let held = 0;
    cluster.disturb = ({ method, path: at }) => {
      if (method !== 'POST' || !at.endsWith('/jobs')) return undefined;
      held += 1;
      return 'hang-after';
    };
    const turn = await startTurn();
    await until('the Job is made', () => held > 0);
    await api.kill();
    cluster.disturb = () => undefined;
    await database.db.sql.query(
      sql`UPDATE runplane.dispatch_intents SET ready_at = runplane.app_now(), expires_at = runplane.app_now() WHERE run_id = ${turn.run.id}::text`,
    );

    await api.restart();

    expect(await ended(turn)).toMatchObject({ status: 'completed' });
    expect(jobsOf(turn)).toHaveLength(1);
    const told = (await client.listEvents(turn.run.id)).events.find(({ payload }) => payload['phase'] === 'runner-dispatch-completed');
    expect(told?.payload).toMatchObject({ outcome: 'adopted', jobName: jobsOf(turn)[0]?.metadata.name });
  });
});
