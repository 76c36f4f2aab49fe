import { partitionOf } from '@runplane/contracts';

/** Tenants have no slash in their ids. */
export function shardOfKey(key: string): number {
  const slash = key.indexOf('/');
  return partitionOf(key.slice(0, slash), key.slice(slash + 1)).shard;
}
