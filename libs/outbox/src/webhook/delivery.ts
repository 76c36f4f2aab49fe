import type { PublishOutcome, PublishRecord } from '../publisher';

/** One try to post an event. */
export interface Delivery {
  readonly record: PublishRecord;
  readonly outcome: PublishOutcome;
  /** Of the answer; null: none came. */
  readonly status: number | null;
  readonly durationMs: number;
}
