import { OUTBOX_SHARDS, parseInput, PartitionKey, SinkNotFound, type RelayExplanation } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import { listBlockedKeys } from './blocked-keys';
import { findShardFacts } from './explain.sql';
import { explainRelay } from './explanation';
import { shardOfKey } from './shard-of-key';

const ShardNumber = z
  .int()
  .min(0)
  .max(OUTBOX_SHARDS - 1);

/**
 * Why the events of a shard, or of one key (`<tenant>/<session id or run id>`), have or have not reached a sink: a cause, one sentence, and the facts it
 * was found by. No lock.
 *
 * Errors    SinkNotFound, InvalidRequest.
 */
export async function explainSink(
  at: At,
  { sink, ...of }: { sink: string } & ({ key: string } | { shard: number }),
): Promise<RelayExplanation> {
  const key = 'key' in of ? parseInput(PartitionKey, of.key) : null;
  const shard = 'shard' in of ? parseInput(ShardNumber, of.shard) : shardOfKey(of.key);
  const blocked = key === null ? undefined : (await listBlockedKeys(at, { sink, key, limit: 1 })).keys[0];
  const facts = await findShardFacts(executorOf(at), { sink, shard });
  if (facts === undefined) throw new SinkNotFound(`There is no sink ${sink}.`, { sink });
  const given = Object.entries({ ...facts, ...(blocked === undefined ? {} : { blocked }) }).filter(([, value]) => value !== null);
  return { sink, shard, key, ...explainRelay(facts, blocked), facts: Object.fromEntries(given) };
}
