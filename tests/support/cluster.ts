import { mkdtemp, realpath, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { KubernetesApiServer } from './kubernetes-api';
import type { StoredObject } from './kubernetes-schema';

// An HTTP server that speaks the Kubernetes API, for one test file, and what tests put into it.

export const RUNNER = path.join(path.dirname(require.resolve('@runplane/runner/package.json')), 'dist/main.js');
export const NAMESPACE = 'agents';

export interface Cluster {
  readonly api: KubernetesApiServer;
  /** A folder of this file's own. */
  readonly dir: string;
  readonly kubeconfig: string;
  secretOf(job: StoredObject): StoredObject | undefined;
}

export function useCluster(): Cluster {
  let api: KubernetesApiServer | undefined;
  let dir = '';
  let kubeconfig = '';
  beforeAll(async () => {
    dir = await realpath(await mkdtemp(path.join(os.tmpdir(), 'kubernetes-')));
    api = await KubernetesApiServer.start(NAMESPACE);
    kubeconfig = await api.writeKubeconfig(path.join(dir, 'kubeconfig.json'));
  });
  afterEach(() => {
    there().disturb = () => undefined;
  });
  afterAll(async () => {
    await there().close();
    await rm(dir, { recursive: true });
  });
  const there = (): KubernetesApiServer => api ?? fail('the API');
  return {
    get api() {
      return there();
    },
    get dir() {
      return dir;
    },
    get kubeconfig() {
      return kubeconfig;
    },
    secretOf: (job) =>
      there()
        .secrets()
        .find(({ metadata }) => metadata.ownerReferences?.some(({ uid }) => uid === job.metadata.uid)),
  };
}

export const profiles = (workspaces: string) => ({
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

export function fail(what = 'a Job'): never {
  throw new Error(`${what} is not there`);
}
