import { randomUUID } from 'node:crypto';
import { ensureTenant, inTransaction, openDb, type Db } from '@runplane/database';
import { admitTurn, claimRun } from '@runplane/runs';

export const TENANT = 'bench';

export interface ClaimedTurn {
  readonly runId: string;
  readonly commandId: string;
  readonly sessionId: string;
  readonly epoch: number;
}

/** Turns in sessions of their own, each claimed by a runner: what a runner appends to. Its first events are those of admission and claim. */
export async function claimTurns(db: Db, count: number): Promise<ClaimedTurn[]> {
  await ensureTenant(db.sql, TENANT);
  const turns: ClaimedTurn[] = [];
  for (let i = 0; i < count; i += 1) {
    const sessionId = `s-${randomUUID()}`;
    const turn = { run: { projectId: 'bench', backendProfile: 'bench' }, payload: { text: 'go' }, dispatch: null };
    const { run, command } = await inTransaction(db, (tx) =>
      admitTurn(tx, { tenantId: TENANT, sessionId, turn, idempotencyKey: sessionId }),
    );
    const { epoch } = await claimRun(db, { tenantId: TENANT, runId: run.id, runnerId: `runner-${i}` });
    turns.push({ runId: run.id, commandId: command.id, sessionId, epoch });
  }
  return turns;
}

/** For the cases that write to our tables without the library. */
export async function claimTurnsOnce(url: string, count: number): Promise<ClaimedTurn[]> {
  const db = await openDb({ url, applicationName: 'bench-setup' });
  try {
    return await claimTurns(db, count);
  } finally {
    await db.close();
  }
}

/** Counts what stands behind the set-up's events. */
export const COUNT_OUR_ROWS = {
  'runplane.run_events': `SELECT count(*) AS n FROM runplane.run_events WHERE run_id = ANY ($1) AND type = 'assistant_message'`,
  'runplane.outbox_events': `SELECT count(*) AS n FROM runplane.outbox_events WHERE run_id = ANY ($1) AND type = 'assistant_message'`,
  'runplane.runs.last_event_seq': `SELECT sum(last_event_seq) - (SELECT count(*) FROM runplane.run_events WHERE run_id = ANY ($1) AND type <> 'assistant_message') AS n
    FROM runplane.runs WHERE id = ANY ($1)`,
};
