import { newId } from '@runplane/contracts';
import type pg from 'pg';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { openPlainPool } from '../support/store';
import { claimTurnsOnce, COUNT_OUR_ROWS, TENANT, type ClaimedTurn } from './claimed-turns';
import { payloadOf } from './payload';

// What a careful programmer writes with pg: the same rows in the same tables behind the same lock, a transaction of prepared statements, one
// after the other. Epoch, state and producer sequence are judged on the locked row; the command is not looked up, nothing is redacted.

const LOCK_RUN = `SELECT project_id, session_id, partition_key, shard, last_event_seq, last_tx, last_producer_seq, claim_epoch, status
  FROM runplane.runs WHERE tenant_id = $1 AND id = $2 FOR NO KEY UPDATE`;
const INSERT_EVENT = `INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, command_id, is_output, producer_epoch, producer_seq, created_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now())`;
const UPDATE_RUN = `UPDATE runplane.runs SET last_event_seq = $3, last_producer_seq = $4, last_tx = greatest(last_tx, (pg_current_xact_id()::text::bigint + (SELECT tx_offset FROM runplane.store)))
  WHERE tenant_id = $1 AND id = $2 RETURNING last_tx`;
const INSERT_OUTBOX = `INSERT INTO runplane.outbox_events (tx, shard, partition_key, tenant_id, stream, stream_id, sequence, type,
    project_id, session_id, run_id, command_id, event_id, data, created_at)
  VALUES ($1, $2, $3, $4, 'run', $5, $6, $7, $8, $9, $5, $10, $11, $12, now())`;

interface LockedRun {
  readonly project_id: string;
  readonly session_id: string | null;
  readonly partition_key: string;
  readonly shard: number;
  readonly last_event_seq: string;
  readonly last_producer_seq: number;
  readonly claim_epoch: number;
  readonly status: string;
}

export async function prepareHand({ url, admin, callers }: CaseSetting): Promise<AppendCase> {
  const pool = openPlainPool(url, callers);
  const turns = await claimTurnsOnce(url, callers);
  return {
    callers: turns.map((turn) => {
      let producerSequence = 0;
      return () => append(pool, turn, (producerSequence += 1));
    }),
    rowsWritten: () => countRows(admin, COUNT_OUR_ROWS, [turns.map((turn) => turn.runId)]),
    close: () => pool.end(),
  };
}

async function append(pool: pg.Pool, { runId, commandId, epoch }: ClaimedTurn, producerSequence: number): Promise<void> {
  const client = await pool.connect();
  try {
    await client.query({ name: 'begin', text: 'BEGIN' });
    const locked = await client.query<LockedRun>({ name: 'lock-run', text: LOCK_RUN, values: [TENANT, runId] });
    const run = locked.rows[0];
    if (run?.claim_epoch !== epoch || run.status !== 'claimed' || run.last_producer_seq !== producerSequence - 1)
      throw new Error('refused');
    const seq = Number(run.last_event_seq) + 1;
    const eventId = newId('evt');
    const payload = JSON.stringify(payloadOf(commandId));
    const event = [TENANT, runId, seq, eventId, 'assistant_message', payload, commandId, true, epoch, producerSequence];
    await client.query({ name: 'insert-event', text: INSERT_EVENT, values: event });
    const updated = await client.query<{ last_tx: string }>({
      name: 'update-run',
      text: UPDATE_RUN,
      values: [TENANT, runId, seq, producerSequence],
    });
    const record = [
      updated.rows[0]?.last_tx,
      run.shard,
      run.partition_key,
      TENANT,
      runId,
      seq,
      'assistant_message',
      run.project_id,
      run.session_id,
      commandId,
      eventId,
      payload,
    ];
    await client.query({ name: 'insert-outbox', text: INSERT_OUTBOX, values: record });
    await client.query({ name: 'commit', text: 'COMMIT' });
    client.release();
  } catch (error) {
    client.release(error as Error);
    throw error;
  }
}
