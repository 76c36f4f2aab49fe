import { z } from 'zod';

/** `host:port`; an IPv6 address stands in brackets. */
const Broker = z.string().regex(/^([^\s:@/]+|\[[0-9a-fA-F:]+\]):\d{1,5}$/, 'must be host:port');

export const SASL_MECHANISMS = ['plain', 'scram-sha-256', 'scram-sha-512'] as const;

/** What the client library can compress with by itself. */
export const KAFKA_COMPRESSIONS = ['none', 'gzip'] as const;

/** How to reach a Kafka cluster, and as whom. */
export const KafkaOptions = z.strictObject({
  /** Where to ask first; the cluster names its other brokers. */
  brokers: z.array(Broker).min(1),
  clientId: z.string().min(1).default('runplane'),
  /** What CloudEvents name as their source, before `/tenants/<tenant>`: a URI without a slash at its end. */
  sourceUri: z
    .string()
    .regex(/^[^\s]*[^\s/]$/, 'must be a URI without a slash at its end')
    .default('urn:runplane'),
  compression: z.enum(KAFKA_COMPRESSIONS).default('none'),
  /** Of what one request to one partition carries, before compression. A topic that takes less is noticed, and gets less. */
  batchBytesMax: z.int().min(1).default(900_000),
  /** TLS with the system's authorities, or with these. PEM texts. */
  tls: z
    .union([
      z.boolean(),
      z.strictObject({
        ca: z.string().optional(),
        cert: z.string().optional(),
        key: z.string().optional(),
        passphrase: z.string().optional(),
        servername: z.string().optional(),
      }),
    ])
    .default(false),
  sasl: z.strictObject({ mechanism: z.enum(SASL_MECHANISMS), username: z.string().min(1), password: z.string().min(1) }).optional(),
});
export type KafkaOptions = z.input<typeof KafkaOptions>;
export type ResolvedKafkaOptions = z.infer<typeof KafkaOptions>;

/** What may stand in no error and no log line. */
export function secretsOf({ tls, sasl }: ResolvedKafkaOptions): string[] {
  const ofTls = typeof tls === 'object' ? [tls.key, tls.passphrase] : [];
  return [sasl?.password, ...ofTls].filter((secret) => secret !== undefined);
}
