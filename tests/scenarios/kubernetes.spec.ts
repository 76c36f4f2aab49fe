import { type ChildProcess, spawn } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createApiKey } from '@runplane/api';
import { type Client, createClient } from '@runplane/client';
import { type AdmittedTurn, BackendProfiles, type Run, SCOPES } from '@runplane/contracts';
import { checkStore, ensureTenant, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { createKubernetesLauncher, type KubernetesLauncher, reconcileRunnerJobsOnce } from '@runplane/runs';
import { ApiProcess, freePort } from '../support/api-process';
import { fail, NAMESPACE, profiles, useCluster } from '../support/cluster';
import type { StoredObject } from '../support/kubernetes-schema';
import { until } from '../support/until';

// Runs whose runners are Jobs. Needs a build: API processes dispatch, and where a kubelet would start a pod the test starts the runner with the
// Job's variables and its Secret. The launcher by itself: kubernetes-launcher.spec.ts.

const cluster = useCluster();

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
    const backends = profiles(path.join(cluster.dir, 'workspaces'));
    cluster.api.onPod = (job, secret) => void startPod(job, secret);
    const port = await freePort();
    const env = { RUNPLANE_KUBECONFIG: cluster.kubeconfig, RUNPLANE_PUBLIC_URL: `http://127.0.0.1:${port}` };
    api = await ApiProcess.start({
      databaseUrl: database.url,
      dataDir: path.join(cluster.dir, 'api'),
      port,
      backends: BackendProfiles.parse(backends),
      env,
    });
    client = createClient({ url: api.url, apiKey: key });
    const { storeId } = await checkStore(database.db);
    launcher = await createKubernetesLauncher({
      kubeconfig: cluster.kubeconfig,
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
    const mount = path.join(cluster.dir, 'pods', job.metadata.uid);
    await mkdir(mount, { recursive: true });
    for (const [name, data] of Object.entries(secret['data'] as Record<string, string>)) {
      await writeFile(path.join(mount, name), Buffer.from(data, 'base64'));
    }
    const [container] = job['spec'].template.spec.containers as { command: string[]; env: { name: string; value: string }[] }[];
    const [program = '', ...args] = container?.command ?? [];
    const env = Object.fromEntries(container?.env.map(({ name, value }) => [name, value.replace('/var/run/runplane', mount)]) ?? []);
    const pod = spawn(program, args, { cwd: mount, env: { PATH: process.env['PATH'], ...env }, stdio: 'ignore' });
    pods.push(pod);
    pod.once('exit', (code) =>
      cluster.api.end(job, code === 0 ? { type: 'Complete' } : { type: 'Failed', reason: 'BackoffLimitExceeded' }),
    );
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
    cluster.api.jobs().filter(({ metadata }) => metadata.annotations?.['runplane.dev/run-id'] === run.id);
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
    cluster.api.end(job, { type: 'Failed', reason: 'DeadlineExceeded', message: 'no image; token=abc123secret' });

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
    for (const turn of [again, never]) cluster.api.removeJob(await dispatchedJob(turn));
    isStuck = () => false;
    cluster.api.disturb = () => ({ status: 404, message: 'the server could not find the requested resource' });
    expect(await reconcile()).toMatchObject({ changed: 0, failed: 1 }); // a server that knows nothing yet has not said that a Job is gone
    expect(errors).toEqual([expect.stringContaining('404')]);
    cluster.api.disturb = () => undefined;

    await reconcile();

    expect(await ended(never)).toMatchObject({ status: 'failed', failure: { kind: 'runner-lost' } });
    expect(await ended(again)).toMatchObject({ status: 'completed' });
    expect(await phases(again)).toEqual(expect.arrayContaining(['runner-dispatch-lost', 'run-requeued']));
  });

  it('wait as long as the API asks for', async () => {
    cluster.api.disturb = ({ path: at }) => (at.endsWith('/jobs') ? { status: 429, retryAfter: '200' } : undefined);
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
    for (const job of Object.values(jobs)) cluster.api.age(job, 120_000);

    await reconcile();

    await until('the Job is removed', () => jobsOf(old).length === 0);
    expect(cluster.secretOf(jobs.old)).toBeUndefined();
    expect(jobsOf(young)).toEqual([jobs.young]);
  });

  it('have one Job when the API dies between making it and recording it', async () => {
    let held = 0;
    cluster.api.disturb = ({ method, path: at }) => {
      if (method !== 'POST' || !at.endsWith('/jobs')) return undefined;
      held += 1;
      return 'hang-after';
    };
    const turn = await startTurn();
    await until('the Job is made', () => held > 0);
    await api.kill();
    cluster.api.disturb = () => undefined;
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
