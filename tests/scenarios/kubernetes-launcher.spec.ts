import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { loadAllYaml } from '@kubernetes/client-node';
import { readConfig } from '@runplane/api';
import { BackendProfiles, type ProcessJob } from '@runplane/contracts';
import { createKubernetesLauncher, JobHidden, type KubernetesLauncher, type LaunchFailed, type LaunchRequest } from '@runplane/runs';
import { Deployment } from 'kubernetes-models/apps/v1/Deployment';
import { fail, NAMESPACE, profiles, RUNNER, useCluster } from '../support/cluster';
import type { Disturbance } from '../support/kubernetes-api';
import type { StoredObject } from '../support/kubernetes-schema';

// The Kubernetes launcher against an HTTP server that speaks the API: no method of the client is replaced.

const cluster = useCluster();

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

const jobInSecret = (secret: StoredObject | undefined): ProcessJob =>
  JSON.parse(Buffer.from(String(secret?.['data']['job.json']), 'base64').toString()) as ProcessJob;
const jobNamed = (name: string) => cluster.api.jobs().find(({ metadata }) => metadata.name === name) as StoredObject;

describe('the Kubernetes launcher', () => {
  const stopping = new AbortController();
  let launcher: KubernetesLauncher;
  let tokens = 0;

  const connect = (over: { signal?: AbortSignal; requestTimeoutMs?: number; kubeconfig?: string; backends?: BackendProfiles } = {}) =>
    createKubernetesLauncher({
      kubeconfig: cluster.kubeconfig,
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
    cluster.api.disturb = (seen) => (seen.method === method && pattern.test(seen.path) && (left -= 1) === 0 ? disturbance : undefined);
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
    const secret = cluster.secretOf(job);
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
    cluster.api.end(jobNamed(first.jobName), { type: 'Failed', reason: 'BackoffLimitExceeded' });
    const third = await launcher.launch(again);

    expect(second).toEqual({ ...first, outcome: 'adopted' });
    expect(third).toMatchObject({ outcome: 'created', jobName: `${first.jobName}-2`, result: { runnerId: `${again.runnerId}.2` } });
    expect(jobInSecret(cluster.secretOf(jobNamed(third.jobName))).runnerId).toBe(`${again.runnerId}.2`);
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
    const known = cluster.api.jobs().length;
    disturbNext(method, pattern, disturbance);

    const failed = await failureOf(launcher.launch(wanted));
    const launched = await launcher.launch(wanted);

    expect(failed).toMatchObject({ permanent: false });
    expect(launched.outcome).toBe(outcome);
    expect(cluster.api.jobs()).toHaveLength(known + 1);
    expect(jobInSecret(cluster.secretOf(jobNamed(launched.jobName)))).toMatchObject({ runnerId: wanted.runnerId });
  });

  it('needs the token of its configuration, and ends its requests when the process stops', async () => {
    const stop = new AbortController();
    const stranger = await connect({ kubeconfig: await cluster.api.writeKubeconfig(path.join(cluster.dir, 'stranger.json'), 'wrong') });
    const patient = await connect({ signal: stop.signal, requestTimeoutMs: 60_000 });
    expect(await failureOf(stranger.launch(newRequest()))).toMatchObject({ message: expect.stringContaining('401') });

    cluster.api.disturb = () => {
      setImmediate(() => stop.abort(new Error('stopping')));
      return 'hang-before';
    };
    expect(await failureOf(patient.launch(newRequest()))).toMatchObject({ permanent: false });
  });

  it('lists page by page, starts over when the place has expired, and knows what has become of each Job', async () => {
    const { jobName } = await launcher.launch(newRequest());
    const model = jobNamed(jobName);
    for (let n = 0; n < 600; n += 1) cluster.api.put({ ...model, metadata: { ...model.metadata, name: `many-${n}`, uid: `many-${n}` } });
    cluster.api.end(model, { type: 'Failed', reason: 'DeadlineExceeded', message: 'Job was active longer than specified deadline' });
    let pages = 0;
    cluster.api.disturb = ({ method, query }) => {
      if (method === 'GET' && query.has('limit') && (pages += 1) === 2) cluster.api.expireLists();
      return undefined;
    };

    const jobs = await launcher.list();

    expect(pages).toBe(4);
    expect(new Set(jobs.map((job) => job.jobName)).size).toBe(jobs.length);
    expect(jobs.length).toBeGreaterThan(600);
    expect(jobs.find((job) => job.jobName === jobName)).toMatchObject({ state: 'failed', reason: 'DeadlineExceeded' });
    for (const job of cluster.api.jobs()) if (job.metadata.name.startsWith('many-')) cluster.api.removeJob(job);
  });

  it('lists what it may list: a namespace that is forbidden is told of and skipped, and its Jobs are hidden', async () => {
    const { agent } = profiles('/workspace');
    const elsewhere = { ...agent, kubernetes: { ...agent.kubernetes, namespace: 'forbidden' } };
    const both = await connect({ backends: BackendProfiles.parse({ agent, elsewhere }) });
    const wanted = newRequest();
    const { jobName, result } = await both.launch(wanted);
    cluster.api.disturb = ({ path: at }) =>
      at.includes('/forbidden/') ? { status: 403, reason: 'Forbidden', message: 'jobs is forbidden' } : undefined;
    const failures: string[] = [];

    const jobs = await both.list({ onFailure: (what) => failures.push(what) });

    expect(jobs.map((job) => job.jobName)).toContain(jobName);
    expect(failures).toEqual(['the Jobs in forbidden']);
    await expect(both.list()).rejects.toMatchObject({ status: 403 });
    const there = { ...wanted, launcher: 'kubernetes', jobName, result: { ...result, namespace: 'forbidden' } };
    await expect(both.find(there)).rejects.toBeInstanceOf(JobHidden);
    cluster.api.disturb = () => ({ status: 403, reason: 'Forbidden', message: 'nothing is allowed' });
    await expect(both.list({ onFailure: fail })).rejects.toMatchObject({ status: 403 });
  });

  it('takes no 404 but that about the Job itself for its absence', async () => {
    const wanted = newRequest();
    const { jobName, result } = await launcher.launch(wanted);
    const recorded = { ...wanted, launcher: 'kubernetes', jobName, result };

    expect(await launcher.find(recorded)).toEqual({ state: 'active' });
    cluster.api.disturb = () => ({ status: 404, message: 'the server could not find the requested resource' });
    await expect(launcher.find(recorded)).rejects.toMatchObject({ status: 404 });
    cluster.api.disturb = () => undefined;
    expect(await launcher.find({ ...recorded, result: { ...result, uid: 'of an earlier one' } })).toEqual({ state: 'gone' });
    cluster.api.removeJob(jobNamed(jobName));
    expect(await launcher.find(recorded)).toEqual({ state: 'gone' });
    expect(await launcher.find({ ...recorded, result: {} })).toEqual({ state: 'unknown' });
  });

  it('removes exactly the Job that it has seen: not one that has ended, not one that took its name', async () => {
    const listed = async (name: string) => (await launcher.list()).find((job) => job.jobName === name) ?? fail(name);
    const names = await Promise.all([0, 1, 2, 3].map(async () => (await launcher.launch(newRequest())).jobName));
    const [moved, ended, replaced, gone] = await Promise.all(names.map(listed));
    const at = (index: number) => jobNamed(names[index] ?? '');
    const secret = cluster.secretOf(at(0));
    cluster.api.touch(at(0));
    cluster.api.end(at(1), { type: 'Complete' });
    at(2).metadata.uid = 'another';
    cluster.api.removeJob(at(3));

    expect(await launcher.remove(moved ?? fail())).toBe(true);
    expect(await launcher.remove(ended ?? fail())).toBe(false);
    expect(await launcher.remove(replaced ?? fail())).toBe(false);
    expect(await launcher.remove(gone ?? fail())).toBe(false);

    expect(names.map((name) => cluster.api.jobs().some(({ metadata }) => metadata.name === name))).toEqual([false, true, true, false]);
    expect(cluster.api.secrets()).not.toContain(secret);
  });
});

