import { readFile } from 'node:fs/promises';
import type { KafkaOptions } from '@runplane/outbox/kafka';
import { z } from 'zod';
import { ConfigError } from './config-error';

// What the environment says of Kafka; part of config.ts.

const onOff = z.enum(['on', 'off']).transform((word) => word === 'on');

export const kafkaVariables = {
  RUNPLANE_KAFKA_BROKERS: z.string().min(1).optional(),
  RUNPLANE_KAFKA_TOPIC: z
    .string()
    .regex(/^[a-zA-Z0-9._-]{1,249}$/, 'must be the name of a topic')
    .default('runplane.events'),
  RUNPLANE_KAFKA_CLIENT_ID: z.string().min(1).default('runplane'),
  RUNPLANE_KAFKA_SOURCE: z.string().min(1).default('urn:runplane'),
  RUNPLANE_KAFKA_COMPRESSION: z.enum(['none', 'gzip']).default('none'),
  RUNPLANE_KAFKA_TLS: onOff.default(false),
  RUNPLANE_KAFKA_TLS_CA_FILE: z.string().min(1).optional(),
  RUNPLANE_KAFKA_TLS_CERT_FILE: z.string().min(1).optional(),
  RUNPLANE_KAFKA_TLS_KEY_FILE: z.string().min(1).optional(),
  RUNPLANE_KAFKA_SASL_MECHANISM: z.enum(['plain', 'scram-sha-256', 'scram-sha-512']).optional(),
  RUNPLANE_KAFKA_SASL_USERNAME: z.string().min(1).optional(),
  RUNPLANE_KAFKA_SASL_PASSWORD: z.string().min(1).optional(),
};
type KafkaVariables = z.infer<z.ZodObject<typeof kafkaVariables>>;

export interface KafkaConfig {
  readonly topic: string;
  readonly options: KafkaOptions;
}

/** How to reach Kafka; undefined without brokers. Errors: ConfigError, which shows no secret and no content of a file. */
export async function readKafka(variables: KafkaVariables): Promise<KafkaConfig | undefined> {
  const { RUNPLANE_KAFKA_BROKERS: brokers, RUNPLANE_KAFKA_TOPIC: topic } = variables;
  if (brokers === undefined) return undefined;
  const given: KafkaOptions = {
    brokers: brokers.split(',').map((broker) => broker.trim()),
    clientId: variables.RUNPLANE_KAFKA_CLIENT_ID,
    sourceUri: variables.RUNPLANE_KAFKA_SOURCE,
    compression: variables.RUNPLANE_KAFKA_COMPRESSION,
    tls: variables.RUNPLANE_KAFKA_TLS && (await readTls(variables)),
    sasl: readSasl(variables),
  };
  // Loads the client of Kafka, which a process without brokers goes without.
  const { KafkaOptions: schema } = await import('@runplane/outbox/kafka');
  const parsed = schema.safeParse(given);
  if (!parsed.success) {
    const lines = parsed.error.issues.map(({ path, message }) => `  ${VARIABLE_OF[String(path[0])] ?? 'RUNPLANE_KAFKA_…'}: ${message}`);
    throw new ConfigError(`the environment is not valid (docs/configuration.md):\n${lines.join('\n')}`);
  }
  return { topic, options: given };
}

const VARIABLE_OF: Readonly<Record<string, string>> = { brokers: 'RUNPLANE_KAFKA_BROKERS', sourceUri: 'RUNPLANE_KAFKA_SOURCE' };

async function readTls(variables: KafkaVariables): Promise<Exclude<KafkaOptions['tls'], boolean>> {
  const files = {
    ca: 'RUNPLANE_KAFKA_TLS_CA_FILE',
    cert: 'RUNPLANE_KAFKA_TLS_CERT_FILE',
    key: 'RUNPLANE_KAFKA_TLS_KEY_FILE',
  } as const;
  if ((variables.RUNPLANE_KAFKA_TLS_CERT_FILE === undefined) !== (variables.RUNPLANE_KAFKA_TLS_KEY_FILE === undefined)) {
    throw new ConfigError('RUNPLANE_KAFKA_TLS_CERT_FILE, RUNPLANE_KAFKA_TLS_KEY_FILE: a certificate of our own needs both');
  }
  const texts = Object.entries(files).map(async ([name, variable]) => {
    const file = variables[variable];
    if (file === undefined) return [];
    const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
      throw new ConfigError(`${variable}: ${file} cannot be read (${error.code})`);
    });
    return [[name, text] as const];
  });
  return Object.fromEntries((await Promise.all(texts)).flat());
}

function readSasl(variables: KafkaVariables): KafkaOptions['sasl'] {
  const {
    RUNPLANE_KAFKA_SASL_MECHANISM: mechanism,
    RUNPLANE_KAFKA_SASL_USERNAME: username,
    RUNPLANE_KAFKA_SASL_PASSWORD: password,
  } = variables;
  if (mechanism === undefined) return undefined;
  if (username === undefined || password === undefined) {
    throw new ConfigError('RUNPLANE_KAFKA_SASL_USERNAME, RUNPLANE_KAFKA_SASL_PASSWORD: the mechanism needs both');
  }
  return { mechanism, username, password };
}
