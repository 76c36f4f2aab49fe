import { on, type Plant } from '../world';

// What is relayed to a sink.

export const OF_RELAYS: readonly Plant[] = [
  {
    invariant: 'RELAY-1',
    says: /of acme\/x is held for sink planted above the cursor/,
    plant: async () => {
      await plantSink();
      await on.query(
        `INSERT INTO runplane.outbox_blocked_keys (sink, shard, partition_key, tx, position, ready_at) VALUES ('planted', 1, 'acme/x', 5, 5, now())`,
      );
      return on.query(`INSERT INTO runplane.outbox_held VALUES ('planted', 1, 'acme/x', 5, 5)`);
    },
  },
  {
    invariant: 'RELAY-1',
    says: /key acme\/x of sink planted is not blocked and has 1 held events/,
    plant: async () => {
      await plantSink();
      return on.query(`INSERT INTO runplane.outbox_held VALUES ('planted', 1, 'acme/x', 0, 0)`);
    },
  },
  {
    invariant: 'RELAY-1',
    says: /sink planted has 31 shards/,
    plant: async () => {
      await plantSink();
      return on.query(`DELETE FROM runplane.outbox_shards WHERE shard = 7`);
    },
  },
  {
    invariant: 'RELAY-1',
    says: /shard 7 of sink planted stands above the horizon/,
    plant: async () => {
      await plantSink();
      // The horizon is the whole server's: what other spec files end meanwhile moves it on.
      return on.query(`UPDATE runplane.outbox_shards SET tx = runplane.feed_horizon() + 1000000000 WHERE shard = 7`);
    },
  },
  {
    invariant: 'OWN-1',
    says: /shard 7 of sink planted is held under epoch 0/,
    plant: async () => {
      await plantSink();
      return on.query(`UPDATE runplane.outbox_shards SET owner = 'r', expires_at = now() WHERE shard = 7`);
    },
  },
];

async function plantSink(): Promise<void> {
  await on.query(`INSERT INTO runplane.outbox_sinks (name, kind) VALUES ('planted', 'memory')`);
  await on.query(
    `INSERT INTO runplane.outbox_shards (sink, shard, tx, position) SELECT 'planted', shard, 0, 0 FROM generate_series(0, 31) shard`,
  );
}
