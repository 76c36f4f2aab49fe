import {
  CommandNotFound,
  InvalidCursor,
  InvalidRequest,
  RunNotFound,
  SessionNotFound,
  type ListSessionEvents,
  type RunEvent,
} from '@runplane/contracts';
import { inTransaction, sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { appendRunEvents } from './append-run-events';
import { createCommand } from './create-command';
import { countRunEvents, listCommandEvents, listRunOutput, listSessionOutput, listSessionTrace } from './event-pages';
import { finishRun } from './finish-run';
import { listRunEvents } from './read-run-events';
import { aClaimedTurn, aRun, makeTenants, message, newTurn, TENANT } from './testing';
import { admitTurn } from './admit-turn';

// Long logs are rows by hand.
const t = useDatabase({ checkInvariants: false });
const tenantId = TENANT;

beforeAll(() => makeTenants(t.db, 'other'));

const typesOf = (events: readonly RunEvent[]) => events.map(({ type, payload }) => (type === 'backend_status' ? payload['phase'] : type));

interface Page {
  readonly events: RunEvent[];
  readonly cursor: string | null;
}

/** All pages of a list, one after the other. */
async function pages(read: (cursor: string | undefined) => Promise<Page>): Promise<RunEvent[][]> {
  const found: RunEvent[][] = [];
  for (let cursor: string | undefined; found.length < 100;) {
    const page = await read(cursor);
    found.push(page.events);
    if (page.cursor === null) return found;
    cursor = page.cursor;
  }
  throw new Error('no end after 100 pages');
}

/** Notes of a run that are no output, behind its log, and a message at the end of them. */
async function lengthen(runId: string, events: number): Promise<void> {
  await t.db.sql
    .query(sql`WITH r AS (UPDATE runplane.runs SET last_event_seq = last_event_seq + ${events}::int WHERE id = ${runId}::text RETURNING last_event_seq)
    INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output)
    SELECT ${tenantId}::text, ${runId}::text, r.last_event_seq - ${events}::int + i, 'long-' || ${runId}::text || r.last_event_seq || '-' || i,
      CASE WHEN i = ${events}::int THEN 'assistant_message' ELSE 'reasoning' END, '{"text":"x"}', i = ${events}::int FROM r, generate_series(1, ${events}::int) i`);
}

async function endedTurn(sessionId: string, say: string): Promise<string> {
  const turn = await aClaimedTurn(t.db, sessionId);
  const key = { tenantId, runId: turn.run.id, epoch: turn.epoch };
  await appendRunEvents(t.db, { ...key, events: [{ type: 'reasoning', payload: { text: 'hm' } }, message(say)] });
  await inTransaction(t.db, (tx) => finishRun(tx, { ...key, outcome: { terminalStatus: 'completed' } }));
  return turn.run.id;
}

describe('of a run', () => {
  test('output is what was said, whatever the page size; events are counted from any place', async () => {
    const runId = await endedTurn('s-output', 'hi');
    const log = await listRunEvents(t.db, { tenantId, runId, afterSeq: 0 });
    for (const limit of [1, 2, 3, 500]) {
      const found = await pages((cursor) => listRunOutput(t.db, { tenantId, runId, cursor, limit }));
      expect(typesOf(found.flat())).toEqual(['user_message', 'assistant_message', 'terminal_status']);
      expect(found).toHaveLength(Math.ceil(3 / limit));
    }
    expect(await countRunEvents(t.db, { tenantId, runId })).toEqual({ count: log.lastSeq });
    expect(await countRunEvents(t.db, { tenantId, runId, afterSeq: log.lastSeq - 2 })).toEqual({ count: 2 });
    expect(await countRunEvents(t.db, { tenantId, runId, afterSeq: 1_000_000 })).toEqual({ count: 0 });
    await t.db.sql.query(sql`UPDATE runplane.runs SET events_pruned_at = runplane.app_now() WHERE id = ${runId}::text`);
    await t.db.sql.query(sql`DELETE FROM runplane.run_events WHERE run_id = ${runId}::text`);
    expect(await countRunEvents(t.db, { tenantId, runId })).toEqual({ count: 0 });
    expect(await listRunOutput(t.db, { tenantId, runId })).toEqual({ events: [], cursor: null });
  });

  test('a page that finds little is short and goes on where it stood, to the very end', async () => {
    const { id: runId } = await aRun(t.db);
    await lengthen(runId, 10_001);
    await lengthen(runId, 25_000);
    const found = await pages((cursor) => listRunOutput(t.db, { tenantId, runId, cursor }));
    expect(found.map((events) => events.length)).toEqual([0, 1, 0, 1]);
    expect((await listRunOutput(t.db, { tenantId, runId, limit: 1 })).cursor).not.toBeNull();
  });

  test('what belongs to a command is its own, what names it as target, and the end of the run', async () => {
    const turn = await aClaimedTurn(t.db, 's-command');
    const key = { tenantId, runId: turn.run.id };
    const { command: note } = await inTransaction(t.db, (tx) => createCommand(tx, { ...key, command: { type: 'note', payload: {} } }));
    await appendRunEvents(t.db, {
      ...key,
      epoch: turn.epoch,
      events: [message('of nobody'), { type: 'assistant_message', payload: { text: 'of the note', commandId: note.id } }],
    });
    await t.db.sql
      .query(sql`WITH r AS (UPDATE runplane.runs SET last_event_seq = last_event_seq + 1 WHERE id = ${turn.run.id}::text RETURNING last_event_seq)
      INSERT INTO runplane.run_events (tenant_id, run_id, seq, id, type, payload, is_output)
      SELECT ${tenantId}::text, ${turn.run.id}::text, r.last_event_seq, 'steering', 'backend_status', json_build_object('phase', 'steer-missed', 'targetCommandId', ${note.id}::text), false FROM r`);
    await inTransaction(t.db, (tx) => finishRun(tx, { ...key, epoch: turn.epoch, outcome: { terminalStatus: 'completed' } }));

    const found = await pages((cursor) => listCommandEvents(t.db, { ...key, commandId: note.id, cursor, limit: 2 }));
    expect(typesOf(found.flat())).toEqual(['command-created', 'assistant_message', 'steer-missed', 'command-terminal', 'terminal_status']);
    await expect(listCommandEvents(t.db, { ...key, commandId: 'cmd_none' })).rejects.toThrow(CommandNotFound);
    const other = await aClaimedTurn(t.db, 's-command-2');
    await expect(listCommandEvents(t.db, { ...key, commandId: other.command.id })).rejects.toThrow(CommandNotFound);
  });

  test('large payloads end a page', async () => {
    const { run, epoch } = await aClaimedTurn(t.db, 's-large');
    const text = 'x'.repeat(1_000_000);
    for (let i = 0; i < 6; i += 1) await appendRunEvents(t.db, { tenantId, runId: run.id, epoch, events: [message(text)] });
    const sizes = (found: RunEvent[][]) => found.map((events) => events.length);
    expect(sizes(await pages((cursor) => listRunOutput(t.db, { tenantId, runId: run.id, cursor })))).toEqual([6, 1]);
    expect(sizes(await pages((cursor) => listSessionOutput(t.db, { tenantId, sessionId: 's-large', cursor })))).toEqual([6, 1]);
  });

  test('is its tenant’s alone; cursors are of one list; bad input is refused', async () => {
    const runId = await endedTurn('s-tenant', 'hi');
    const foreign = { tenantId: 'other', runId };
    await expect(countRunEvents(t.db, foreign)).rejects.toThrow(RunNotFound);
    await expect(listRunOutput(t.db, foreign)).rejects.toThrow(RunNotFound);
    await expect(listCommandEvents(t.db, { ...foreign, commandId: 'c' })).rejects.toThrow(RunNotFound);
    await expect(listSessionTrace(t.db, { tenantId: 'other', sessionId: 's-tenant' })).rejects.toThrow(SessionNotFound);
    const { cursor } = await listRunOutput(t.db, { tenantId, runId, limit: 1 });
    const another = await endedTurn('s-tenant', 'hi');
    await expect(listRunOutput(t.db, { tenantId, runId: another, cursor: cursor ?? '' })).rejects.toThrow(InvalidCursor);
    await expect(listRunOutput(t.db, { tenantId, runId, limit: 501 })).rejects.toThrow(InvalidRequest);
    await expect(countRunEvents(t.db, { tenantId, runId, afterSeq: 0.5 })).rejects.toThrow(InvalidRequest);
    await expect(listSessionTrace(t.db, { tenantId, sessionId: 's-tenant', runs: 'all', runId })).rejects.toThrow(InvalidRequest);
  });
});

describe('of a session', () => {
  const ofAll = (sessionId: string, list: typeof listSessionTrace, over: ListSessionEvents = {}) =>
    pages((cursor) => list(t.db, { tenantId, sessionId, runs: 'all', ...over, cursor })).then((found) => found.flat());

  test('all runs come in their order, each log in its own, whatever the page size', async () => {
    const sessionId = 's-all';
    const runIds = [await endedTurn(sessionId, 'one'), await endedTurn(sessionId, 'two'), (await aClaimedTurn(t.db, sessionId)).run.id];
    const logs = await Promise.all(runIds.map((runId) => listRunEvents(t.db, { tenantId, runId, afterSeq: 0, limit: 500 })));
    const whole = logs.flatMap(({ events }) => events);
    for (const limit of [1, 4, 7, 500]) {
      expect(await ofAll(sessionId, listSessionTrace, { limit })).toEqual(whole);
      const output = await ofAll(sessionId, listSessionOutput, { limit });
      expect(typesOf(output)).toEqual(
        [...Array(2).fill(['user_message', 'assistant_message', 'terminal_status']), ['user_message']].flat(),
      );
    }
  });

  test('of one run, the named, the active or the last is shown, and later pages stay with it', async () => {
    const sessionId = 's-one';
    const first = await endedTurn(sessionId, 'one');
    expect(await listSessionTrace(t.db, { tenantId, sessionId, limit: 1 })).toMatchObject({
      sessionId,
      runId: first,
      events: [{ runId: first, seq: 1 }],
    });
    const { cursor } = await listSessionTrace(t.db, { tenantId, sessionId, limit: 1 });
    const active = await inTransaction(t.db, (tx) => admitTurn(tx, { tenantId, sessionId, turn: newTurn('two'), idempotencyKey: 'two' }));
    expect((await listSessionOutput(t.db, { tenantId, sessionId })).runId).toBe(active.run.id);
    expect((await listSessionTrace(t.db, { tenantId, sessionId, runId: first })).events[0]?.runId).toBe(first);
    expect(await listSessionTrace(t.db, { tenantId, sessionId, limit: 1, cursor: cursor ?? '' })).toMatchObject({
      runId: first,
      events: [{ runId: first, seq: 2 }],
    });
    await expect(listSessionTrace(t.db, { tenantId, sessionId, runId: 'run_none' })).rejects.toThrow(RunNotFound);
    const elsewhere = await endedTurn('s-elsewhere', 'x');
    await expect(listSessionTrace(t.db, { tenantId, sessionId, runId: elsewhere })).rejects.toThrow(/does not belong to session/);
    await expect(listSessionOutput(t.db, { tenantId, sessionId: 's-none' })).rejects.toThrow(SessionNotFound);
  });

  test('a session without a run has an empty log', async () => {
    await t.db.sql.query(sql`INSERT INTO runplane.sessions (tenant_id, session_id, project_id, backend_profile, partition_key, shard)
      VALUES (${tenantId}::text, 's-empty', 'p', 'b', ${tenantId}::text || '/s-empty', 0)`);
    const empty = { sessionId: 's-empty', runId: null, events: [], cursor: null };
    expect(await listSessionTrace(t.db, { tenantId, sessionId: 's-empty' })).toEqual(empty);
    expect(await listSessionOutput(t.db, { tenantId, sessionId: 's-empty', runs: 'all' })).toEqual(empty);
  });

  test('a long log ends no page early, nor do runs whose logs retention has emptied', async () => {
    const sessionId = 's-long';
    const first = await endedTurn(sessionId, 'one');
    await lengthen(first, 10_500);
    await t.db.sql
      .query(sql`INSERT INTO runplane.runs (tenant_id, id, project_id, session_id, workspace_ref, provider_id, backend_profile, execution_policy, input_hash,
        hash_version, max_attempts, on_runner_lost, partition_key, shard)
      SELECT ${tenantId}::text, 'pruned-' || i, 'p1', ${sessionId}::text, '{}', 'd', 'demo', '{}', 'h', 1, 3, 'fail', ${tenantId}::text || '/' || ${sessionId}::text, 0
      FROM generate_series(1, 450) i`);
    const last = await endedTurn(sessionId, 'three');
    const output = await ofAll(sessionId, listSessionOutput);
    expect(output.map(({ runId }) => runId)).toEqual([first, first, first, first, last, last, last]);
    expect(await ofAll(sessionId, listSessionTrace, { limit: 500 })).toHaveLength(
      (await countRunEvents(t.db, { tenantId, runId: first })).count + (await countRunEvents(t.db, { tenantId, runId: last })).count,
    );
  });
});
