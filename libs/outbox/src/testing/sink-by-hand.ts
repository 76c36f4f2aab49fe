import type { Db } from '@runplane/database';
import { waitForHorizon } from '@runplane/database/testing';
import { relayPass } from '../relay/pass';
import { registerSinks } from '../relay/register-sinks';
import { keepShards } from '../relay/shard.sql';
import { SinkSettings, type Sink } from '../relay/sink';
import { createMemorySink, type MemorySink, type MemorySinkOptions } from './memory-sink';

export interface SinkByHand {
  readonly sink: Sink;
  readonly memory: MemorySink;
  /** One pass over all shards, behind what is committed now. */
  pass(): ReturnType<typeof relayPass>;
  /** One that does not wait for transactions that are open. */
  passNow(): ReturnType<typeof relayPass>;
  /** The sequences that have arrived of a stream. */
  arrived(streamId: string): number[];
}

/** A sink in memory that begins now, and parks what it refuses; one owner relays to it, pass by pass. */
export async function aSinkByHand(
  db: Db,
  { name, tenants, owner = 'relay', ...options }: { name: string; tenants?: string[]; owner?: string } & MemorySinkOptions,
): Promise<SinkByHand> {
  const memory = createMemorySink(options);
  const limits = { backOffMs: 1, backOffMaxMs: 1, attemptsMax: 1 };
  const settings = SinkSettings.parse({ topic: 'events', filter: tenants === undefined ? {} : { tenants }, limits });
  const sink: Sink = { ...settings, name, kind: 'memory', publisher: memory.publisher() };
  await waitForHorizon(db);
  await registerSinks(db, [sink]);
  const { shards } = await keepShards(db.lane, { sink: name, owner, leaseMs: 60_000 });
  const passNow = () => relayPass(db, sink, { owner, shards });
  return {
    sink,
    memory,
    pass: async () => {
      await waitForHorizon(db);
      return passNow();
    },
    passNow,
    arrived: (streamId) => memory.arrived.filter((record) => record.streamId === streamId).map(({ sequence }) => sequence),
  };
}
