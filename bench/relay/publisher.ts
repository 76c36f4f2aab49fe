import { openKafkaPublisher } from '@runplane/outbox/kafka';
import type { Drain, DrainSetting } from './drain';
import { recordsOf, someRuns } from './events';

/** The relay's publisher alone, from memory: what the way to the database adds to is seen beside it. */
export async function preparePublisher({ kafka, compression }: DrainSetting, batch: number): Promise<Drain> {
  const publisher = openKafkaPublisher({ brokers: [...kafka.brokers], compression });
  const runs = someRuns();
  return {
    async run(count) {
      const records = recordsOf(runs, count);
      const started = performance.now();
      for (let from = 0; from < count; from += batch) {
        const outcomes = await publisher.publish(records.slice(from, from + batch), { timeoutMs: 60_000 });
        const unsent = outcomes.find(({ kind }) => kind !== 'sent');
        if (unsent !== undefined) throw new Error(`not sent: ${JSON.stringify(unsent)}`);
      }
      return performance.now() - started;
    },
    close: () => publisher.close(),
  };
}
