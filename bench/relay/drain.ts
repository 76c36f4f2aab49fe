import type { EmbeddedKafka } from '@runplane/outbox/embedded-kafka';
import type { BenchStore } from '../support/store';

export interface DrainSetting {
  readonly kafka: EmbeddedKafka;
  readonly store: BenchStore;
  readonly compression: 'none' | 'gzip';
}

/** One way to bring events into Kafka, ready to be measured. */
export interface Drain {
  /** Puts so many events where it takes them from, then brings all of them to the broker; the time of the latter, in milliseconds. */
  run(count: number): Promise<number>;
  close(): Promise<void>;
}
