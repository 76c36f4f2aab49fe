import { readFile } from 'node:fs/promises';
import { SinkName } from '@runplane/contracts';
import { SinkSettings } from '@runplane/outbox';
import type { KafkaOptions } from '@runplane/outbox/kafka';
import type { WebhookOptions } from '@runplane/outbox/webhook';
import { z } from 'zod';
import { ConfigError } from './config-error';
import type { KafkaConfig } from './kafka-config';

// Which sinks this process relays to; part of config.ts. Kafka from the environment is the sink `kafka`; a file adds others, and settings.

const common = SinkSettings.partial({ topic: true });
const InFile = z.record(
  SinkName,
  z.discriminatedUnion('kind', [
    common.extend({ kind: z.literal('kafka') }),
    common.extend({ kind: z.literal('webhook'), options: z.record(z.string(), z.unknown()) }),
  ]),
);

export type SinkConfig = SinkSettings & { readonly name: string } & (
    { readonly kind: 'kafka'; readonly options: KafkaOptions } | { readonly kind: 'webhook'; readonly options: WebhookOptions }
  );

export async function readSinks(file: string | undefined, kafka: KafkaConfig | undefined): Promise<SinkConfig[]> {
  const found = file === undefined ? {} : await readFileOf(file);
  const ofKafka = Object.values(found).some(({ kind }) => kind === 'kafka');
  const named: z.infer<typeof InFile> =
    kafka === undefined || ofKafka ? found : { kafka: { kind: 'kafka', ...SinkSettings.parse({ topic: kafka.topic }) }, ...found };
  const sinks: SinkConfig[] = [];
  for (const [name, sink] of Object.entries(named)) sinks.push(await sinkOf(name, sink, kafka));
  return sinks;
}

async function sinkOf(name: string, sink: z.infer<typeof InFile>[string], kafka: KafkaConfig | undefined): Promise<SinkConfig> {
  if (sink.kind === 'kafka') {
    if (kafka === undefined) throw new ConfigError(`RUNPLANE_SINKS_FILE: ${name} goes to Kafka, and RUNPLANE_KAFKA_BROKERS is not set`);
    return { ...sink, name, topic: sink.topic ?? kafka.topic, options: kafka.options };
  }
  const { WebhookOptions: schema } = await import('@runplane/outbox/webhook');
  const options = schema.safeParse(sink.options);
  if (!options.success) throw invalid(options.error, `${name}.options.`);
  return { ...sink, name, topic: sink.topic ?? name, options: options.data };
}

async function readFileOf(file: string): Promise<z.infer<typeof InFile>> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new ConfigError(`RUNPLANE_SINKS_FILE: ${file} cannot be read (${error.code})`);
  });
  const parsed = InFile.safeParse(parseJson(text, file));
  if (!parsed.success) throw invalid(parsed.error, '');
  return parsed.data;
}

/** Paths and rules; a value may be a secret. */
function invalid(error: z.ZodError, prefix: string): ConfigError {
  const lines = error.issues.map(({ path, message }) => `  ${prefix}${path.join('.')}: ${message}`);
  return new ConfigError(`RUNPLANE_SINKS_FILE does not hold sinks (docs/relay.md):\n${lines.join('\n')}`);
}

function parseJson(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ConfigError(`RUNPLANE_SINKS_FILE: ${file} is not valid JSON`); // the parser's message would quote it
  }
}
