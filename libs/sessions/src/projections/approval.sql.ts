import { APPROVAL_STATES, OPEN_REQUESTS_MAX, type ApprovalResolution } from '@runplane/contracts';
import { sql, type Sql } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';
import type { AskedApproval } from './approval';
import { wireTime, type OpenRequest, type Resolution } from './requests';

/** As `loadApprovals` gives it. Actor and value come as JSON, and go on as the text that an event would have of them. */
export const LoadedApprovals = z.object({
  open: z.int(),
  rows: z.array(
    z
      .object({
        id: z.string(),
        state: z.enum(APPROVAL_STATES),
        revision: z.int(),
        contentHash: z.string(),
        requestedSequence: z.int(),
        resolvedSequence: z.int().nullable(),
        expiresInMs: z.int(),
        actor: z.unknown(),
        reason: z.string().nullable(),
      })
      .transform(({ resolvedSequence, actor, reason, ...row }) => ({
        ...row,
        resolution:
          row.state === 'pending' || resolvedSequence === null
            ? undefined
            : { state: row.state, value: null, actor: JSON.stringify(actor), reason, at: 0, sequence: resolvedSequence },
      })),
  ),
});

/** The approvals of these ids, and how many of the session are pending, counted as far as it matters. */
export const loadApprovals = ({ tenantId, sessionId }: SessionKey, ids: readonly string[]): Sql => sql`(
  SELECT json_build_object(
    'open', (SELECT count(*) FROM (SELECT FROM runplane.approvals o
      WHERE o.tenant_id = ${tenantId}::text AND o.session_id = ${sessionId}::text AND o.state = 'pending' LIMIT ${OPEN_REQUESTS_MAX}::int) o),
    'rows', coalesce((SELECT json_agg(json_build_object('id', a.approval_id, 'state', a.state, 'revision', a.revision, 'contentHash', a.content_hash,
        'requestedSequence', a.requested_sequence, 'resolvedSequence', a.resolved_sequence, 'expiresInMs', runplane.ms_until(a.expires_at, runplane.app_now()),
        'actor', a.actor, 'reason', a.resolution_reason))
      FROM runplane.approvals a
      WHERE a.tenant_id = ${tenantId}::text AND a.session_id = ${sessionId}::text AND a.approval_id = ANY (${[...ids]}::text[])), '[]'))
)`;

type Asked = Omit<OpenRequest<AskedApproval, ApprovalResolution>, 'asked'> & { readonly id: string; readonly asked: AskedApproval };
type Resolved = { readonly id: string; readonly resolution: Resolution<ApprovalResolution> };

export function insertApprovals(rows: readonly Asked[]): Sql {
  const texts = (value: (row: Asked) => string | null): (string | null)[] => rows.map(value);
  return sql`approval_asked AS (
    INSERT INTO runplane.approvals (tenant_id, session_id, approval_id, state, revision, turn_id, step_id, tool_call_id, operation_id, tool_name,
      arguments_summary, arguments_digest, reason, content_hash, run_id, command_id, created_at, expires_at, requested_sequence,
      actor, resolution_reason, resolved_at, resolved_sequence)
    SELECT d.tenant_id, d.session_id, q.id, q.state::runplane.approval_state, q.revision, q.turn_id, q.step_id, q.tool_call_id, q.operation_id, q.tool_name,
      q.summary::json, q.digest, q.reason, q.hash, q.run_id, q.command_id, q.created_at::timestamptz, q.expires_at::timestamptz, q.requested::bigint,
      q.actor::json, q.why, q.resolved_at::timestamptz, q.resolved::bigint
    FROM d, unnest(${texts(({ id }) => id)}::text[], ${texts(({ state }) => state)}::text[], ${rows.map(({ revision }) => revision)}::int[],
      ${texts(({ asked }) => asked.turnId)}::text[], ${texts(({ asked }) => asked.stepId)}::text[], ${texts(({ asked }) => asked.toolCallId)}::text[],
      ${texts(({ asked }) => asked.operationId)}::text[], ${texts(({ asked }) => asked.toolName)}::text[], ${texts(({ asked }) => asked.argumentsSummary)}::text[],
      ${texts(({ asked }) => asked.argumentsDigest)}::text[], ${texts(({ asked }) => asked.reason)}::text[], ${texts(({ contentHash }) => contentHash)}::text[],
      ${texts(({ asked }) => asked.runId)}::text[], ${texts(({ asked }) => asked.commandId)}::text[], ${texts(({ asked }) => asked.createdAt)}::text[],
      ${texts(({ asked }) => asked.expiresAt)}::text[], ${texts(({ requestedSequence }) => String(requestedSequence))}::text[],
      ${texts(({ resolution }) => resolution?.actor ?? null)}::text[], ${texts(({ resolution }) => resolution?.reason ?? null)}::text[],
      ${texts(({ resolution }) => (resolution === undefined ? null : wireTime(resolution.at)))}::text[],
      ${texts(({ resolution }) => (resolution === undefined ? null : String(resolution.sequence)))}::text[])
      AS q (id, state, revision, turn_id, step_id, tool_call_id, operation_id, tool_name, summary, digest, reason, hash, run_id, command_id, created_at,
        expires_at, requested, actor, why, resolved_at, resolved)
  )`;
}

export function resolveApprovals(rows: readonly Resolved[]): Sql {
  const texts = (value: (resolution: Resolution<ApprovalResolution>) => string | null): (string | null)[] =>
    rows.map(({ resolution }) => value(resolution));
  return sql`approval_resolved AS (
    UPDATE runplane.approvals a SET state = q.state::runplane.approval_state, revision = a.revision + 1, actor = q.actor::json,
      resolution_reason = q.reason, resolved_at = q.at::timestamptz, resolved_sequence = q.sequence::bigint
    FROM d, unnest(${rows.map(({ id }) => id)}::text[], ${texts(({ state }) => state)}::text[], ${texts(({ actor }) => actor)}::text[],
      ${texts(({ reason }) => reason)}::text[], ${texts(({ at }) => wireTime(at))}::text[], ${texts(({ sequence }) => String(sequence))}::text[])
      AS q (id, state, actor, reason, at, sequence)
    WHERE a.tenant_id = d.tenant_id AND a.session_id = d.session_id AND a.approval_id = q.id AND a.state = 'pending'
  )`;
}
