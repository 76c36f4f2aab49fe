import { decodeHints, encodeHints } from './hints';
import type { Stream } from './hub';

const SENDER = '0b9d7c1e-0000-4000-8000-000000000000';

it('what is sent is what arrives, in any script', () => {
  const streams: Stream[] = ['feed', 'run:t/run_1', 'session:t/会话 "1"\\', 'session:t/😀'];
  expect(encodeHints(SENDER, streams).map(decodeHints)).toEqual([{ sender: SENDER, streams }]);
});

it.each([1, 10, 1_000, 5_000])('%i long names go out in payloads that PostgreSQL accepts, none lost, none twice', (count) => {
  const streams = Array.from({ length: count }, (_, number): Stream => `session:${'会'.repeat(60)}/${number}`);

  const payloads = encodeHints(SENDER, streams);

  expect(Math.max(...payloads.map((payload) => Buffer.byteLength(payload)))).toBeLessThan(8_000);
  expect(payloads.flatMap((payload) => decodeHints(payload)?.streams)).toEqual(streams);
});

it('a name that fits in no payload is left out, not cut', () => {
  expect(encodeHints(SENDER, [`run:${'x'.repeat(8_000)}`, 'feed']).map(decodeHints)).toEqual([{ sender: SENDER, streams: ['feed'] }]);
});

it('nothing to say makes no payload', () => {
  expect(encodeHints(SENDER, [])).toEqual([]);
});

it.each(['', 'x', '{}', '[]', '[1]', '["a",1]', 'null'])('a payload of somebody else (%s) is not a hint', (payload) => {
  expect(decodeHints(payload)).toBeUndefined();
});