describe('examples/kubernetes', () => {
  const example = path.resolve(__dirname, '../../examples/kubernetes');
  const read = async (file: string): Promise<Record<string, any>[]> => loadAllYaml(await readFile(path.join(example, file), 'utf8')); // eslint-disable-line @typescript-eslint/no-explicit-any

  it('grants what the launcher has done in these tests, and nothing more', async () => {
    const verbs: Record<string, string> = { POST: 'create', GET: 'list', 'GET one': 'get', 'DELETE one': 'delete' };
    const used = cluster.api.seen.map(({ method, path: at }) => {
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
    const file = path.join(cluster.dir, 'example.json');
    await writeFile(file, profile ?? '');
    const variables = deployment.containers[0].env.map(({ name, value }: { name: string; value: string }) => [name, value] as const);
    const env = { ...Object.fromEntries(variables), RUNPLANE_BACKENDS_FILE: file, KUBERNETES_SERVICE_HOST: '10.0.0.1' };
    const agent = (await readConfig(env)).backends['agent'];
    expect(agent?.kubernetes?.namespace).toBe(objects.find(({ kind }) => kind === 'Role')?.['metadata'].namespace);
    expect(objects.find(({ kind }) => kind === 'RoleBinding')?.['subjects'][0].name).toBe(deployment.serviceAccountName);
  });
});
