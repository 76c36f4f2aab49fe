import { redactError, REDACTED } from '@runplane/contracts';
import type { FailureReason, RefusalReason } from '../publisher';

/**
 * What an error of the client means for the batch that met it.
 *
 * `record`: the broker refused the batch for what is in it, and wrote none of it; smaller parts of it may pass. `topic`: nothing for this topic
 * passes. `sink`: nothing passes now, and the batch may have been written. `repeat`: the same batch may be tried again on the same connection,
 * since the broker knows it by producer and sequence, and writes it once. Any other batch needs another connection: the broker would take one
 * of the same length for the same, and drop it.
 */
export type KafkaFault =
  | { readonly of: 'record'; readonly reason: RefusalReason }
  | { readonly of: 'topic'; readonly reason: RefusalReason }
  | { readonly of: 'sink'; readonly reason: FailureReason; readonly repeat: boolean };

const record = (reason: RefusalReason): KafkaFault => ({ of: 'record', reason });
const topic = (reason: RefusalReason): KafkaFault => ({ of: 'topic', reason });

const UNAVAILABLE: KafkaFault = { of: 'sink', reason: 'unavailable', repeat: true };
/** The producer's numbers and the broker's do not fit any more: only a new producer gets on. */
const PRODUCER_LOST: KafkaFault = { of: 'sink', reason: 'unavailable', repeat: false };
const CREDENTIALS: KafkaFault = { of: 'sink', reason: 'credentials', repeat: false };

/** Errors of the protocol by name. What is not here is the sink's fault. */
export const FAULTS: Readonly<Record<string, KafkaFault>> = {
  MESSAGE_TOO_LARGE: record('too_large'),
  RECORD_LIST_TOO_LARGE: record('too_large'),
  INVALID_RECORD: record('invalid'),
  INVALID_TIMESTAMP: record('rejected'),
  POLICY_VIOLATION: record('rejected'),
  UNSUPPORTED_FOR_MESSAGE_FORMAT: record('rejected'),

  UNKNOWN_TOPIC_OR_PARTITION: topic('unknown_topic'),
  INVALID_TOPIC_EXCEPTION: topic('invalid_topic'),
  TOPIC_AUTHORIZATION_FAILED: topic('forbidden'),
  UNSUPPORTED_COMPRESSION_TYPE: topic('rejected'),

  LEADER_NOT_AVAILABLE: UNAVAILABLE,
  NOT_LEADER_FOR_PARTITION: UNAVAILABLE,
  REPLICA_NOT_AVAILABLE: UNAVAILABLE,
  BROKER_NOT_AVAILABLE: UNAVAILABLE,
  FENCED_LEADER_EPOCH: UNAVAILABLE,
  UNKNOWN_LEADER_EPOCH: UNAVAILABLE,
  NOT_ENOUGH_REPLICAS: UNAVAILABLE,
  CORRUPT_MESSAGE: UNAVAILABLE,
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: UNAVAILABLE,
  REQUEST_TIMED_OUT: UNAVAILABLE,
  NETWORK_EXCEPTION: UNAVAILABLE,
  KAFKA_STORAGE_ERROR: UNAVAILABLE,

  OUT_OF_ORDER_SEQUENCE_NUMBER: PRODUCER_LOST,
  DUPLICATE_SEQUENCE_NUMBER: PRODUCER_LOST,
  UNKNOWN_PRODUCER_ID: PRODUCER_LOST,
  INVALID_PRODUCER_EPOCH: PRODUCER_LOST,
  INVALID_PRODUCER_ID_MAPPING: PRODUCER_LOST,

  SASL_AUTHENTICATION_FAILED: CREDENTIALS,
  UNSUPPORTED_SASL_MECHANISM: CREDENTIALS,
  ILLEGAL_SASL_STATE: CREDENTIALS,
  CLUSTER_AUTHORIZATION_FAILED: CREDENTIALS,
};

/** Codes of TLS handshakes that a change of certificates alone can heal. */
const CERTIFICATE = /^(CERT_|ERR_TLS|ERR_SSL|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|HOSTNAME_MISMATCH)/;

export function faultOf(error: unknown): KafkaFault {
  const chain = chainOf(error);
  for (const { code } of chain) if (typeof code === 'string' && CERTIFICATE.test(code)) return CREDENTIALS;
  for (const { type } of chain) {
    const fault = type === undefined ? undefined : FAULTS[type];
    if (fault !== undefined) return fault;
  }
  return chain.some(({ name }) => name === 'KafkaJSSASLAuthenticationError') ? CREDENTIALS : UNAVAILABLE;
}

/** The innermost message with the protocol's name for it, redacted and cut; `secrets` are taken out wherever they stand. */
export function faultText(error: unknown, secrets: readonly string[]): string {
  const root = chainOf(error).at(-1);
  const text = root === undefined ? String(error) : root.type === undefined ? root.message : `${root.type}: ${root.message}`;
  const masked = secrets.filter((secret) => secret !== '').reduce((said, secret) => said.replaceAll(secret, REDACTED), text);
  return redactError(new Error(masked));
}

interface ClientError extends Error {
  /** The protocol's name of the error. */
  readonly type?: string;
  readonly code?: unknown;
}

/** An error and its causes, outermost first: the client wraps what it has given up on. */
function chainOf(error: unknown): ClientError[] {
  const chain: ClientError[] = [];
  for (let at: unknown = error; at instanceof Error && !chain.includes(at); at = at.cause) chain.push(at);
  return chain;
}
