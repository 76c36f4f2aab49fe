import { BackendProfile, processBackendOf } from './process-job';

const placement = { namespace: 'agents', image: 'registry.example/agent:1' };
const profile = (over: object = {}, more: object = {}) => ({
  command: ['agent'],
  launcher: 'kubernetes',
  kubernetes: { ...placement, ...over },
  ...more,
});

test('a profile for Jobs needs a namespace and an image; everything else has a default that asks for nothing', () => {
  const parsed = BackendProfile.parse(profile());

  expect(parsed.kubernetes).toMatchObject({
    env: {},
    envFrom: [],
    tolerations: [],
    workspace: { mountPath: '/workspace' },
    keptMs: 3_600_000,
  });
  expect(processBackendOf(parsed)).toEqual({
    kind: 'process',
    command: ['agent'],
    env: {},
    envAllow: [],
    stdin: 'steers',
    graceMs: 10_000,
    leaseMs: 30_000,
  });
});

test.each<[string, object]>([
  ['no placement', { command: ['agent'], launcher: 'kubernetes' }],
  ['a placement that is not used', { command: ['agent'], kubernetes: placement }],
  ['a namespace in capitals', profile({ namespace: 'Agents' })],
  ['a namespace that is too long', profile({ namespace: 'a'.repeat(64) })],
  ['an unknown field', profile({ nameSpace: 'agents' })],
  ['a quantity that is none', profile({ resources: { requests: { cpu: 'lots' }, limits: {} } })],
  ['a label value that is none', profile({ nodeSelector: { pool: 'a b' } })],
  ['a label of ours', profile({ podLabels: { 'runplane.dev/store': 'mine' } })],
  ['a variable of ours', profile({ env: { RUNPLANE_JOB_FILE: '/etc/passwd' } })],
  ['a prefix that makes one of ours', profile({ envFrom: [{ secret: 'keys', prefix: 'RUNPLANE_' }] })],
  ['a workspace that is no absolute path', profile({ workspace: { mountPath: 'workspace' } })],
  ['an account that is no name', profile({ serviceAccountName: 'a/b' })],
])('%s is refused', (_, input) => {
  expect(BackendProfile.safeParse(input).success).toBe(false);
});
