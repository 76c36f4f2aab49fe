import { z } from 'zod';
import { identifier } from './identifiers';

/** How the `process` backend runs a program; written by the operator, never taken from a request. */
export const ProcessBackend = z.strictObject({
  kind: z.literal('process').default('process'),
  command: z.array(z.string().min(1)).min(1),
  /** Fixed variables for the program. */
  env: z.record(z.string(), z.string()).default({}),
  /** Names of variables that the program gets from the runner's own environment, besides PATH, HOME, LANG, LC_ALL, TZ, TMPDIR. */
  envAllow: z.array(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/)).default([]),
  /** Between SIGTERM and SIGKILL of the process group. */
  graceMs: z.int().min(0).max(600_000).default(10_000),
});
export type ProcessBackend = z.infer<typeof ProcessBackend>;

/** Profile name → backend. */
export const BackendProfiles = z.record(identifier, ProcessBackend);
export type BackendProfiles = z.infer<typeof BackendProfiles>;

/**
 * What the process launcher writes to the runner's standard input, once, as one JSON line. The token travels here and nowhere else:
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
  workspacePath: z.string().min(1),
});
export type ProcessJob = z.infer<typeof ProcessJob>;
