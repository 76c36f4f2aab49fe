import type { JsonObject, SessionLogEvent } from '@runplane/contracts';
import { column, joinSql, rawSql, rows, sql, type Sql, type SqlExecutor, type Tx } from '@runplane/database';
import { z } from 'zod';
import { headSet } from '../append-statement.sql';
import { loadsOf, touchedBy } from '../fold-batch';
import type { FoldContext, FoldedHead, HeadChange, Projection } from '../projections/projection';
import type { HeadRow } from '../session-head.sql';
import type { SessionKey } from '../session.sql';
import { shadowOf } from './shadow-views.sql';

/** Before the first event. */
export const EMPTY_HEAD: FoldedHead = {
  lastSequence: -1,
  snapshot: null,
  driverState: 'idle',
  needsRecovery: false,
  windowId: null,
  firstWindowId: null,
  openSubmissions: 0,
  openTurnSubmissions: 0,
};

const done = z.object({ done: column.int });

/**
 * Folds a page of a log into the rows of a rebuild, as an append folds its batch into the live ones: what the touched projections ask for is
 * read with one statement and what they changed is written with one. No guard is asked: these are facts. Returns the head's part of the fold.
 */
export async function foldPage(
  tx: Tx,
  log: SessionKey & { readonly header: JsonObject },
  { events, head, projections }: { events: readonly SessionLogEvent[]; head: FoldedHead; projections: readonly Projection[] },
): Promise<FoldedHead> {
  const last = events.at(-1);
  if (last === undefined) return head;
  const context: FoldContext = { tenantId: shadowOf(log.tenantId), sessionId: log.sessionId, header: log.header, head };
  const touched = touchedBy(projections, events);
  const loaded = await readLoads(tx, loadsOf(touched, events, context));
  const parts: Sql[] = [];
  let change: HeadChange = {};
  for (const [at, projection] of touched.entries()) {
    const own = events.filter(({ type }) => projection.touches(type));
    const state = own.reduce((before, event) => projection.apply(before, event), projection.initial(loaded[at], context));
    parts.push(...projection.writes(state));
    change = { ...change, ...projection.head?.(state) };
  }
  if (parts.length > 0) {
    const key = sql`tenant_id = ${log.tenantId}::text AND session_id = ${log.sessionId}::text`;
    await rows(
      tx,
      done,
      sql`WITH d AS MATERIALIZED (
            SELECT ${context.tenantId}::text AS tenant_id, session_id, created_at AS now FROM runplane.session_events
            WHERE ${key} AND sequence = ${String(last.sequence)}::bigint
          ), ${joinSql(parts)}
          SELECT 1 AS "done" FROM d`,
    );
  }
  return { ...head, ...change, lastSequence: last.sequence };
}

/** What loads give, in their order, by one statement; undefined for those that ask for nothing. */
async function readLoads(on: SqlExecutor, loads: readonly (Sql | undefined)[]): Promise<unknown[]> {
  const asked = loads.flatMap((load, at) => (load === undefined ? [] : [sql`(${load})::text AS ${rawSql(`"load${at}"`)}`]));
  if (asked.length === 0) return [];
  const [row] = await on.query(sql`SELECT ${joinSql(asked)}`);
  return loads.map((load, at) =>
    load === undefined ? undefined : (JSON.parse(column.text.nullable().parse(row?.[`load${at}`]) ?? 'null') as unknown),
  );
}

const EventRow = z.object({
  sequence: column.int8,
  type: column.text,
  time: column.int8,
  turnId: column.text.nullable(),
  stepId: column.text.nullable(),
  runId: column.text.nullable(),
  commandId: column.text.nullable(),
  data: column.jsonObject,
});

/** The next events of a log: at most so many, and no more than `bytes` of them but the first. */
export function listLog(
  on: SqlExecutor,
  { tenantId, sessionId }: SessionKey,
  { after, limit, bytes }: { after: number; limit: number; bytes: number },
): Promise<SessionLogEvent[]> {
  return rows(
    on,
    EventRow,
    sql`SELECT sequence::text AS "sequence", type AS "type", (extract(epoch FROM time) * 1000)::bigint::text AS "time", turn_id AS "turnId",
          step_id AS "stepId", run_id AS "runId", command_id AS "commandId", data AS "data"
        FROM (
          SELECT p.*, sum(octet_length(p.data)) OVER (ORDER BY p.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
          FROM (
            SELECT sequence, type, time, turn_id, step_id, run_id, command_id, data::text AS data FROM runplane.session_events
            WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND sequence > ${String(after)}::bigint
            ORDER BY sequence LIMIT ${limit}::int
          ) p
        ) e
        WHERE coalesce(e.before, 0) < ${bytes}::int ORDER BY e.sequence`,
  );
}

/** Writes what the head keeps of the fold, and by which rules; 1 where it was not so. */
export async function writeFoldedHead(
  tx: Tx,
  was: HeadRow,
  { head, viewsVersion }: { head: FoldedHead; viewsVersion: number },
): Promise<number> {
  await rows(
    tx,
    done,
    sql`UPDATE runplane.session_heads SET views_version = ${viewsVersion}::int, views_epoch = views_epoch + 1${headSet(head)}
        WHERE tenant_id = ${was.tenantId}::text AND session_id = ${was.sessionId}::text RETURNING 1 AS "done"`,
  );
  const same = (Object.keys(EMPTY_HEAD) as (keyof FoldedHead)[]).every((name) => JSON.stringify(was[name]) === JSON.stringify(head[name]));
  return same ? 0 : 1;
}
