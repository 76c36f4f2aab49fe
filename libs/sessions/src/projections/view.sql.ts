import type { JsonObject } from '@runplane/contracts';
import { rawSql, sql, type Sql } from '@runplane/database';
import type { FoldContext } from './projection';

/** A projection's value for one session, as session_views has it. */
export interface View {
  readonly key: string;
  readonly version: number;
  /** The event that last changed the value; −1: none. */
  readonly sequence: number;
  /** The last event that the projection has seen; −1: none. */
  readonly appliedSequence: number;
  readonly staleReason: string | null;
  readonly value: JsonObject;
}

export function viewLoad({ tenantId, sessionId }: Pick<FoldContext, 'tenantId' | 'sessionId'>, key: string): Sql {
  return sql`(SELECT json_build_object('value', v.value) FROM runplane.session_views v
    WHERE v.tenant_id = ${tenantId}::text AND v.session_id = ${sessionId}::text AND v.key = ${key}::text)`;
}

/** `part` is a name of the code's own. */
export function viewWrites(part: string, { key, version, sequence, appliedSequence, staleReason, value }: View): Sql {
  return sql`${rawSql(part)} AS (
    INSERT INTO runplane.session_views (tenant_id, session_id, key, version, sequence, applied_sequence, stale_reason, value)
    SELECT d.tenant_id, d.session_id, ${key}::text, ${version}::int, ${String(sequence)}::bigint, ${String(appliedSequence)}::bigint,
      ${staleReason}::text, ${JSON.stringify(value)}::json
    FROM d
    ON CONFLICT (tenant_id, session_id, key) DO UPDATE SET version = excluded.version, sequence = excluded.sequence,
      applied_sequence = excluded.applied_sequence, stale_reason = excluded.stale_reason, value = excluded.value)`;
}
