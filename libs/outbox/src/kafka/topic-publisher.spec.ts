import type { PublishOutcome, PublishRecord } from '../publisher';
import { CallTime } from './call-time';
import { KafkaOptions } from './kafka-options';
import type { KafkaMessage } from './kafka-message';
import { TopicPublisher, type Connection } from './topic-publisher';

/** What the broker answers to a batch: undefined takes it, `hangs` never answers, anything else is the name of an error. */
type Answer = string | undefined;

/** A broker in memory with one or more partitions: answers as it is told, and keeps what it took, per producer. */
function aBroker({
  partitions = 1,
  answer,
  opens,
}: {
  partitions?: number;
  answer: (values: string[]) => Answer;
  opens?: (connection: number) => Answer;
}) {
  const log: string[] = [];
  const tries: string[] = [];
  let connections = 0;
  let inFlight = 0;
  let inFlightMax = 0;
  const newConnection = (): Connection => {
    const number = (connections += 1);
    let giveUp: (error: Error) => void = () => undefined;
    const gone = new Promise<never>((_, reject) => (giveUp = reject));
    gone.catch(() => undefined);
    const connection = {
      destroyed: false,
      partitions,
      open: async () => throwOf(opens?.(number)),
      refreshPartitions: async () => undefined,
      send: async (_partition: number, messages: readonly KafkaMessage[]) => {
        const values = messages.map(({ value }) => value.toString());
        tries.push(`${number}: ${values.join(' ')}`);
        inFlightMax = Math.max(inFlightMax, (inFlight += 1));
        try {
          const said = answer(values);
          if (said === 'hangs') await gone;
          throwOf(said);
          log.push(...values);
        } finally {
          inFlight -= 1;
        }
      },
      destroy: () => {
        connection.destroyed = true;
        giveUp(new Error('the connection was given up'));
      },
    };
    return connection;
  };
  return { newConnection, log, tries, inFlightMax: () => inFlightMax };
}
function throwOf(type: Answer): void {
  if (type !== undefined) throw Object.assign(new Error('said the broker'), { type });
}

const record = (partitionKey: string, value: string): PublishRecord => ({
  place: { tx: 1n, position: 1n },
  topic: 'events',
  partitionKey,
  stream: 'session',
  streamId: 's',
  sequence: 0,
  eventId: value,
  type: 't',
  tenantId: 'acme',
  projectId: null,
  sessionId: 's',
  runId: null,
  commandId: null,
  data: value,
  time: '2026-11-29T23:00:00.123Z',
});
/** `a1 b1 a2`: the letter is the key. */
const recordsOf = (text: string): PublishRecord[] => text.split(' ').map((value) => record(value.slice(0, 1), value));
const told = (outcomes: readonly PublishOutcome[]) => outcomes.map((o) => ('reason' in o ? `${o.kind} ${o.reason}` : o.kind));

function openTopic(broker: { newConnection: () => Connection }) {
  const publisher = new TopicPublisher(KafkaOptions.parse({ brokers: ['127.0.0.1:1'] }), broker.newConnection);
  const publish = async (text: string, { timeoutMs = 5_000, signal }: { timeoutMs?: number; signal?: AbortSignal } = {}) => {
    const time = new CallTime({ timeoutMs, signals: [signal] });
    return told(await publisher.publish(recordsOf(text), time).finally(() => time.end()));
  };
  return { publish, publisher };
}

it('a batch is halved until the record that is to blame stands alone; its key stops, the others go on', async () => {
  const broker = aBroker({ answer: (values) => (values.includes('b1') ? 'INVALID_RECORD' : undefined) });

  const outcomes = await openTopic(broker).publish('a1 b1 c1 a2 b2 c2');

  expect(outcomes).toEqual(['sent', 'refused invalid', 'sent', 'sent', 'skipped', 'sent']);
  expect(broker.log).toEqual(['a1', 'c1', 'a2', 'c2']);
  expect(new Set(broker.tries.map((line) => line[0]))).toEqual(new Set(['1'])); // a refusal costs no connection
});

it('a batch has at most 500 records, however small they are', async () => {
  const broker = aBroker({ answer: () => undefined });

  await openTopic(broker).publish(Array.from({ length: 1_001 }, () => 'a1').join(' '));

  expect(broker.tries.map((values) => values.split(' ').length - 1)).toEqual([500, 500, 1]);
});

