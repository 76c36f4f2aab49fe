import type { Publisher } from '@runplane/outbox';
import { readTopic } from '@runplane/outbox/embedded-kafka';
import { openKafkaPublisher, type KafkaOptions } from '@runplane/outbox/kafka';
import { aRecord, useKafka } from '../support/kafka';

const k = useKafka({ secure: true });
const open: Publisher[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((publisher) => publisher.close()));
});

const WRONG_PASSWORD = 'close-sesame-92';
type Mechanism = NonNullable<KafkaOptions['sasl']>['mechanism'];

/** Sends one record with this login and tells what became of it. */
async function publishAs(
  { mechanism = 'plain', wrong = false, trusting = true }: { mechanism?: Mechanism; wrong?: boolean; trusting?: boolean },
  topic = 'events',
) {
  const { secure } = k.broker;
  if (secure === undefined) throw new Error('the broker has a secure way in');
  const { brokers, ca, username, password } = secure;
  const sasl = { mechanism, username, password: wrong ? WRONG_PASSWORD : password };
  const publisher = openKafkaPublisher({ brokers: [...brokers], tls: trusting ? { ca } : true, sasl });
  open.push(publisher);
  const [outcome] = await publisher.publish([aRecord({ topic, partitionKey: 'acme/s1', sequence: 0 })], { timeoutMs: 20_000 });
  return outcome;
}

beforeAll(() => k.broker.createTopic('events'));

it.each<Mechanism>(['plain', 'scram-sha-256'])(
  '%s: with the right password events arrive; a wrong one is told as such, and is in no text',
  async (mechanism) => {
    const before = (await readTopic(k.broker.brokers, 'events')).length;

    expect(await publishAs({ mechanism })).toEqual({ kind: 'sent' });
    const refused = await publishAs({ mechanism, wrong: true });

    expect(await readTopic(k.broker.brokers, 'events')).toHaveLength(before + 1);
    expect(refused).toMatchObject({ kind: 'failed', reason: 'credentials' });
    expect(JSON.stringify(refused)).not.toContain(WRONG_PASSWORD);
  },
);

it('a mechanism that the broker does not have, and a certificate that nobody has signed, are a matter of credentials', async () => {
  expect(await publishAs({ mechanism: 'scram-sha-512' })).toMatchObject({ kind: 'failed', reason: 'credentials' });
  expect(await publishAs({ trusting: false })).toMatchObject({ kind: 'failed', reason: 'credentials' });
});

it('a topic to which this name may not write refuses its records, and no other topic’s', async () => {
  await k.broker.createTopic('private');
  await k.broker.denyWrite('private', 'app');

  expect(await publishAs({}, 'private')).toMatchObject({ kind: 'refused', reason: 'forbidden', final: false });
  expect(await publishAs({}, 'events')).toEqual({ kind: 'sent' });
});
