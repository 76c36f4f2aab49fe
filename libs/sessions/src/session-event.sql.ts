import type { JsonObject, SessionEvent } from '@runplane/contracts';
import { column, rows, sql, type Sql, type SqlExecutor, type Stream } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from './session.sql';

/** Who waits for a session's log. */
export const sessionStream = ({ tenantId, sessionId }: SessionKey): Stream => `session:${tenantId}/${sessionId}`;

export const LogRow = z.object({
  sequence: column.int8,
  type: column.text,
  time: column.time,
  turnId: column.text.nullable(),
  stepId: column.text.nullable(),
  dataText: column.text,
  eventId: column.text,
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
});
export type LogRow = z.infer<typeof LogRow>;

export const LOG_COLUMNS = sql`sequence::text AS "sequence", type AS "type", runplane.wire_time(time) AS "time", turn_id AS "turnId", step_id AS "stepId",
  data::text AS "dataText", replace(event_id::text, '-', '') AS "eventId", run_id AS "runId", command_id AS "commandId"`;

/** As the wire shows it. */
export const toSessionEvent = ({ sequence, type, time, turnId, stepId, dataText, eventId, runId, commandId }: LogRow): SessionEvent => ({
  sequence,
  type,
  time,
  turnId,
  stepId,
  data: JSON.parse(dataText) as JsonObject,
  eventId,
  runId,
  commandId,
});

export const logOf = ({ tenantId, sessionId }: SessionKey): Sql => sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;

const AppendedRow = LogRow.extend({ tx: column.bigint.nullable(), position: column.bigint.nullable(), count: column.int.nullable() });
export type AppendedRow = z.infer<typeof AppendedRow>;

/** Events of one append, or `count` of them where it had no id, with their places in the feed. */
export function listAppended(on: SqlExecutor, key: SessionKey, first: number, count?: number): Promise<AppendedRow[]> {
  const firstText = String(first);
  return rows(
    on,
    AppendedRow,
    sql`SELECT ${LOG_COLUMNS}, tx::text AS "tx", position::text AS "position", append_count AS "count"
        FROM runplane.session_events WHERE ${logOf(key)} AND sequence >= ${firstText}::bigint
          AND sequence < ${firstText}::bigint + coalesce(${count ?? null}::int, (SELECT append_count FROM runplane.session_events
            WHERE ${logOf(key)} AND sequence = ${firstText}::bigint), 1)
        ORDER BY session_events.sequence`,
  );
}
