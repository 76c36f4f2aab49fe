import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { BackendProfiles, FEED_CONSUMER_SILENT_DAYS_DEFAULT, OUTBOX_KEEP_DAYS_DEFAULT } from '@runplane/contracts';
import { z } from 'zod';
import { ConfigError } from './config-error';
import { readSinks, type SinkConfig } from './sinks-config';
import { kafkaVariables, readKafka, type KafkaConfig } from './kafka-config';

export { ConfigError } from './config-error';

// What the environment may say; docs/configuration.md has the same names, by test.

const port = z.coerce.number().int().min(0).max(65_535);
const count = (min: number, max: number) => z.coerce.number().int().min(min).max(max);
const onOff = z.enum(['on', 'off']).transform((word) => word === 'on');

export const Environment = z.object({
  DATABASE_URL: z.string().min(1).optional(),
  DATABASE_DIRECT_URL: z.string().min(1).optional(),
  PORT: port.default(3000),
  HOST: z.string().min(1).default('127.0.0.1'),
  RUNPLANE_DATA_DIR: z.string().min(1).default('./.runplane'),
  RUNPLANE_PUBLIC_URL: z.url().optional(),
  RUNPLANE_BACKENDS_FILE: z.string().min(1).optional(),
  RUNPLANE_WORKSPACE_ROOT: z.string().min(1).optional(),
  RUNPLANE_KUBECONFIG: z.string().min(1).optional(),
  RUNPLANE_STORAGE_ROOT: z.string().min(1).optional(),
  RUNPLANE_ARCHIVE_DIR: z.string().min(1).optional(),
  RUNPLANE_RETENTION: onOff.default(true),
  RUNPLANE_OUTBOX_KEEP_DAYS: count(0, 10_000).default(OUTBOX_KEEP_DAYS_DEFAULT),
  RUNPLANE_CONSUMER_SILENT_DAYS: count(1, 10_000).default(FEED_CONSUMER_SILENT_DAYS_DEFAULT),
  RUNPLANE_DISPATCH: onOff.default(true),
  RUNPLANE_RELAY: onOff.default(true),
  RUNPLANE_SINKS_FILE: z.string().min(1).optional(),
  RUNPLANE_MIGRATE: onOff.default(true),
  RUNPLANE_POOL_MAX: count(2, 500).default(10),
  RUNPLANE_PREPARED_STATEMENTS: onOff.default(true),
  RUNPLANE_STARTUP_SETTINGS: onOff.default(true),
  RUNPLANE_COALESCE: onOff.default(true),
  RUNPLANE_LOCK_TIMEOUT_MS: count(100, 60_000).default(4_000),
  RUNPLANE_STATEMENT_TIMEOUT_MS: count(1_000, 600_000).default(15_000),
  RUNPLANE_WAITERS_MAX: count(1, 1_000_000).default(10_000),
  RUNPLANE_LOG_LEVEL: z.enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent']).default('info'),
  ...kafkaVariables,
});

export interface Config {
  /** Absent: an embedded PostgreSQL in `dataDir`. */
  readonly databaseUrl: string | undefined;
  readonly databaseDirectUrl: string | undefined;
  readonly port: number;
  readonly host: string;
  readonly dataDir: string;
  /** Where runners reach this API; derived from host and port when absent. */
  readonly publicUrl: string | undefined;
  readonly backends: BackendProfiles;
  readonly workspaceRoot: string;
  /** How to reach the cluster; absent: by the service account of the pod that this is. */
  readonly kubeconfig: string | undefined;
  /** Where session storage of kind `folder` lies; absent: this process deletes none. */
  readonly storageRoot: string | undefined;
  /** Where copies of removed runs go; absent: nothing of a tenant that wants copies is removed. */
  readonly archiveDir: string | undefined;
  /** Whether this process removes by age what tenants have said. */
  readonly retention: boolean;
  /** How long events stay in the outbox for readers that are not registered; 0: for ever. */
  readonly outboxKeepDays: number;
  /** How long a registered consumer of the feed is waited for that says nothing. */
  readonly consumerSilentDays: number;
  readonly dispatch: boolean;
  readonly migrate: boolean;
  readonly poolMax: number;
  readonly preparedStatements: boolean;
  readonly startupSettings: boolean;
  /** Calls of runners that arrive together share a statement. */
  readonly coalesce: boolean;
  readonly lockTimeoutMs: number;
  readonly statementTimeoutMs: number;
  readonly waitersMax: number;
  readonly logLevel: string;
  /** Absent: nothing goes to Kafka. */
  readonly kafka: KafkaConfig | undefined;
  /** Where events are relayed to. */
  readonly sinks: readonly SinkConfig[];
  /** Whether the API relays to them; `npm run relay` always does. */
  readonly relay: boolean;
}

