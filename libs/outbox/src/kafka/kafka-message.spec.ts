import type { PublishRecord } from '../publisher';
import { bytesOf, kafkaMessageOf } from './kafka-message';

const OPTIONS = { sourceUri: 'https://runplane.example' };

const OF_A_SESSION: PublishRecord = {
  place: { tx: 4_294_967_296n, position: 7n },
  topic: 'events',
  partitionKey: 'acme & söhne/s 1',
  stream: 'session',
  streamId: 's 1',
  sequence: 0,
  eventId: 'evt_01970000-0000-7000-8000-000000000001',
  type: 'turn/start',
  tenantId: 'acme & söhne',
  projectId: null,
  sessionId: 's 1',
  runId: null,
  commandId: null,
  data: '{"z":1e3,"a":"\\u0000 😀","z":2}',
  time: '2026-11-29T23:00:00.123Z',
};
const OF_A_RUN: PublishRecord = {
  ...OF_A_SESSION,
  partitionKey: 'acme/s1',
  stream: 'run',
  streamId: 'run_01970000-0000-7000-8000-000000000002',
  sequence: 9_007_199_254_740_991,
  type: 'custom/build.finished',
  tenantId: 'acme',
  projectId: 'p1',
  sessionId: 's1',
  runId: 'run_01970000-0000-7000-8000-000000000002',
  commandId: 'cmd_01970000-0000-7000-8000-000000000003',
  data: '{}',
};

it('an event of a session in binary mode: data as it is stored, what is absent left out', () => {
  const { key, value, headers, timestamp } = kafkaMessageOf(OF_A_SESSION, OPTIONS);

  expect(key.toString()).toBe('acme & söhne/s 1');
  expect(value.toString()).toBe('{"z":1e3,"a":"\\u0000 😀","z":2}');
  expect(timestamp).toBe('1795993200123');
  expect(Object.entries(headers)).toEqual([
    ['ce_specversion', '1.0'],
    ['ce_id', 'evt_01970000-0000-7000-8000-000000000001'],
    ['ce_source', 'https://runplane.example/tenants/acme%20%26%20s%C3%B6hne'],
    ['ce_type', 'runplane.session.turn/start'],
    ['ce_subject', 's 1'],
    ['ce_time', '2026-11-29T23:00:00.123Z'],
    ['content-type', 'application/json'],
    ['ce_partitionkey', 'acme & söhne/s 1'],
    ['ce_sequence', '0000000000000000000'],
    ['ce_tenantid', 'acme & söhne'],
    ['ce_sessionid', 's 1'],
  ]);
});

it('an event of a run, with everything that it belongs to', () => {
  expect(Object.entries(kafkaMessageOf(OF_A_RUN, OPTIONS).headers)).toEqual([
    ['ce_specversion', '1.0'],
    ['ce_id', 'evt_01970000-0000-7000-8000-000000000001'],
    ['ce_source', 'https://runplane.example/tenants/acme'],
    ['ce_type', 'runplane.run.custom/build.finished'],
    ['ce_subject', 'run_01970000-0000-7000-8000-000000000002'],
    ['ce_time', '2026-11-29T23:00:00.123Z'],
    ['content-type', 'application/json'],
    ['ce_partitionkey', 'acme/s1'],
    ['ce_sequence', '0009007199254740991'],
    ['ce_tenantid', 'acme'],
    ['ce_projectid', 'p1'],
    ['ce_sessionid', 's1'],
    ['ce_runid', 'run_01970000-0000-7000-8000-000000000002'],
    ['ce_commandid', 'cmd_01970000-0000-7000-8000-000000000003'],
  ]);
});

it('a resend has the same bytes, from whatever place and try', () => {
  const first = kafkaMessageOf(OF_A_RUN, OPTIONS);
  const again = kafkaMessageOf({ ...OF_A_RUN, place: { tx: 1n, position: 1n }, topic: 'elsewhere' }, OPTIONS);

  expect(again).toEqual(first);
  expect(JSON.stringify(again)).toBe(JSON.stringify(first));
});

it('the size is never told too small', () => {
  const message = kafkaMessageOf(OF_A_SESSION, OPTIONS);

  expect(bytesOf(message)).toBeGreaterThan(Buffer.byteLength(Object.entries(message.headers).flat().join('')) + message.value.length);
});
