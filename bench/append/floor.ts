import { newId } from '@runplane/contracts';
import { countRows, type AppendCase, type CaseSetting } from '../support/append-case';
import { openPlainPool } from '../support/store';
import { payloadOf } from './payload';

// The least that a durable event costs: one prepared INSERT of its row, committed by itself. No guard, no counter, no outbox; the caller
// numbers by itself.

const INSERT = `INSERT INTO bench_floor.run_events (tenant_id, run_id, seq, id, type, payload, command_id, is_output, producer_epoch, producer_seq, created_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, now())`;

export async function prepareFloor({ url, admin, callers }: CaseSetting): Promise<AppendCase> {
  await admin.query('CREATE SCHEMA IF NOT EXISTS bench_floor');
  await admin.query('CREATE TABLE IF NOT EXISTS bench_floor.run_events (LIKE runplane.run_events INCLUDING ALL)');
  const pool = openPlainPool(url, callers);
  const runs = Array.from({ length: callers }, () => ({ runId: newId('run'), commandId: newId('cmd') }));
  return {
    callers: runs.map(({ runId, commandId }) => {
      let seq = 0;
      return () => {
        seq += 1;
        const payload = JSON.stringify(payloadOf(commandId));
        return pool.query({
          name: 'floor',
          text: INSERT,
          values: ['bench', runId, seq, newId('evt'), 'assistant_message', payload, commandId, true, 1, seq],
        });
      };
    }),
    rowsWritten: () =>
      countRows(admin, { 'bench_floor.run_events': 'SELECT count(*) AS n FROM bench_floor.run_events WHERE run_id = ANY ($1)' }, [
        runs.map((run) => run.runId),
      ]),
    close: () => pool.end(),
  };
}
