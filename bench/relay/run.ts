import { startEmbeddedKafka } from '@runplane/outbox/embedded-kafka';
import { quantile } from '../support/measure';
import type { Expectation } from '../support/result';
import { describeMachine, startBenchStore } from '../support/store';
import type { Drain, DrainSetting } from './drain';
import { TOPIC } from './events';
import { prepareRelay, WRITERS, type Writer } from './ours';
import { preparePgTransactionalOutbox } from './pg-transactional-outbox';
import { preparePublisher } from './publisher';
import { prepareRawProducer } from './raw-producer';

interface Contender {
  readonly prepare: (setting: DrainSetting, batch: number) => Promise<Drain>;
  /** Tried first, on fewer events; the fastest is measured. Of the relay: events of a shard in a pass. */
  readonly batches: readonly number[];
  /** Of what is drained, for a case that would take too long over all of it. */
  readonly part: number;
}

const CASES: Readonly<Record<string, Contender>> = {
  raw: { prepare: prepareRawProducer, batches: [300, 1_000, 3_000, 10_000], part: 1 },
  publisher: { prepare: preparePublisher, batches: [1_000, 3_000, 10_000], part: 1 },
  relay: { prepare: prepareRelay, batches: [100, 300, 1_000], part: 1 },
  peer: { prepare: preparePgTransactionalOutbox, batches: [20, 100], part: 1 / 250 },
};
export const RELAY_CASES = Object.keys(CASES);
const PARTITIONS = 3;
/** So that no case meets the limit of the topic before its best size. */
const BATCH_BYTES_MAX = 32 * 1024 * 1024;
/** The first of what a case does after its set-up is not counted: connections, plans, the compiler. */
const PROBE_PART = 1 / 5;

export interface RelayBench {
  readonly events: number;
  readonly rounds: number;
  readonly cases?: readonly string[] | undefined;
  readonly compression: 'none' | 'gzip';
  /** Of the delay's measurement; 0 leaves it out. */
  readonly seconds: number;
  readonly say: (line: string) => void;
}

export interface RelayResult {
  readonly case: string;
  readonly batch: number;
  readonly perSecond: number;
  /** Against the raw producer's. */
  readonly ratio: number;
}

/** From the answer of an append to the broker's acknowledgement, at 100 events a second. */
export interface RelayDelay {
  /** Where it appends, seen from the relay. */
  readonly writer: Writer;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export interface RelayReport {
  readonly results: readonly RelayResult[];
  readonly delays: readonly RelayDelay[];
}

/** Brings the same events into Kafka in several ways, each at its own best batch size. Needs what `npm run test:kafka` needs. */
export async function runRelayBench({ events, rounds, cases, compression, seconds, say }: RelayBench): Promise<RelayReport> {
  const store = await startBenchStore();
  const kafka = await startEmbeddedKafka().catch(async (error: unknown) => {
    await store.stop();
    throw error;
  });
  try {
    await kafka.createTopic(TOPIC, { partitions: PARTITIONS, config: { 'max.message.bytes': String(BATCH_BYTES_MAX) } });
    say(await describeMachine(store.admin));
    say(`Apache Kafka on the same machine, ${PARTITIONS} partitions, one replica, compression ${compression}`);
    const setting = { kafka, store, compression };
    const chosen = Object.entries(CASES).filter(([name]) => cases?.includes(name) ?? true);
    const best: { name: string; batch: number; contender: Contender }[] = [];
    for (const [name, contender] of chosen)
      best.push({ name, contender, batch: await bestBatch(name, contender, setting, { events, say }) });

    const rates = new Map<string, number[]>();
    for (let round = 1; round <= rounds; round += 1) {
      for (const { name, batch, contender } of best) {
        const rate = await measure(contender, batch, setting, events * contender.part);
        rates.set(name, [...(rates.get(name) ?? []), rate]);
        say(`round ${round} of ${rounds}: ${name}, ${rate.toFixed(0)} events/s`);
      }
    }
    const rateOf = (name: string): number => quantile(rates.get(name) ?? [], 0.5);
    const results = best.map(({ name, batch }) => ({
      case: name,
      batch,
      perSecond: Math.round(rateOf(name)),
      ratio: Number((rateOf(name) / rateOf('raw')).toFixed(3)),
    }));
    const ofRelay = best.find(({ name }) => name === 'relay');
    return {
      results,
      delays: ofRelay === undefined || seconds === 0 ? [] : await measureDelays(setting, { batch: ofRelay.batch, rounds, seconds, say }),
    };
  } finally {
    await kafka.close();
    await store.stop();
  }
}

async function bestBatch(
  name: string,
  contender: Contender,
  setting: DrainSetting,
  { events, say }: { events: number; say: (line: string) => void },
): Promise<number> {
  let best = { batch: 0, rate: 0 };
  for (const batch of contender.batches) {
    const rate = await measure(contender, batch, setting, events * contender.part * PROBE_PART);
    say(`${name}, batches of ${batch}: ${rate.toFixed(0)} events/s`);
    if (rate > best.rate) best = { batch, rate };
  }
  return best.batch;
}

/** Events per second. */
async function measure({ prepare }: Contender, batch: number, setting: DrainSetting, count: number): Promise<number> {
  const drain = await prepare(setting, batch);
  try {
    await drain.run(Math.ceil(count * PROBE_PART));
    const whole = Math.ceil(count);
    return (whole * 1_000) / (await drain.run(whole));
  } finally {
    await drain.close();
  }
}

async function measureDelays(
  setting: DrainSetting,
  { batch, rounds, seconds, say }: { batch: number } & Pick<RelayBench, 'rounds' | 'seconds' | 'say'>,
): Promise<RelayDelay[]> {
  const relay = await prepareRelay(setting, batch);
  const found = WRITERS.map((writer) => ({ writer, delays: [] as number[] }));
  try {
    for (let round = 1; round <= rounds; round += 1) {
      for (const { writer, delays } of found) {
        if (round === 1) await relay.delays(writer, { perSecond: 100, seconds: 2 });
        const ofRound = await relay.delays(writer, { perSecond: 100, seconds });
        delays.push(...ofRound);
        say(`round ${round} of ${rounds}: delay, writer in ${writer}, p50 ${quantile(ofRound, 0.5).toFixed(1)} ms`);
      }
    }
    return found.map(({ writer, delays }) => ({
      writer,
      p50Ms: Number(quantile(delays, 0.5).toFixed(1)),
      p99Ms: Number(quantile(delays, 0.99).toFixed(1)),
    }));
  } finally {
    await relay.close();
  }
}

/** What the project promises of the relay; of cases that have run. */
export function relayExpectations({ results, delays }: RelayReport): Expectation[] {
  const rateOf = (name: string): number => results.find((result) => result.case === name)?.perSecond ?? Number.NaN;
  return [
    { what: 'the relay against the raw producer', atLeast: 0.5, found: rateOf('relay') / rateOf('raw') },
    { what: 'the relay against pg-transactional-outbox', atLeast: 1, found: rateOf('relay') / rateOf('peer') },
    ...delays.map(({ writer, p50Ms }) => ({
      what: `delay from commit to broker at 100 events/s, writer in ${writer}, p50 in ms`,
      atMost: 20,
      found: p50Ms,
    })),
  ].filter(({ found }) => !Number.isNaN(found));
}
