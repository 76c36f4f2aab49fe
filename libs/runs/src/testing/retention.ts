import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { ensureTenant, openDb, type Db } from '@runplane/database';
import { appendRunEvents } from '../append-run-events';
import type { ArchiveSink } from '../archive-sink';
import { claimRun } from '../claim-run';
import { createFolderArchive } from '../folder-archive';
import type { RetentionPass } from '../retention-pass';
import { createRuns } from '../runs';
import { message, newRun, newTurn } from '.';

/** What a test of retention works with; `tenantId` is another one in each test. */
export interface RetentionStage {
  tenantId: string;
  /** The store, forty days on. */
  later: Db;
  dir: string;
  archive: ArchiveSink;
}

/** What was refused, for `toMatchObject`. */
export const refusal = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    () => 'not refused',
    (error: unknown) => error,
  );

/** A folder for copies, a store handle that is ahead, a tenant for each test, and the builders of what is to be removed. */
export function useRetention(database: { readonly url: string; readonly db: Db }) {
  const stage = {} as RetentionStage;
  const completed = { terminalStatus: 'completed' } as const;
  let tenants = 0;
  beforeAll(async () => {
    const dir = await mkdtemp(path.join(os.tmpdir(), 'archive-'));
    Object.assign(stage, { dir, archive: createFolderArchive({ dir }), later: await dbAhead(40) });
  });
  afterAll(async () => {
    await stage.later.close();
    await rm(stage.dir, { recursive: true });
  });
  beforeEach(async () => {
    tenants += 1;
    stage.tenantId = `tenant-${tenants}`;
    await ensureTenant(database.db.sql, stage.tenantId);
  });

  /** A store handle whose database clock is days ahead. */
  function dbAhead(days: number): Promise<Db> {
    const url = new URL(database.url);
    url.searchParams.set('options', `-c runplane.fake_now=${new Date(Date.now() + days * 86_400_000).toISOString()}`);
    return openDb({ url: url.toString(), poolMax: 4, onError: () => undefined });
  }

  /** A pass forty days later, over runs that are to go after thirty. */
  const pass = (over: Partial<RetentionPass> = {}): RetentionPass => ({
    tenantId: stage.tenantId,
    archive: stage.archive,
    policy: { runsDays: 30 },
    ...over,
  });

  async function aClaimedRun(): Promise<{ runId: string; epoch: number }> {
    const { run } = await createRuns(database.db).createRun({ tenantId: stage.tenantId, run: newRun() });
    const { epoch } = await claimRun(database.db, { tenantId: stage.tenantId, runId: run.id, runnerId: 'r' });
    return { runId: run.id, epoch };
  }

  /** A run of no session that has ended behind `events` messages. */
  async function anEndedRun(events = 2): Promise<{ runId: string; epoch: number }> {
    const { runId, epoch } = await aClaimedRun();
    const batch = Array.from({ length: events }, (_, i) => message(`m${i}`));
    if (events > 0) await appendRunEvents(database.db, { tenantId: stage.tenantId, runId, epoch, producerSequence: 1, events: batch });
    await createRuns(database.db).finishRun({ tenantId: stage.tenantId, runId, epoch, outcome: completed });
    return { runId, epoch };
  }

  async function anEndedTurn(sessionId: string, key: string): Promise<{ runId: string; commandId: string }> {
    const runs = createRuns(database.db);
    const { run, command } = await runs.admitTurn({ tenantId: stage.tenantId, sessionId, turn: newTurn(), idempotencyKey: key });
    await runs.cancelRun({ tenantId: stage.tenantId, runId: run.id });
    return { runId: run.id, commandId: command.id };
  }

  const KINDS = {
    run: 'runs',
    command: 'commands',
    intent: 'dispatch_intents',
    'runner-job': 'runner_jobs',
    'cancel-request': 'cancel_requests',
    event: 'run_events',
  };

  /** Everything that stands of a run, as PostgreSQL writes its rows, in the order of an archive. */
  async function rowsOf(runId: string): Promise<Record<string, unknown[]>> {
    const found = Object.entries(KINDS).map(async ([kind, table]) => {
      const order = kind === 'event' || kind === 'command' ? 'seq' : 'id';
      const text = `SELECT to_json(x)::text AS row FROM runplane.${table} x WHERE ${kind === 'run' ? 'id' : 'run_id'} = $1 ORDER BY ${order}`;
      const { rows } = await database.db.pool.query<{ row: string }>(text, [runId]);
      return [kind, rows.map(({ row }) => JSON.parse(row) as unknown)];
    });
    return Object.fromEntries(await Promise.all(found)) as Record<string, unknown[]>;
  }

  const count = async (table: string, where = 'true'): Promise<number> =>
    (await database.db.pool.query(`SELECT FROM runplane.${table} WHERE ${where}`)).rowCount ?? 0;
  const runThere = (runId: string) => count('runs', `id = '${runId}'`);

  return { stage, dbAhead, pass, aClaimedRun, anEndedRun, anEndedTurn, rowsOf, count, runThere };
}
