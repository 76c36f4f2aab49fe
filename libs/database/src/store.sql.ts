import { z } from 'zod';
import { column, maybeRow, oneRow } from './rows';
import { sql, type SqlExecutor } from './sql';

export const Store = z.object({ storeId: column.text, txOffset: column.bigint, systemIdentifier: column.text, timeline: column.int });
export type Store = z.infer<typeof Store>;

const columns = sql`store_id AS "storeId", tx_offset::text AS "txOffset", system_identifier AS "systemIdentifier", timeline`;

export const Cluster = Store.pick({ systemIdentifier: true, timeline: true });
export type Cluster = z.infer<typeof Cluster>;

/** Which cluster answers, and which of its histories: a promotion starts a new timeline. (The control file learns of it only at the next checkpoint.) */
export function readCluster(on: SqlExecutor): Promise<Cluster> {
  return oneRow(
    on,
    Cluster,
    sql`SELECT system_identifier::text AS "systemIdentifier",
               ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int AS timeline
          FROM pg_control_system()`,
  );
}

export function findStore(on: SqlExecutor): Promise<Store | undefined> {
  return maybeRow(on, Store, sql`SELECT ${columns} FROM runplane.store`);
}

/** Waits for every open writer of numbered rows, events and changes of sessions and queue tasks, and keeps new ones out until COMMIT. */
export async function lockOutbox(on: SqlExecutor): Promise<void> {
  await on.query(sql`LOCK TABLE runplane.outbox_events IN EXCLUSIVE MODE`);
  await on.query(sql`LOCK TABLE runplane.sessions IN SHARE ROW EXCLUSIVE MODE`);
  await on.query(sql`LOCK TABLE runplane.queue_tasks IN SHARE ROW EXCLUSIVE MODE`);
}

/** Above every number ever stored, and by 2^32 above readers that stand at a horizon beyond the last stored one. */
export async function writeRebasedStore(on: SqlExecutor, cluster: Cluster): Promise<void> {
  await on.query(
    sql`UPDATE runplane.store
           SET tx_offset = greatest(
                 tx_offset,
                 (SELECT max(tx) FROM runplane.outbox_events),
                 (SELECT max(tx) FROM runplane.outbox_floor),
                 (SELECT max(tx) FROM runplane.feed_consumers),
                 (SELECT max(last_tx) FROM runplane.runs),
                 (SELECT max(last_tx) FROM runplane.sessions),
                 (SELECT max(last_tx) FROM runplane.session_heads),
                 (SELECT max(changed_tx) FROM runplane.queue_tasks)) + 4294967296,
               system_identifier = ${cluster.systemIdentifier}::text,
               timeline = ${cluster.timeline}::int`,
  );
}
