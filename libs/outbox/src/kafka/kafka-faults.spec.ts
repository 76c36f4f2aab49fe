import {
  KafkaJSConnectionError,
  KafkaJSNonRetriableError,
  KafkaJSNumberOfRetriesExceeded,
  KafkaJSProtocolError,
  KafkaJSSASLAuthenticationError,
} from 'kafkajs';
import { FAULTS, faultOf, faultText, type KafkaFault } from './kafka-faults';

const ofProtocol = (type: string): Error =>
  new KafkaJSProtocolError(Object.assign(new Error(`said ${type}`), { type, code: 1, retriable: true }));
const givenUp = (cause: Error): Error => new KafkaJSNumberOfRetriesExceeded(cause, { retryCount: 1, retryTime: 100 });
/** The type of this one takes no message, its constructor needs one. */
const loginRefused = (): Error => Reflect.construct(KafkaJSSASLAuthenticationError, ['SASL PLAIN authentication failed']) as Error;
const unreachable = (code: string): Error => Object.assign(new KafkaJSConnectionError(`Connection error: ${code}`), { code });

const UNAVAILABLE: KafkaFault = { of: 'sink', reason: 'unavailable', repeat: true };
const CREDENTIALS: KafkaFault = { of: 'sink', reason: 'credentials', repeat: false };

it.each<[string, unknown, KafkaFault]>([
  ['too large', ofProtocol('MESSAGE_TOO_LARGE'), { of: 'record', reason: 'too_large' }],
  ['refused as malformed', ofProtocol('INVALID_RECORD'), { of: 'record', reason: 'invalid' }],
  ['no such topic', ofProtocol('UNKNOWN_TOPIC_OR_PARTITION'), { of: 'topic', reason: 'unknown_topic' }],
  ['no right to it', ofProtocol('TOPIC_AUTHORIZATION_FAILED'), { of: 'topic', reason: 'forbidden' }],
  [
    'wrapped by the client when it has given up',
    givenUp(ofProtocol('UNKNOWN_TOPIC_OR_PARTITION')),
    { of: 'topic', reason: 'unknown_topic' },
  ],
  ['the leader has moved', givenUp(ofProtocol('NOT_LEADER_FOR_PARTITION')), UNAVAILABLE],
  ['too few replicas', ofProtocol('NOT_ENOUGH_REPLICAS'), UNAVAILABLE],
  ['numbers that do not fit', ofProtocol('OUT_OF_ORDER_SEQUENCE_NUMBER'), { of: 'sink', reason: 'unavailable', repeat: false }],
  ['no right to be a producer', ofProtocol('CLUSTER_AUTHORIZATION_FAILED'), CREDENTIALS],
  ['a wrong password', givenUp(loginRefused()), CREDENTIALS],
  ['a certificate that nobody knows', unreachable('DEPTH_ZERO_SELF_SIGNED_CERT'), CREDENTIALS],
  ['nobody listens', unreachable('ECONNREFUSED'), UNAVAILABLE],
  ['an error that is not in the table', ofProtocol('A_NAME_OF_A_LATER_VERSION'), UNAVAILABLE],
  ['a fault of the client', new TypeError('x is not a function'), UNAVAILABLE],
  ['anything else', 'thrown text', UNAVAILABLE],
])('%s', (_name, error, fault) => {
  expect(faultOf(error)).toEqual(fault);
});

it('only what the broker has refused for its content lets other batches follow on the same connection', () => {
  const ofRecords = Object.keys(FAULTS).filter((type) => FAULTS[type]?.of === 'record');

  expect(ofRecords).toEqual([
    'MESSAGE_TOO_LARGE',
    'RECORD_LIST_TOO_LARGE',
    'INVALID_RECORD',
    'INVALID_TIMESTAMP',
    'POLICY_VIOLATION',
    'UNSUPPORTED_FOR_MESSAGE_FORMAT',
  ]);
});

it('the text names the cause, without what was wrapped around it, and without secrets', () => {
  expect(faultText(givenUp(ofProtocol('MESSAGE_TOO_LARGE')), [])).toBe('MESSAGE_TOO_LARGE: said MESSAGE_TOO_LARGE');
  expect(faultText(new KafkaJSNonRetriableError('login of app with hunter2 refused'), ['hunter2', ''])).toBe(
    'login of app with [redacted] refused',
  );
  expect(faultText(new Error('at kafka://app:hunter3@host:9092'), [])).not.toContain('hunter3');
  expect(faultText('x'.repeat(5_000), []).length).toBeLessThan(2_100);
});