/** Reads and checks everything at start, so that a typing error is found then and not by the first run. An empty variable counts as absent. */
export async function readConfig(env: NodeJS.ProcessEnv): Promise<Config> {
  const given = Object.fromEntries(Object.entries(env).filter(([, value]) => value !== undefined && value !== ''));
  const parsed = Environment.safeParse(given);
  if (!parsed.success) throw new ConfigError(`the environment is not valid (docs/configuration.md):\n${describe(parsed.error)}`);
  const variables = parsed.data;
  const dataDir = path.resolve(variables.RUNPLANE_DATA_DIR);
  const backends = variables.RUNPLANE_BACKENDS_FILE === undefined ? {} : await readBackends(variables.RUNPLANE_BACKENDS_FILE);
  if (variables.RUNPLANE_DISPATCH && usesKubernetes(backends)) requireForKubernetes(variables, given);
  const kafka = await readKafka(variables);
  return {
    databaseUrl: variables.DATABASE_URL,
    databaseDirectUrl: variables.DATABASE_DIRECT_URL,
    port: variables.PORT,
    host: variables.HOST,
    dataDir,
    publicUrl: variables.RUNPLANE_PUBLIC_URL,
    backends,
    workspaceRoot: path.resolve(variables.RUNPLANE_WORKSPACE_ROOT ?? path.join(dataDir, 'workspaces')),
    kubeconfig: variables.RUNPLANE_KUBECONFIG,
    storageRoot: variables.RUNPLANE_STORAGE_ROOT === undefined ? undefined : path.resolve(variables.RUNPLANE_STORAGE_ROOT),
    archiveDir: variables.RUNPLANE_ARCHIVE_DIR === undefined ? undefined : path.resolve(variables.RUNPLANE_ARCHIVE_DIR),
    retention: variables.RUNPLANE_RETENTION,
    outboxKeepDays: variables.RUNPLANE_OUTBOX_KEEP_DAYS,
    consumerSilentDays: variables.RUNPLANE_CONSUMER_SILENT_DAYS,
    dispatch: variables.RUNPLANE_DISPATCH,
    migrate: variables.RUNPLANE_MIGRATE,
    poolMax: variables.RUNPLANE_POOL_MAX,
    preparedStatements: variables.RUNPLANE_PREPARED_STATEMENTS,
    startupSettings: variables.RUNPLANE_STARTUP_SETTINGS,
    coalesce: variables.RUNPLANE_COALESCE,
    lockTimeoutMs: variables.RUNPLANE_LOCK_TIMEOUT_MS,
    statementTimeoutMs: variables.RUNPLANE_STATEMENT_TIMEOUT_MS,
    waitersMax: variables.RUNPLANE_WAITERS_MAX,
    logLevel: variables.RUNPLANE_LOG_LEVEL,
    kafka,
    sinks: await readSinks(variables.RUNPLANE_SINKS_FILE, kafka),
    relay: variables.RUNPLANE_RELAY,
  };
}

/** Where the embedded PostgreSQL of a data directory keeps its files. */
export function postgresDir(dataDir: string): string {
  return path.join(dataDir, 'postgres');
}

export function usesKubernetes(backends: BackendProfiles): boolean {
  return Object.values(backends).some(({ launcher }) => launcher === 'kubernetes');
}

/** Pods need an address that leads to an API, and the API one that leads to the cluster: no default could be right. */
function requireForKubernetes(variables: z.infer<typeof Environment>, given: Readonly<Record<string, string | undefined>>): void {
  if (variables.RUNPLANE_PUBLIC_URL === undefined) {
    throw new ConfigError('RUNPLANE_PUBLIC_URL: a backend profile launches Jobs, whose pods must know where to reach this API');
  }
  if (variables.RUNPLANE_KUBECONFIG === undefined && given['KUBERNETES_SERVICE_HOST'] === undefined) {
    throw new ConfigError('RUNPLANE_KUBECONFIG: a backend profile launches Jobs, and this process is not in a cluster');
  }
}

async function readBackends(file: string): Promise<BackendProfiles> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError(`RUNPLANE_BACKENDS_FILE: ${file} cannot be read (${error.code})`);
  });
  const parsed = BackendProfiles.safeParse(parseJson(text, file));
  if (!parsed.success) throw new ConfigError(`RUNPLANE_BACKENDS_FILE: ${file} does not hold backend profiles:\n${describe(parsed.error)}`);
  return parsed.data;
}

function parseJson(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ConfigError(`RUNPLANE_BACKENDS_FILE: ${file} is not valid JSON`); // the parser's message would quote it
  }
}

function describe(error: z.ZodError): string {
  return error.issues.map((issue) => `  ${issue.path.join('.')}: ${issue.message}`).join('\n');
}
