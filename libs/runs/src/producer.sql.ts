import { RUN_STATES } from '@runplane/contracts';
import { column, maybeRow, rows, sql, type SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { RunKey } from './run.sql';

const StateRow = z.object({
  status: column.state(RUN_STATES),
  failureKind: column.text.nullable(),
  claimEpoch: column.int,
  lastProducerSeq: column.int,
});

/** What an append's guards look at, read again to say which of them refused. */
export function findProducerState(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<z.infer<typeof StateRow> | undefined> {
  return maybeRow(
    on,
    StateRow,
    sql`SELECT status::text AS "status", failure_kind AS "failureKind", claim_epoch AS "claimEpoch", last_producer_seq AS "lastProducerSeq"
        FROM runplane.runs WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text`,
  );
}

/** Those of the ids that are no command of the run. */
export async function listUnknownCommands(on: SqlExecutor, { tenantId, runId }: RunKey, commandIds: readonly string[]): Promise<string[]> {
  const found = await rows(
    on,
    z.object({ id: column.text }),
    sql`SELECT w.id AS "id" FROM unnest(${[...commandIds]}::text[]) AS w (id)
        WHERE NOT EXISTS (SELECT FROM runplane.commands c WHERE c.tenant_id = ${tenantId}::text AND c.run_id = ${runId}::text AND c.id = w.id)`,
  );
  return found.map((row) => row.id);
}
