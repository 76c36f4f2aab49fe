import { rawSql, sql, type Sql } from '@runplane/database';
import type { FoldContext } from './projection';
import type { TeamState } from './team';
import { viewWrites } from './view.sql';

/** A view with the next events that it has not seen, what kinds of events come behind those, and how far the log goes. */
export function teamLoad(
  { tenantId, sessionId }: Pick<FoldContext, 'tenantId' | 'sessionId'>,
  { key, eventsMax, bytesMax, typesEventsMax }: { key: string; eventsMax: number; bytesMax: number; typesEventsMax: number },
): Sql {
  const ofSession = sql`tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text`;
  return sql`(SELECT json_build_object(
      'view', CASE WHEN v.key IS NOT NULL THEN json_build_object('version', v.version, 'sequence', v.sequence::text,
        'appliedSequence', v.applied_sequence::text, 'staleReason', v.stale_reason, 'value', v.value) END,
      'missed', m.events, 'rest', (SELECT json_build_object('types', json_agg(DISTINCT r.type), 'through', max(r.sequence)::text)
        FROM (SELECT type, sequence FROM runplane.session_events WHERE ${ofSession} AND sequence > m.through ORDER BY sequence LIMIT ${typesEventsMax}::int) r),
      'lastSequence', (SELECT max(sequence)::text FROM runplane.session_events WHERE ${ofSession}))
    FROM (VALUES (1)) AS one (row) LEFT JOIN runplane.session_views v ON v.tenant_id = ${tenantId}::text AND v.session_id = ${sessionId}::text AND v.key = ${key}::text
      CROSS JOIN LATERAL (SELECT max(e.sequence) AS through, json_agg(json_build_object('sequence', e.sequence::text, 'type', e.type, 'time', (extract(epoch FROM e.time) * 1000)::bigint::text,
          'turnId', e.turn_id, 'stepId', e.step_id, 'runId', e.run_id, 'commandId', e.command_id, 'data', e.data) ORDER BY e.sequence) AS events
        FROM (SELECT n.*, sum(octet_length(n.data::text)) OVER (ORDER BY n.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
          FROM (SELECT * FROM runplane.session_events WHERE ${ofSession} AND sequence > coalesce(v.applied_sequence, -1)
            AND v.stale_reason IS NULL ORDER BY sequence LIMIT ${eventsMax}::int) n) e
        WHERE coalesce(e.bytes_before, 0) < ${bytesMax}::int) m)`;
}

/** The value with its place; of a view that has failed only why, with the value and place that were stored. */
export function teamWrites(part: string, { key, version }: { key: string; version: number }, state: TeamState): Sql {
  const { failure, isStored, sequence, appliedSequence, value = {} } = state;
  if (failure === undefined) return viewWrites(part, { key, version, sequence, appliedSequence, staleReason: null, value });
  if (!isStored) return viewWrites(part, { key, version, sequence: -1, appliedSequence: -1, staleReason: failure, value: {} });
  return sql`${rawSql(part)} AS (
    UPDATE runplane.session_views v SET stale_reason = ${failure}::text FROM d
    WHERE v.tenant_id = d.tenant_id AND v.session_id = d.session_id AND v.key = ${key}::text)`;
}
