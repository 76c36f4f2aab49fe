import { randomUUID } from 'node:crypto';
import type { AdmitTurn, AdmittedTurn, ClaimedRun, CreateRun, NewRunEvent, Run } from '@runplane/contracts';
import { ensureTenant, inTransaction, sql, type Db } from '@runplane/database';
import { admitTurn } from '../admit-turn';
import { claimRun } from '../claim-run';
import { createRun } from '../create-run';

export { countLiveRuns } from '../runner-slot.sql';

// Builders for tests: each fills what the state requires, a test sets only what it is about.

export const TENANT = 'acme';

const PLAIN_RUN = { projectId: 'p1', backendProfile: 'demo' };

type PlainRun = Omit<CreateRun, 'sessionRef'>;

export const newRun = (over: Partial<PlainRun> = {}): PlainRun => ({ ...PLAIN_RUN, ...over });

export const newTurn = (text = 'hello', over: Partial<AdmitTurn<'reject'>> = {}): AdmitTurn<'reject'> => ({
  run: PLAIN_RUN,
  payload: { text },
  ...over,
});

export const message = (text: string): NewRunEvent => ({ type: 'assistant_message', payload: { text } });

/** The tenants that tests use. */
export async function makeTenants(db: Db, ...ids: string[]): Promise<void> {
  for (const id of [TENANT, ...ids]) await ensureTenant(db.sql, id);
}

export async function aRun(db: Db, over: Partial<CreateRun> = {}): Promise<Run> {
  const { run } = await inTransaction(db, (tx) => createRun(tx, { tenantId: TENANT, run: { ...PLAIN_RUN, ...over } }));
  return run;
}

export async function aTurn(db: Db, sessionId = `s-${randomUUID()}`, over: Partial<AdmitTurn<'reject'>> = {}): Promise<AdmittedTurn> {
  const turn = newTurn('hello', over);
  return inTransaction(db, (tx) => admitTurn(tx, { tenantId: TENANT, sessionId, turn, idempotencyKey: randomUUID() }));
}

export const aRunner = (): string => `runner-${randomUUID()}`;

export async function aClaimedRun(db: Db, over: Partial<CreateRun> = {}): Promise<ClaimedRun> {
  const run = await aRun(db, over);
  return claimRun(db, { tenantId: TENANT, runId: run.id, runnerId: aRunner() });
}

export async function aClaimedTurn(
  db: Db,
  sessionId?: string,
  over: Partial<AdmitTurn<'reject'>> = {},
): Promise<AdmittedTurn & { epoch: number }> {
  const turn = await aTurn(db, sessionId, over);
  const { epoch } = await claimRun(db, { tenantId: TENANT, runId: turn.run.id, runnerId: aRunner() });
  return { ...turn, epoch };
}

/** Lets a lease end now, as time would. */
export async function endLease(db: Db, runId: string): Promise<void> {
  await db.sql.query(
    sql`UPDATE runplane.run_leases SET expires_at = runplane.app_now() - interval '1 second' WHERE run_id = ${runId}::text`,
  );
}

/** Lets a deadline of a run or command pass now, as time would. */
export async function passDeadlines(db: Db, runId: string): Promise<void> {
  await db.sql
    .query(sql`UPDATE runplane.runs SET claim_deadline_at = claim_deadline_at - interval '1 day', cancel_deadline_at = cancel_deadline_at - interval '1 day'
    WHERE id = ${runId}::text`);
  await db.sql.query(
    sql`WITH r AS MATERIALIZED (SELECT tenant_id, id FROM runplane.runs WHERE id = ${runId}::text FOR NO KEY UPDATE)
        UPDATE runplane.commands c SET cancel_deadline_at = c.cancel_deadline_at - interval '1 day' FROM r WHERE c.tenant_id = r.tenant_id AND c.run_id = r.id`, // the commands of a run are locked under its lock
  );
}

/** Lets a run's time be over now. */
export async function endDuration(db: Db, runId: string): Promise<void> {
  await db.sql.query(
    sql`UPDATE runplane.runs SET duration_deadline_at = runplane.app_now() - interval '1 second' WHERE id = ${runId}::text`,
  );
}

/** Types of a run's events in order; of backend_status its phase. */
export async function story(db: Db, runId: string): Promise<string[]> {
  const found = await db.sql.query(sql`SELECT CASE WHEN type = 'backend_status' THEN payload ->> 'phase' ELSE type END AS "what"
    FROM runplane.run_events WHERE run_id = ${runId}::text ORDER BY seq`);
  return found.map((row) => String(row['what']));
}
