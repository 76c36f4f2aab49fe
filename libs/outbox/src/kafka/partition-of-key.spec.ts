import { murmur2, partitionOfKey } from './partition-of-key';

/** Printed by org.apache.kafka.common.utils.Utils of kafka-clients 4.3.1: murmur2, and toPositive of it modulo 3 and 48. */
const VECTORS: [string, number, number, number][] = [
  ['', 275646681, 0, 9],
  ['a', -1563381124, 1, 28],
  ['ab', 316155434, 2, 26],
  ['abc', 479470107, 0, 27],
  ['abcd', -1323649548, 2, 20],
  ['acme/ses_01970000-0000-7000-8000-000000000000', 959013876, 0, 36],
  ['acme/run_01970000-0000-7000-8000-0000000000ff', 2116994272, 1, 16],
  ['umbrella/会话 😀', -1255360729, 1, 7],
  ['foobar', -790332482, 0, 30],
  ['a-little-bit-long-string', -985981536, 2, 32],
];

it.each(VECTORS)('the key %j goes where the Java client puts it', (key, hash, ofThree, ofFortyEight) => {
  const bytes = Buffer.from(key);

  expect(murmur2(bytes)).toBe(hash);
  expect([3, 48].map((partitions) => partitionOfKey(bytes, partitions))).toEqual([ofThree, ofFortyEight]);
});
