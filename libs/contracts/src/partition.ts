import { createHash } from 'node:crypto';
import { OUTBOX_SHARDS } from './limits';

/** Where an aggregate's events go: one key per session, or per run without one; the key's order is kept all the way to Kafka. */
export interface Partition {
  readonly partitionKey: string;
  /** 0 … OUTBOX_SHARDS − 1; a stable hash, stored on run and session and never recomputed for existing rows. */
  readonly shard: number;
}

export function partitionOf(tenantId: string, sessionOrRunId: string): Partition {
  const partitionKey = `${tenantId}/${sessionOrRunId}`;
  return { partitionKey, shard: createHash('sha256').update(partitionKey).digest().readUInt32BE(0) % OUTBOX_SHARDS };
}
