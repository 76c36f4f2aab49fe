import { OUTBOX_SHARDS } from '@runplane/contracts';
import { registerSinks } from '@runplane/outbox';
import type { Db } from '@runplane/database';
import type pg from 'pg';

// An outbox with a long backlog: a sink that has got nothing of it and refuses much, one that has got everything, and readers that stand far behind.

export const STUCK = 'stuck';
export const WELL = 'well';
const CHUNK_ROWS = 1_000_000;
/** Of the store's numbers, far above those of the rows. */
const OFFSET = 1_000_000_000;

/** A hundred events of each key, ten of a transaction; the first tenth is held, behind keys of which half are parked. */
export async function loadBacklog({ db, admin }: { db: Db; admin: pg.Pool }, rows: number, say: (line: string) => void): Promise<void> {
  await admin.query('UPDATE runplane.store SET tx_offset = $1', [OFFSET]);
  await registerSinks(
    db,
    [STUCK, WELL].map((name) => ({ name, kind: 'bench', start: 'now' })),
  );
  // A multiple of the shards: each key keeps its own.
  const keys = OUTBOX_SHARDS * Math.max(4, Math.floor(rows / 3_200));
  for (let from = 1; from <= rows; from += CHUNK_ROWS) {
    await admin.query(
      `INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type, event_id, data, created_at)
       SELECT i / 10, i % ${OUTBOX_SHARDS}, 'acme/r' || i % $3::int, 'acme', 'run', 'r' || i % $3::int, i / $3::int + 1, 'assistant_message', 'e' || i, '{"text":"x"}',
         now() - interval '1 day' FROM generate_series($1::int, $2::int) i`,
      [from, Math.min(rows, from + CHUNK_ROWS - 1), keys],
    );
    say(`${Math.min(rows, from + CHUNK_ROWS - 1)} rows`);
  }
  await admin.query(
    `INSERT INTO runplane.outbox_held (sink, shard, partition_key, tx, position, held_at)
     SELECT $1, shard, partition_key, tx, position, now() - interval '1 hour' FROM runplane.outbox_events WHERE tx <= $2`,
    [STUCK, Math.ceil(rows / 100)],
  );
  await admin.query(
    `INSERT INTO runplane.outbox_blocked_keys (sink, shard, partition_key, tx, position, attempts, ready_at, parked_at, reason, last_error)
     SELECT DISTINCT ON (shard, partition_key) sink, shard, partition_key, tx, position, 3, now(), CASE WHEN position % 2 = 0 THEN now() END, 'invalid', 'no'
     FROM runplane.outbox_held ORDER BY shard, partition_key, tx, position`,
  );
  await admin.query(`UPDATE runplane.outbox_shards SET tx = 0, position = 0 WHERE sink = $1`, [STUCK]);
  await admin.query(
    `UPDATE runplane.outbox_shards SET tx = $2, position = (SELECT max(position) FROM runplane.outbox_events) WHERE sink = $1`,
    [WELL, Math.ceil(rows / 10)],
  );
  await admin.query(
    `INSERT INTO runplane.feed_consumers (scope, name, tx, position) SELECT '*', 'reader-' || i, 0, 0 FROM generate_series(1, 20) i`,
  );
  await admin.query('VACUUM ANALYZE');
}