it('a topic that takes less gets smaller batches from then on', async () => {
  const broker = aBroker({ answer: (values) => (values.length > 2 ? 'MESSAGE_TOO_LARGE' : undefined) });
  const { publish } = openTopic(broker);
  await publish('a1 a2 a3 a4 a5 a6 a7 a8');
  const tries = broker.tries.length;

  await publish('a9 a9 a9 a9 a9 a9 a9 a9');

  expect(broker.tries.slice(tries)).toEqual(Array.from({ length: 4 }, () => '1: a9 a9'));
});

/** Says the first ones in turn, then takes everything. */
const first =
  (...answers: Answer[]) =>
  () =>
    answers.shift();

it('a batch whose answer got lost is repeated as it is, on its connection', async () => {
  const broker = aBroker({ answer: first('REQUEST_TIMED_OUT', 'NOT_LEADER_FOR_PARTITION') });

  expect(await openTopic(broker).publish('a1 a2')).toEqual(['sent', 'sent']);
  expect(broker.tries).toEqual(['1: a1 a2', '1: a1 a2', '1: a1 a2']);
});

it.each(['OUT_OF_ORDER_SEQUENCE_NUMBER', 'UNKNOWN_PRODUCER_ID'])(
  '%s fails the call, and the next one finds a new producer',
  async (type) => {
    const broker = aBroker({ answer: first(undefined, type) });
    const { publish } = openTopic(broker);
    await publish('a1');

    expect(await publish('a2 b1 a3')).toEqual(['failed unavailable', 'failed unavailable', 'failed unavailable']);
    expect(await publish('a2 b1 a3')).toEqual(['sent', 'sent', 'sent']);
    expect(broker.tries).toEqual(['1: a1', '1: a2 b1 a3', '2: a2 b1 a3']);
  },
);

it('a batch that is given up takes its connection with it: under its producer another one would pass for it', async () => {
  const broker = aBroker({ answer: first('hangs') });
  const { publish } = openTopic(broker);

  expect(await publish('a1 a2', { timeoutMs: 20 })).toEqual(['failed timed_out', 'failed timed_out']);
  expect(await publish('a2 a3')).toEqual(['sent', 'sent']);
  expect(broker.tries).toEqual(['1: a1 a2', '2: a2 a3']);
});

it('a broker that cannot be reached, or does not know us, fails the call at once; a later one tries again', async () => {
  const broker = aBroker({
    answer: () => undefined,
    opens: (connection) => ['NETWORK_EXCEPTION', 'SASL_AUTHENTICATION_FAILED'][connection - 1],
  });
  const { publish } = openTopic(broker);

  expect(await publish('a1')).toEqual(['failed unavailable']);
  expect(await publish('a1')).toEqual(['failed credentials']);
  expect(await publish('a1')).toEqual(['sent']);
});

it('a topic is unknown when it was looked for twice', async () => {
  let looks = 0;
  const broker = aBroker({ answer: () => undefined, opens: () => ((looks += 1) === 2 ? undefined : 'UNKNOWN_TOPIC_OR_PARTITION') });

  expect(await openTopic(broker).publish('a1')).toEqual(['sent']);
  expect(await openTopic(aBroker({ answer: () => undefined, opens: () => 'UNKNOWN_TOPIC_OR_PARTITION' })).publish('a1 b1')).toEqual([
    'refused unknown_topic',
    'refused unknown_topic',
  ]);
});

it('a partition has one request in flight, however many calls there are; an abort ends its own at once', async () => {
  const broker = aBroker({ answer: first(undefined, 'hangs') });
  const { publish } = openTopic(broker);
  await publish('z1');
  const stop = new AbortController();

  const hanging = publish('a1', { signal: stop.signal });
  const behind = [publish('b1'), publish('c1')];
  const waiting = publish('d1', { timeoutMs: 5 });
  expect(await waiting).toEqual(['failed timed_out']); // in line, never tried
  stop.abort();

  expect(await hanging).toEqual(['failed stopped']);
  expect(await Promise.all(behind)).toEqual([['sent'], ['sent']]);
  expect(broker.inFlightMax()).toBe(1);
  expect(broker.tries).toEqual(['1: z1', '1: a1', '2: b1', '2: c1']);
});
