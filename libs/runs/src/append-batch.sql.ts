import { isOutputEvent, OPEN_TOOL_CALLS_MAX, RUN_STATES } from '@runplane/contracts';
import { column, rows, sql, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { feedStreams, feedTx, insertOutboxEvents } from '@runplane/outbox';
import { z } from 'zod';
import type { ProducerState } from './producer.sql';
import { INTO_LOG, storable, toolCallsIn, type ServerEvent, type StorableEvent } from './run-event.sql';
import { runStream, type RunKey } from './run.sql';

/** One runner's call: its events enter the log together or not at all. */
export interface RunnerBatch extends RunKey {
  readonly epoch: number;
  readonly sequence: number | undefined;
  readonly events: readonly StorableEvent[];
  /** Of the events' payloads. */
  readonly bytes: number;
}

/** What the statement says of a call; `skipped`: the run is locked by somebody else, or there is none. */
export type AppendVerdict = { kind: 'ok'; lastSeq: number } | { kind: 'skipped' } | { kind: 'refused'; run: ProducerState };

const VerdictRow = z.object({
  call: column.int,
  lastSeq: column.int8.nullable(),
  status: column.state(RUN_STATES),
  failureKind: column.text.nullable(),
  claimEpoch: column.int,
  lastProducerSeq: column.int,
});

/** Carries out the calls of several runners in one statement: a verdict for each, in their order. */
export async function appendBatches(on: SqlExecutor, calls: readonly RunnerBatch[]): Promise<AppendVerdict[]> {
  const verdicts = calls.map((): AppendVerdict => ({ kind: 'skipped' }));
  for (const { call, lastSeq, ...run } of await rows(on, VerdictRow, appendBatchesStatement(calls))) {
    verdicts[call - 1] = lastSeq === null ? { kind: 'refused', run } : { kind: 'ok', lastSeq };
  }
  return verdicts;
}

/**
 * The appends of several runners as one statement, lock first: `l` the named runs as far as nobody else holds them, `d` a verdict per call
 * by the locked row, with the same guards as the append of one (runnerAppend); only calls that pass are counted, numbered one behind the
 * other and inserted (LOG-1, LOG-2). Waits for nobody, so it has no place in the order of locks. A call without a row: its run was skipped.
 *
 * Of one run and epoch at most one call may have a producer sequence: the guard looks at the row as it was locked.
 */
function appendBatchesStatement(calls: readonly RunnerBatch[]): Sql {
  const isPlain = calls.every(({ events }) => events.length === 1) && new Set(calls.map(nameOf)).size === calls.length;
  return isPlain ? plainStatement(calls) : generalStatement(calls);
}

const nameOf = ({ tenantId, runId }: RunKey): string => `${tenantId}/${runId}`;
const jsonArray = (texts: readonly string[]): string => `[${texts.join(',')}]`; // taken apart by PostgreSQL, each part as it stands

/** What is read of a run while it is locked. */
const LOCKED = sql`r.tenant_id, r.id, r.project_id, r.session_id, r.partition_key, r.shard, r.status, r.failure_kind, r.claim_epoch,
  r.last_producer_seq, r.last_event_seq, r.last_tx, r.open_tool_calls`;
/**
 * The run that `key` names, locked unless somebody else holds it. For each key by itself, and of not more keys than there are: as a join,
 * planned for any parameters, it reads the whole table while that is small, and goes on to when it has grown.
 */
const lockedRun = (key: Sql): Sql =>
  sql`SELECT ${LOCKED} FROM runplane.runs r WHERE r.tenant_id = ${key}.tenant_id AND r.id = ${key}.id FOR NO KEY UPDATE SKIP LOCKED`;
/** The guards of a call by the locked run `l`, but for its commands and its tool calls. */
const passes = (c: Sql): Sql =>
  sql`l.claim_epoch = ${c}.epoch AND l.status IN ('claimed', 'cancelling') AND (${c}.sequence IS NULL OR l.last_producer_seq = ${c}.sequence - 1)`;
const EVENT_COLUMNS = sql`e.id AS event_id, e.type, e.command_id, e.tool_call_id, e.is_output, e.payload`;
const VERDICT = sql`SELECT call AS "call", CASE WHEN ok THEN last_seq::text END AS "lastSeq", status::text AS "status", failure_kind AS "failureKind",
  claim_epoch AS "claimEpoch", last_producer_seq AS "lastProducerSeq" FROM d`;
/** Both inserts of the relation `source`, whose rows are the events with what belongs to their calls and runs. */
const INSERTS = sql`written AS (
      ${INTO_LOG}
      SELECT tenant_id, id, seq, event_id, type, payload, command_id, tool_call_id, is_output, epoch, sequence, now FROM source
    ), out AS (${insertOutboxEvents(
      sql`(SELECT tx, shard, partition_key, tenant_id, 'run'::runplane.outbox_stream AS stream, id AS stream_id, seq AS sequence, type, project_id, session_id,
        id AS run_id, command_id, event_id, payload AS data, now AS created_at FROM source)`,
      { rows: 'many' },
    )})`;

/** Each call one event to a run of its own, the usual case: nothing to number, nothing to join. */
function plainStatement(calls: readonly RunnerBatch[]): Sql {
  const events = calls.flatMap((call) => call.events);
  return sql`
    WITH l AS MATERIALIZED (
      SELECT ${LOCKED}, c.call::int, c.epoch, c.sequence, c.event_id, c.type, c.command_id, c.tool_call_id, c.is_output, c.payload
      FROM (SELECT * FROM ROWS FROM (unnest(${calls.map((call) => call.tenantId)}::text[]), unnest(${calls.map((call) => call.runId)}::text[]),
          unnest(${calls.map((call) => call.epoch)}::int[]), unnest(${calls.map((call) => call.sequence ?? null)}::int[]),
          unnest(${events.map((e) => e.id)}::text[]), unnest(${events.map((e) => e.type)}::text[]), unnest(${events.map((e) => e.commandId)}::text[]),
          unnest(${events.map((e) => e.toolCallId)}::text[]), unnest(${events.map((e) => isOutputEvent(e.type))}::bool[]),
          json_array_elements(${jsonArray(events.map((e) => e.payloadText))}::json))
        WITH ORDINALITY AS c (tenant_id, id, epoch, sequence, event_id, type, command_id, tool_call_id, is_output, payload, call)
        ORDER BY c.id COLLATE "C" LIMIT ${calls.length}::int) c
      CROSS JOIN LATERAL (${lockedRun(sql`c`)}) r
    ), d AS MATERIALIZED (
      SELECT l.*, l.last_event_seq + 1 AS last_seq, runplane.app_now() AS now, greatest(l.last_tx, ${feedTx}) AS tx,
        ${passes(sql`l`)}
          AND (l.type <> 'tool_call' OR l.open_tool_calls < ${OPEN_TOOL_CALLS_MAX}::int)
          AND (l.command_id IS NULL OR (SELECT k.id FROM runplane.commands k
          WHERE k.tenant_id = l.tenant_id AND k.run_id = l.id AND k.id = l.command_id) IS NOT NULL) AS ok
      FROM l
    ), source AS NOT MATERIALIZED (SELECT d.*, d.last_seq AS seq FROM d WHERE ok),
    u AS (
      UPDATE runplane.runs r SET last_event_seq = d.last_seq, last_producer_seq = coalesce(d.sequence, r.last_producer_seq), last_tx = d.tx,
        open_tool_calls = r.open_tool_calls + (d.type = 'tool_call')::int
      FROM d WHERE d.ok AND r.tenant_id = d.tenant_id AND r.id = d.id
    ), ${INSERTS}
    ${VERDICT}`;
}

/** Events as rows `e`, each with its call and its place in it. */
const eventRows = (events: readonly (StorableEvent & { call: number; place: number })[]): Sql =>
  sql`ROWS FROM (unnest(${events.map((e) => e.call)}::int[]), unnest(${events.map((e) => e.place)}::int[]), unnest(${events.map((e) => e.id)}::text[]),
      unnest(${events.map((e) => e.type)}::text[]), unnest(${events.map((e) => e.commandId)}::text[]), unnest(${events.map((e) => e.toolCallId)}::text[]),
      unnest(${events.map((e) => isOutputEvent(e.type))}::bool[]), json_array_elements(${jsonArray(events.map((e) => e.payloadText))}::json))
    AS e (call, place, id, type, command_id, tool_call_id, is_output, payload)`;

function generalStatement(calls: readonly RunnerBatch[]): Sql {
  const keys = [...new Map(calls.map(({ tenantId, runId }) => [nameOf({ tenantId, runId }), { tenantId, runId }])).values()];
  const places = new Map(keys.map((key, i) => [nameOf(key), i + 1]));
  const events = calls.flatMap((call, i) => call.events.map((event, place) => ({ ...event, call: i + 1, place: place + 1 })));
  const named = calls.flatMap(({ tenantId, runId, events: own }, i) =>
    [...new Set(own.flatMap(({ commandId }) => commandId ?? []))].map((id) => ({ call: i + 1, tenantId, runId, id })),
  );
  return sql`
    WITH l AS MATERIALIZED (
      SELECT ${LOCKED}, w.run
      FROM (SELECT * FROM unnest(${keys.map((key) => key.tenantId)}::text[], ${keys.map((key) => key.runId)}::text[]) WITH ORDINALITY AS w (tenant_id, id, run)
        ORDER BY w.id COLLATE "C" LIMIT ${keys.length}::int) w
      CROSS JOIN LATERAL (${lockedRun(sql`w`)}) r
    ), unknown AS MATERIALIZED (
      SELECT m.call
      FROM unnest(${named.map((m) => m.call)}::int[], ${named.map((m) => m.tenantId)}::text[], ${named.map((m) => m.runId)}::text[], ${named.map((m) => m.id)}::text[])
        AS m (call, tenant_id, run_id, id)
      WHERE (SELECT k.id FROM runplane.commands k WHERE k.tenant_id = m.tenant_id AND k.run_id = m.run_id AND k.id = m.id) IS NULL
    ), v AS MATERIALIZED (
      SELECT l.*, c.call::int, c.epoch, c.sequence, c.events, c.tool_calls, runplane.app_now() AS now, greatest(l.last_tx, ${feedTx}) AS tx,
        ${passes(sql`c`)} AND c.call NOT IN (SELECT call FROM unknown)
          AND (c.tool_calls = 0 OR l.open_tool_calls + sum(c.tool_calls) OVER (PARTITION BY l.run ORDER BY c.call) <= ${OPEN_TOOL_CALLS_MAX}::int) AS ok
      FROM unnest(${calls.map((call) => places.get(nameOf(call)) ?? 0)}::int[], ${calls.map((call) => call.epoch)}::int[],
          ${calls.map((call) => call.sequence ?? null)}::int[], ${calls.map((call) => call.events.length)}::int[],
          ${calls.map((call) => toolCallsIn(call.events))}::int[])
        WITH ORDINALITY AS c (run, epoch, sequence, events, tool_calls, call)
      JOIN l ON l.run = c.run
    ), d AS MATERIALIZED (
      SELECT v.*, v.last_event_seq + sum(v.events) FILTER (WHERE v.ok) OVER (PARTITION BY v.run ORDER BY v.call) AS last_seq FROM v
    ), source AS MATERIALIZED (
      SELECT d.*, d.last_seq - d.events + e.place AS seq, ${EVENT_COLUMNS}
      FROM ${eventRows(events)}
      JOIN d ON d.call = e.call AND d.ok
    ), u AS (
      UPDATE runplane.runs r SET last_event_seq = s.last_seq, last_producer_seq = coalesce(s.sequence, r.last_producer_seq), last_tx = s.tx,
        open_tool_calls = r.open_tool_calls + s.tool_calls
      FROM (SELECT tenant_id, id, max(last_seq) AS last_seq, max(sequence) AS sequence, max(tx) AS tx, sum(tool_calls)::int AS tool_calls FROM d WHERE ok GROUP BY tenant_id, id) s
      WHERE r.tenant_id = s.tenant_id AND r.id = s.id
    ), ${INSERTS}
    ${VERDICT}`;
}

/** The server's own events for several runs that this transaction has locked, by one statement; no guard but the id. */
export async function appendServerEventsTo(tx: Tx, runs: readonly (RunKey & { events: readonly ServerEvent[] })[]): Promise<void> {
  const events = runs.flatMap((run, i) => run.events.map((event, place) => ({ ...storable(event), call: i + 1, place: place + 1 })));
  const written = await rows(
    tx,
    z.object({ call: column.int }),
    sql`
    WITH u AS MATERIALIZED (
      UPDATE runplane.runs r SET last_event_seq = r.last_event_seq + w.events,
        last_tx = greatest(r.last_tx, ${String(tx.feed.value)}::bigint, ${feedTx})
      FROM unnest(${runs.map((run) => run.tenantId)}::text[], ${runs.map((run) => run.runId)}::text[], ${runs.map((run) => run.events.length)}::int[])
        WITH ORDINALITY AS w (tenant_id, id, events, call)
      WHERE r.tenant_id = w.tenant_id AND r.id = w.id
      RETURNING w.call, w.events, r.tenant_id, r.id, r.project_id, r.session_id, r.partition_key, r.shard, r.last_event_seq AS last_seq, r.last_tx AS tx,
        runplane.app_now() AS now
    ), source AS MATERIALIZED (
      SELECT u.*, u.last_seq - u.events + e.place AS seq, NULL::int AS epoch, NULL::int AS sequence, ${EVENT_COLUMNS}
      FROM ${eventRows(events)} JOIN u ON u.call = e.call
    ), ${INSERTS}
    SELECT call::int AS "call" FROM u`,
  );
  if (written.length !== runs.length) throw new Error(`a write to ${runs.length} locked runs touched ${written.length}`);
  for (const run of runs) for (const stream of [runStream(run), ...feedStreams(run.tenantId)]) tx.changed(stream);
}
