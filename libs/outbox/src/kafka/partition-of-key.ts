/**
 * The partition of a key, as the Java client's default partitioner has it: murmur2 of the key's bytes without the sign, modulo. Pinned here
 * and tested against the Java client's numbers, since another hash after an upgrade of the client library would move keys to other
 * partitions, and two orders of one key would stand beside each other.
 */
export function partitionOfKey(key: Uint8Array, partitions: number): number {
  return (murmur2(key) & 0x7fffffff) % partitions;
}

const SEED = 0x9747b28c;
const FACTOR = 0x5bd1e995;
const SHIFT = 24;

/** The 32-bit MurmurHash2 of the Java client (org.apache.kafka.common.utils.Utils), as a signed integer. */
export function murmur2(bytes: Uint8Array): number {
  const { length } = bytes;
  const at = (index: number) => bytes[index] ?? 0;
  let hash = SEED ^ length;

  const words = length >> 2;
  for (let word = 0; word < words; word += 1) {
    const index = word * 4;
    let part = at(index) | (at(index + 1) << 8) | (at(index + 2) << 16) | (at(index + 3) << 24);
    part = Math.imul(part, FACTOR);
    part = Math.imul(part ^ (part >>> SHIFT), FACTOR);
    hash = Math.imul(hash, FACTOR) ^ part;
  }

  const rest = words * 4;
  const left = length - rest;
  if (left >= 3) hash ^= at(rest + 2) << 16;
  if (left >= 2) hash ^= at(rest + 1) << 8;
  if (left >= 1) hash = Math.imul(hash ^ at(rest), FACTOR);

  hash = Math.imul(hash ^ (hash >>> 13), FACTOR);
  return hash ^ (hash >>> 15);
}
