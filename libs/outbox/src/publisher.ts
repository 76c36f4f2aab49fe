import type { FeedPlace } from './feed.sql';

/** One outbox row on its way to a sink. `data` and `time` are the stored texts: a resend must come out byte-identical. */
export interface PublishRecord {
  readonly place: FeedPlace;
  /** Where in the sink it goes: a Kafka topic, an endpoint of webhooks. */
  readonly topic: string;
  readonly partitionKey: string;
  readonly stream: 'run' | 'session';
  readonly streamId: string;
  readonly sequence: number;
  readonly eventId: string;
  readonly type: string;
  readonly tenantId: string;
  readonly projectId: string | null;
  readonly sessionId: string | null;
  readonly runId: string | null;
  readonly commandId: string | null;
  /** JSON text of an object. */
  readonly data: string;
  /** RFC 3339, UTC, milliseconds. */
  readonly time: string;
}

/**
 * Why a sink did not take this record; others may pass. `final`: no repeat helps unless somebody changes something else than time; the
 * record can be parked at once. Not final: the topic may yet be made, its limit raised, a right given.
 */
export const REFUSALS = {
  /** Above what the topic takes. */
  too_large: { final: false },
  unknown_topic: { final: false },
  /** No right to write to this topic. */
  forbidden: { final: false },
  /** Refused by a rule of the sink's own: a policy, an answer of the 4xx class. */
  rejected: { final: false },
  /** The sink says that the record is malformed. */
  invalid: { final: true },
  /** There can be no topic of this name. */
  invalid_topic: { final: true },
} as const satisfies Record<string, { final: boolean }>;
export type RefusalReason = keyof typeof REFUSALS;

/** Why nothing of this kind gets through at the moment. It says nothing about the record, which may even have arrived. */
export const FAILURE_REASONS = ['unavailable', 'timed_out', 'credentials', 'overloaded', 'stopped'] as const;
export type FailureReason = (typeof FAILURE_REASONS)[number];

export type PublishOutcome =
  /** Acknowledged by as many replicas as the sink has in sync. */
  | { readonly kind: 'sent' }
  /** The record's own fault: it is not in the sink. `error` is redacted and cut. */
  | { readonly kind: 'refused'; readonly reason: RefusalReason; readonly final: boolean; readonly error: string }
  /** The sink's fault: it may be in the sink or not. `error` is redacted and cut. */
  | { readonly kind: 'failed'; readonly reason: FailureReason; readonly error: string }
  /** Not tried: an earlier record of its key in this call was refused, failed or skipped, or the sink takes no more within this call. */
  | { readonly kind: 'skipped' };

export interface PublishOptions {
  /** From the call on. When it is over, every record without an answer is `failed` with `timed_out`; such a record may still arrive. */
  readonly timeoutMs: number;
  /** Aborted: what has no answer yet is `failed` with `stopped`, at once. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * The port through which events leave for a sink.
 *
 * What the relay may rely on
 * - One outcome per record, in the order of the records, within `timeoutMs` (and a moment). No record makes a call reject.
 * - Order: of one (topic, partition key) the records of a call reach the sink in their order, and those of a call that has resolved before
 *   those of a later call. Of a key at most one record is refused or failed; all behind it, or behind one that was not tried, are skipped, so that
 *   what was sent is a prefix.
 * - At least once: `sent` is in the sink for good. A `failed` record may be in it too, or come late; sent again it appears twice, never
 *   before an earlier one's first appearance. Consumers drop by `sequence`.
 * - Byte-identical: key, headers and value depend on the record and the publisher's configuration alone, never on the try.
 * - Keys do not wait for each other, but for the connection they share.
 *
 * What it may not: calls for one key at the same time have no order between them. Whoever calls owns the key's shard.
 */
export interface Publisher {
  publish(records: readonly PublishRecord[], options: PublishOptions): Promise<readonly PublishOutcome[]>;
  /** Ends calls under way as an abort does, then the connections. Later calls are `failed` with `stopped`. Repeat: safe. Rejects never. */
  close(): Promise<void>;
}

/** A failed outcome in the making; the text must be redacted already (redactError). */
export function failed(reason: FailureReason, error: string): PublishOutcome {
  return { kind: 'failed', reason, error };
}

/** A refused outcome; whether it is final is the reason's, unless the caller knows better. */
export function refused(reason: RefusalReason, error: string, final: boolean = REFUSALS[reason].final): PublishOutcome {
  return { kind: 'refused', reason, final, error };
}
