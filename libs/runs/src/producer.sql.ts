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

export type ProducerState = z.infer<typeof StateRow>;

/** What an append's guards look at, read again to say which of them refused. */
export function findProducerState(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<ProducerState | undefined> {
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

/** Which of the runs there are, as `<tenant>/<run>`. */
export async function listExistingRuns(on: SqlExecutor, keys: readonly RunKey[]): Promise<ReadonlySet<string>> {
  const found = await rows(
    on,
    z.object({ name: column.text }),
    sql`SELECT w.tenant_id || '/' || w.id AS "name" FROM unnest(${keys.map((key) => key.tenantId)}::text[], ${keys.map((key) => key.runId)}::text[]) AS w (tenant_id, id)
        WHERE EXISTS (SELECT FROM runplane.runs r WHERE r.tenant_id = w.tenant_id AND r.id = w.id)`,
  );
  return new Set(found.map((row) => row.name));
}
