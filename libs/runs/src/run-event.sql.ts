import { isOutputEvent, newId, PAGE_BYTES_MAX, redactJson, RUN_STATES, type JsonObject, type RunEvent } from '@runplane/contracts';
import { column, emptySql, maybeRow, oneRow, rawSql, rows, sql, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { feedStreams, feedTx, insertOutboxEvents } from '@runplane/outbox';
import { z } from 'zod';
import { runStream, type RunKey } from './run.sql';

/** An event on its way into the log: normalized, redacted, and its payload as the text that is stored. */
export interface StorableEvent {
  readonly id: string;
  readonly type: string;
  readonly payloadText: string;
  readonly commandId: string | null;
  readonly toolCallId: string | null;
}

export const toolCallsIn = (events: readonly StorableEvent[]): number => events.filter(({ type }) => type === 'tool_call').length;

/** An event that the server writes. */
export interface ServerEvent {
  readonly type: 'user_message' | 'backend_status' | 'terminal_status' | 'tool_result';
  readonly payload: JsonObject;
  readonly commandId?: string | null;
  readonly toolCallId?: string;
}

/** A backend_status event: a fact about the run's life, told by its phase. */
export function phase(name: string, facts: JsonObject = {}): ServerEvent {
  const commandId = facts['commandId'];
  return { type: 'backend_status', payload: { phase: name, ...facts }, commandId: typeof commandId === 'string' ? commandId : null };
}

export const Appended = z.object({ lastSeq: column.int8 });
export type Appended = z.infer<typeof Appended>;

interface Producer {
  readonly epoch: number;
  readonly sequence: number | undefined;
}

/**
 * The one statement by which events enter a run's log (LOG-1, LOG-2): it advances the counter on the run's row by the number of events,
 * inserts them behind it and puts them in the outbox. A guarded update: after a wait for the row PostgreSQL looks at the WHERE again, on
 * the newest version, so `guard` tests columns of the run alone (and rows that never change). No row: the guard refused.
 *
 * `set` changes further columns of the run; `floor` is the feed number that the transaction may not go below; `also` is a further part of the
 * statement, which may read the run as `r`.
 */
export function appendStatement(
  { tenantId, runId }: RunKey,
  events: readonly StorableEvent[],
  { guard, set, floor, producer, also = emptySql }: { guard: Sql; set: Sql; floor: bigint; producer: Producer | null; also?: Sql },
): Sql {
  const [event] = events;
  const isOne = event !== undefined && events.length === 1 && event.payloadText.length <= TWICE_CHARS_MAX;
  return sql`
    WITH r AS MATERIALIZED (
      UPDATE runplane.runs SET last_event_seq = last_event_seq + ${events.length}::int,
        last_tx = greatest(last_tx, ${String(floor)}::bigint, ${feedTx})${set}
      WHERE tenant_id = ${tenantId}::text AND id = ${runId}::text ${guard}
      RETURNING tenant_id, id, project_id, session_id, partition_key, shard, last_tx, last_event_seq, runplane.app_now() AS now
    ), ${isOne ? insertOne(event, producer) : insertMany(events, producer)}${also}
    SELECT last_event_seq::text AS "lastSeq" FROM r`;
}

export const INTO_LOG = sql`INSERT INTO runplane.run_events
  (tenant_id, run_id, seq, id, type, payload, command_id, tool_call_id, is_output, producer_epoch, producer_seq, created_at)`;
/** What an outbox row takes from its run, for a relation `r` that returns these columns. */
export const RUN_COLUMNS = sql`r.last_tx AS tx, r.shard, r.partition_key, r.tenant_id, 'run'::runplane.outbox_stream AS stream, r.id AS stream_id,
  r.project_id, r.session_id, r.id AS run_id, r.now AS created_at`;

/** A longer payload does not travel twice. */
const TWICE_CHARS_MAX = 8_192;

/** One event, the usual case: both inserts read the run alone. Every join less is felt: PostgreSQL sets each up anew for every execution. */
function insertOne(event: StorableEvent, producer: Producer | null): Sql {
  const { id, type, payloadText, commandId, toolCallId } = event;
  return sql`written AS (
      ${INTO_LOG}
      SELECT r.tenant_id, r.id, r.last_event_seq, ${id}::text, ${type}::text, ${payloadText}::json, ${commandId}::text, ${toolCallId}::text,
        ${isOutputEvent(type)}::bool, ${producer?.epoch ?? null}::int, ${producer?.sequence ?? null}::int, r.now
      FROM r
    ), out AS (${insertOutboxEvents(
      sql`(SELECT ${RUN_COLUMNS}, r.last_event_seq AS sequence, ${type}::text AS type, ${commandId}::text AS command_id, ${id}::text AS event_id,
        ${payloadText}::json AS data FROM r)`,
      { rows: 'one' },
    )})`;
}

function insertMany(events: readonly StorableEvent[], producer: Producer | null): Sql {
  return sql`written AS (
      ${INTO_LOG}
      SELECT r.tenant_id, r.id, r.last_event_seq - ${events.length}::int + e.place, e.id, e.type, e.payload::json, e.command_id, e.tool_call_id, e.is_output,
        ${producer?.epoch ?? null}::int, ${producer?.sequence ?? null}::int, r.now
      FROM r, unnest(${events.map((e) => e.id)}::text[], ${events.map((e) => e.type)}::text[], ${events.map((e) => e.payloadText)}::text[],
        ${events.map((e) => e.commandId)}::text[], ${events.map((e) => e.toolCallId)}::text[], ${events.map((e) => isOutputEvent(e.type))}::bool[])
        WITH ORDINALITY AS e (id, type, payload, command_id, tool_call_id, is_output, place)
      RETURNING seq, id, type, payload, command_id
    ), source AS (
      SELECT ${RUN_COLUMNS}, w.seq AS sequence, w.type, w.command_id, w.id AS event_id, w.payload AS data FROM r, written w
    ), out AS (${insertOutboxEvents(sql`source`, { rows: 'many' })})`;
}

/** Makes an event of the server storable. Its free texts are redacted like a runner's. */
export function storable({ type, payload, commandId, toolCallId }: ServerEvent): StorableEvent {
  return {
    id: newId('evt'),
    type,
    payloadText: JSON.stringify(redactJson(payload)),
    commandId: commandId ?? null,
    toolCallId: toolCallId ?? null,
  };
}

/**
 * Appends the server's own events to a run that this transaction has locked or inserted, and changes `set` columns of the run with them.
 * No guard but the id: whoever calls has decided under the lock. `also` as in appendStatement.
 */
export async function appendServerEvents(
  tx: Tx,
  run: RunKey,
  events: readonly ServerEvent[],
  set: Sql = emptySql,
  also: Sql = emptySql,
): Promise<Appended> {
  const statement = appendStatement(run, events.map(storable), { guard: emptySql, set, floor: tx.feed.value, producer: null, also });
  const appended = await oneRow(tx, Appended, statement);
  for (const stream of [runStream(run), ...feedStreams(run.tenantId)]) tx.changed(stream);
  return appended;
}

export const EventRow = z.object({
  id: column.text,
  runId: column.text,
  seq: column.int8,
  type: column.text,
  payload: column.jsonObject,
  commandId: column.text.nullable(),
  createdAt: column.time,
});

export const EVENT_COLUMNS = sql`id AS "id", run_id AS "runId", seq::text AS "seq", type AS "type", payload::text AS "payload", command_id AS "commandId",
  runplane.wire_time(created_at) AS "createdAt"`;

export const toEvent = ({ id, runId, seq, type, payload, commandId, createdAt }: RunEvent): RunEvent => ({
  id,
  runId,
  seq,
  type,
  payload,
  commandId,
  createdAt,
});

/** Rows `page` with the bytes of the payloads before each: a page ends with the row that passes the limit, however many it may have. */
export const withBytesBefore = (page: Sql, order: Sql): Sql => sql`
  SELECT *, sum(octet_length(payload::text)) OVER (ORDER BY ${order} ROWS UNBOUNDED PRECEDING) - octet_length(payload::text) AS bytes_before FROM (${page}) page`;

/**
 * Counts the open tool calls of a run and, if nothing was appended meanwhile, sets its counter to them: appends only raise it, since an
 * exact one would have to know of each result which call it is for. So a run is counted once in as many calls as may be open.
 */
export async function recountOpenToolCalls(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<number> {
  const { open } = await oneRow(
    on,
    z.object({ open: column.int }),
    sql`
    WITH c AS MATERIALIZED (
      SELECT r.tenant_id, r.id, r.last_event_seq, (SELECT count(*)::int FROM (
          SELECT FROM runplane.run_events WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND tool_call_id IS NOT NULL
          GROUP BY tool_call_id HAVING bool_and(type = 'tool_call')
        ) o) AS open
      FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text
    ), u AS (
      UPDATE runplane.runs r SET open_tool_calls = c.open FROM c WHERE (r.tenant_id, r.id) = (c.tenant_id, c.id) AND r.last_event_seq = c.last_event_seq
    )
    SELECT open AS "open" FROM c`,
  );
  return open;
}

export const PrunedEvents = z.object({
  prunedAt: z.string(),
  /** Of the event that tells it: the oldest that can be read. */
  firstSeq: z.int(),
  terminalSeq: z.int(),
  archiveKey: z.string().nullable(),
});
/** What is known of events that retention has removed, or is removing. */
export type PrunedEvents = z.infer<typeof PrunedEvents>;

/** The same of a run `r`, as JSON; null where all its events are there. */
export const prunedEvents = sql`CASE WHEN r.events_pruned_at IS NOT NULL THEN (
  SELECT json_build_object('prunedAt', runplane.wire_time(r.events_pruned_at), 'firstSeq', e.seq, 'terminalSeq', (e.payload ->> 'terminalSeq')::bigint,
    'archiveKey', e.payload -> 'archive' ->> 'name')::text
  FROM runplane.run_events e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id AND e.type = 'backend_status'
    AND e.payload ->> 'phase' = 'retention-events-pruned' ORDER BY e.seq DESC LIMIT 1
) END`;

const HeadRow = z.object({
  status: column.state(RUN_STATES),
  lastSeq: column.int8,
  terminalSeq: column.int8.nullable(),
  pruned: column.json.pipe(PrunedEvents).nullable(),
});
export type LogHead = z.infer<typeof HeadRow>;

/** The sequence of terminal_status stands right behind the last events of a run's ending; where it has been removed, the event that tells so has it. */
const head = ({ tenantId, runId }: RunKey): Sql => sql`
  SELECT r.status::text AS "status", r.last_event_seq::text AS "lastSeq",
    CASE WHEN r.finished_at IS NOT NULL THEN (
      SELECT e.seq::text FROM runplane.run_events e WHERE e.tenant_id = r.tenant_id AND e.run_id = r.id AND e.type = 'terminal_status'
      ORDER BY e.seq DESC LIMIT 1
    ) END AS "terminalSeq", ${prunedEvents} AS "pruned"
  FROM runplane.runs r WHERE r.tenant_id = ${tenantId}::text AND r.id = ${runId}::text`;

/** Where a run's log ends, and whether for good. */
export async function findLogHead(on: SqlExecutor, key: RunKey): Promise<LogHead | undefined> {
  const found = await maybeRow(on, HeadRow, head(key));
  return found && toHead(found);
}

const toHead = ({ status, lastSeq, terminalSeq, pruned }: LogHead): LogHead => ({
  status,
  lastSeq,
  terminalSeq: pruned?.terminalSeq ?? terminalSeq,
  pruned,
});

const LogRow = z.union([EventRow.extend(HeadRow.shape), HeadRow.extend({ id: z.null() })]);

/**
 * A run's log behind a sequence and where it ends, from one snapshot; undefined when there is no run. Fewer events than `limit` where their
 * payloads are large.
 */
export async function readLog(
  on: SqlExecutor,
  key: RunKey,
  { afterSeq, limit }: { afterSeq: number; limit: number },
): Promise<(LogHead & { events: RunEvent[] }) | undefined> {
  const { tenantId, runId } = key;
  const page = sql`SELECT * FROM runplane.run_events
    WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND seq > ${String(afterSeq)}::bigint
    ORDER BY run_events.seq LIMIT ${limit}::int`;
  const found = await rows(
    on,
    LogRow,
    sql`SELECT h.*, ${EVENT_COLUMNS} FROM (${head(key)}) h
        LEFT JOIN (${withBytesBefore(page, sql`seq`)}) e ON e.bytes_before < ${PAGE_BYTES_MAX}::int ORDER BY e.seq`,
  );
  const [first] = found;
  if (first === undefined) return undefined;
  return { ...toHead(first), events: found.flatMap((row) => (row.id === null ? [] : [toEvent(row)])) };
}

const StoredText = z.object({ id: column.text, seq: column.int8, type: column.text, payloadText: column.text });

/** The events that a runner's batch has written, for its replay. A scan of the run's tail: repeats are rare and name recent batches. */
export function listBatchEvents(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
  { epoch, sequence }: { epoch: number; sequence: number },
): Promise<z.infer<typeof StoredText>[]> {
  return rows(
    on,
    StoredText,
    sql`SELECT id AS "id", seq::text AS "seq", type AS "type", payload::text AS "payloadText" FROM runplane.run_events
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND producer_epoch = ${epoch}::int AND producer_seq = ${sequence}::int
        ORDER BY run_events.seq`, // the name alone would be the text of the result
  );
}

/** Calls of tools that have no result yet, in order. One pass over the run's calls and results, however many there are. */
export function listOpenToolCalls(
  on: SqlExecutor,
  { tenantId, runId }: RunKey,
): Promise<{ toolCallId: string; commandId: string | null }[]> {
  return rows(
    on,
    z.object({ toolCallId: column.text, commandId: column.text.nullable() }),
    sql`SELECT tool_call_id AS "toolCallId", (array_agg(command_id ORDER BY seq))[1] AS "commandId" FROM runplane.run_events
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND tool_call_id IS NOT NULL
        GROUP BY tool_call_id HAVING bool_and(type = 'tool_call') ORDER BY min(seq)`,
  );
}

/** The last thing the assistant said; a message marked final wins over later drafts. */
export function findLastAssistantMessage(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<{ text: string | null } | undefined> {
  return maybeRow(
    on,
    z.object({ text: column.text.nullable() }),
    sql`SELECT payload ->> 'text' AS "text" FROM runplane.run_events
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND type = 'assistant_message'
        ORDER BY (payload ->> 'final' = 'true') DESC, seq DESC LIMIT 1`,
  );
}

const UsageRow = z.object({
  model: column.text,
  inputTokens: column.int8,
  outputTokens: column.int8,
  costMicros: column.int8.nullable(),
  currency: column.text.nullable(),
});

const SUM_MAX = rawSql(String(Number.MAX_SAFE_INTEGER));
const sumOf = (field: string): Sql => {
  const sum = sql`sum((payload ->> ${rawSql(`'${field}'`)})::bigint)`;
  return sql`(CASE WHEN ${sum} > ${SUM_MAX} THEN ${SUM_MAX} ELSE ${sum} END)::text`; // null where nobody said
};

/** What the run has used, summed by model and currency; a sum stops at 2^53 - 1, since runners may report anything. */
export function sumUsage(on: SqlExecutor, { tenantId, runId }: RunKey): Promise<z.infer<typeof UsageRow>[]> {
  return rows(
    on,
    UsageRow,
    sql`SELECT payload ->> 'model' AS "model", ${sumOf('inputTokens')} AS "inputTokens",
          ${sumOf('outputTokens')} AS "outputTokens", ${sumOf('costMicros')} AS "costMicros",
          payload ->> 'currency' AS "currency"
        FROM runplane.run_events
        WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text AND type = 'usage'
        GROUP BY payload ->> 'model', payload ->> 'currency' ORDER BY 1, 5`,
  );
}

/** True when the run's newest events hold a record of this phase and epoch from within the last `everyMs`. */
export async function hasRecentRecord(
  tx: Tx,
  { tenantId, runId }: RunKey,
  record: { phase: string; epoch: number; everyMs: number },
): Promise<boolean> {
  const found = await rows(
    tx,
    z.object({ done: column.int }),
    sql`SELECT 1 AS "done" FROM (
          SELECT type, payload, created_at FROM runplane.run_events
          WHERE tenant_id = ${tenantId}::text AND run_id = ${runId}::text ORDER BY seq DESC LIMIT 500
        ) newest
        WHERE type = 'backend_status' AND payload ->> 'phase' = ${record.phase}::text AND payload ->> 'epoch' = ${String(record.epoch)}::text
          AND created_at > runplane.app_now() - ${record.everyMs}::int * interval '1 millisecond' LIMIT 1`,
  );
  return found.length > 0;
}
