import { z } from 'zod';
import { BackendRegistration } from './backends';
import { identifier } from './identifiers';
import { KubernetesPlacement } from './kubernetes-placement';
import { CLAIM_LEASE_MS_DEFAULT, CLAIM_LEASE_MS_MAX, CLAIM_LEASE_MS_MIN } from './limits';

/** Variables of its surroundings that every program may see. */
const PROGRAM_VARIABLES = ['PATH', 'HOME', 'LANG', 'LC_ALL', 'TZ', 'TMPDIR'] as const;
/** Never handed on, whatever a profile lists: the doors to the store and the control plane's own credentials. */
const PRIVATE_VARIABLE = /^(DATABASE_URL|DATABASE_DIRECT_URL|PG[A-Z]+|RUNPLANE_.*)$/;

/** How the `process` backend runs a program; written by the operator, never taken from a request. */
export const ProcessBackend = z.strictObject({
  kind: z.literal('process').default('process'),
  command: z.array(z.string().min(1)).min(1),
  /** Fixed variables for the program. */
  env: z.record(z.string(), z.string()).default({}),
  /** Names of variables that the program gets from the runner's own environment, besides PATH, HOME, LANG, LC_ALL, TZ, TMPDIR. */
  envAllow: z.array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/)).default([]),
  /**
   * `steers`: standard input stays open after the turn, for the steers to come; the program ends by itself.
   * `turn`: it ends after the turn, for programs that read it to its end; steers are then missed.
   */
  stdin: z.enum(['steers', 'turn']).default('steers'),
  /** Between SIGTERM and SIGKILL of the process group. */
  graceMs: z.int().min(0).max(600_000).default(10_000),
  /** How long a run waits for a runner that has fallen silent, before its policy for lost runners applies. */
  leaseMs: z.int().min(CLAIM_LEASE_MS_MIN).max(CLAIM_LEASE_MS_MAX).default(CLAIM_LEASE_MS_DEFAULT),
});
export type ProcessBackend = z.infer<typeof ProcessBackend>;

/** A backend, where its runners live (processes beside the API, or Jobs of a Kubernetes cluster), and what the registry shows of it. */
export const BackendProfile = ProcessBackend.extend({
  launcher: z.enum(['process', 'kubernetes']).default('process'),
  kubernetes: KubernetesPlacement.optional(),
  ...BackendRegistration.pick({ capabilities: true, capacity: true }).shape,
}).refine(({ launcher, kubernetes }) => (launcher === 'kubernetes') === (kubernetes !== undefined), {
  error: '\'kubernetes\' belongs to a profile with "launcher": "kubernetes", and such a profile needs it',
});
export type BackendProfile = z.infer<typeof BackendProfile>;

/** The part of a profile that its runner needs: neither where it lives nor what the registry shows of it. */
export function processBackendOf(profile: BackendProfile): ProcessBackend {
  const { launcher: _launcher, kubernetes: _kubernetes, capabilities: _capabilities, capacity: _capacity, ...backend } = profile;
  return backend;
}

/** Profile name → backend. */
export const BackendProfiles = z.record(identifier, BackendProfile);
export type BackendProfiles = z.infer<typeof BackendProfiles>;

/** The part of an environment that a program of this backend may see: an allow-list, without the private names even if listed. */
export function allowedEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
  backend: ProcessBackend,
): Record<string, string> {
  const inherited = [...PROGRAM_VARIABLES, ...backend.envAllow].flatMap((name) => {
    const value = environment[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries([...inherited, ...Object.entries(backend.env)].filter(([name]) => !PRIVATE_VARIABLE.test(name)));
}

/** A folder below a root, as text: symbolic links are the business of whoever opens it. */
export const workspacePath = z
  .string()
  .min(1)
  .max(1024)
  .refine((path) => !path.startsWith('/') && !path.includes('\0') && !path.split(/[/\\]/).includes('..'), {
    error: 'must be a relative path that does not leave its root',
  });

/** Names the file that holds the ProcessJob, for a runner that is not started with it on its standard input. */
export const JOB_FILE_VARIABLE = 'RUNPLANE_JOB_FILE';

/**
 * What a launcher hands to the runner, as one JSON line on its standard input or in a file. The token travels here and nowhere else:
 * neither the arguments nor the environment of a process are private to it.
 */
export const ProcessJob = z.strictObject({
  apiUrl: z.url(),
  token: z.string().min(1),
  runId: identifier,
  commandId: identifier,
  runnerId: identifier,
  backend: ProcessBackend,
  /** Absolute; the workspace lies below it, symbolic links resolved. */
  workspaceRoot: z.string().min(1),
  /** Relative to workspaceRoot. */
  workspacePath,
});
export type ProcessJob = z.infer<typeof ProcessJob>;
