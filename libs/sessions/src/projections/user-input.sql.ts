import { INPUT_STATES, OPEN_REQUESTS_MAX, type InputOutcome } from '@runplane/contracts';
import { sql, type Sql } from '@runplane/database';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';
import { wireTime, type OpenRequest, type Resolution } from './requests';
import type { AskedInput } from './user-input';

/** As `loadInputRequests` gives it; JSON goes on as the text that an event would have of it. */
export const LoadedInputRequests = z.object({
  open: z.int(),
  rows: z.array(
    z
      .object({
        id: z.string(),
        state: z.enum(INPUT_STATES),
        revision: z.int(),
        contentHash: z.string(),
        requestedSequence: z.int(),
        resolvedSequence: z.int().nullable(),
        expiresInMs: z.int(),
        schema: z.unknown(),
        value: z.unknown(),
        actor: z.unknown(),
        reason: z.string().nullable(),
      })
      .transform(({ resolvedSequence, schema, value, actor, reason, ...row }) => ({
        ...row,
        schema: JSON.stringify(schema),
        resolution:
          row.state === 'pending' || resolvedSequence === null
            ? undefined
            : { state: row.state, value: JSON.stringify(value), actor: JSON.stringify(actor), reason, at: 0, sequence: resolvedSequence },
      })),
  ),
});

/** The input requests of these ids, and how many of the session are pending, counted as far as it matters. */
export const loadInputRequests = ({ tenantId, sessionId }: SessionKey, ids: readonly string[]): Sql => sql`(
  SELECT json_build_object(
    'open', (SELECT count(*) FROM (SELECT FROM runplane.input_requests o
      WHERE o.tenant_id = ${tenantId}::text AND o.session_id = ${sessionId}::text AND o.state = 'pending' LIMIT ${OPEN_REQUESTS_MAX}::int) o),
    'rows', coalesce((SELECT json_agg(json_build_object('id', i.request_id, 'state', i.state, 'revision', i.revision, 'contentHash', i.content_hash,
        'requestedSequence', i.requested_sequence, 'resolvedSequence', i.resolved_sequence, 'expiresInMs', runplane.ms_until(i.expires_at, runplane.app_now()),
        'schema', i.input_schema, 'value', i.value, 'actor', i.actor, 'reason', i.resolution_reason))
      FROM runplane.input_requests i
      WHERE i.tenant_id = ${tenantId}::text AND i.session_id = ${sessionId}::text AND i.request_id = ANY (${[...ids]}::text[])), '[]'))
)`;

type Asked = Omit<OpenRequest<AskedInput, InputOutcome>, 'asked'> & { readonly id: string; readonly asked: AskedInput };
type Resolved = { readonly id: string; readonly resolution: Resolution<InputOutcome> };

export function insertInputRequests(rows: readonly Asked[]): Sql {
  const texts = (value: (row: Asked) => string | null): (string | null)[] => rows.map(value);
  return sql`user_input_asked AS (
    INSERT INTO runplane.input_requests (tenant_id, session_id, request_id, state, revision, turn_id, prompt, input_schema, content_hash, run_id,
      command_id, created_at, expires_at, requested_sequence, value, actor, resolution_reason, resolved_at, resolved_sequence)
    SELECT d.tenant_id, d.session_id, q.id, q.state::runplane.input_state, q.revision, q.turn_id, q.prompt, q.schema::json, q.hash, q.run_id,
      q.command_id, q.created_at::timestamptz, q.expires_at::timestamptz, q.requested::bigint, q.value::json, q.actor::json, q.why,
      q.resolved_at::timestamptz, q.resolved::bigint
    FROM d, unnest(${texts(({ id }) => id)}::text[], ${texts(({ state }) => state)}::text[], ${rows.map(({ revision }) => revision)}::int[],
      ${texts(({ asked }) => asked.turnId)}::text[], ${texts(({ asked }) => asked.prompt)}::text[], ${texts(({ asked }) => asked.inputSchema)}::text[],
      ${texts(({ contentHash }) => contentHash)}::text[], ${texts(({ asked }) => asked.runId)}::text[], ${texts(({ asked }) => asked.commandId)}::text[],
      ${texts(({ asked }) => asked.createdAt)}::text[], ${texts(({ asked }) => asked.expiresAt)}::text[],
      ${texts(({ requestedSequence }) => String(requestedSequence))}::text[], ${texts(({ resolution }) => resolution?.value ?? null)}::text[],
      ${texts(({ resolution }) => resolution?.actor ?? null)}::text[], ${texts(({ resolution }) => resolution?.reason ?? null)}::text[],
      ${texts(({ resolution }) => (resolution === undefined ? null : wireTime(resolution.at)))}::text[],
      ${texts(({ resolution }) => (resolution === undefined ? null : String(resolution.sequence)))}::text[])
      AS q (id, state, revision, turn_id, prompt, schema, hash, run_id, command_id, created_at, expires_at, requested, value, actor, why, resolved_at, resolved)
  )`;
}

export function resolveInputRequests(rows: readonly Resolved[]): Sql {
  const texts = (value: (resolution: Resolution<InputOutcome>) => string | null): (string | null)[] =>
    rows.map(({ resolution }) => value(resolution));
  return sql`user_input_resolved AS (
    UPDATE runplane.input_requests i SET state = q.state::runplane.input_state, revision = i.revision + 1, value = q.value::json, actor = q.actor::json,
      resolution_reason = q.reason, resolved_at = q.at::timestamptz, resolved_sequence = q.sequence::bigint
    FROM d, unnest(${rows.map(({ id }) => id)}::text[], ${texts(({ state }) => state)}::text[], ${texts(({ value }) => value)}::text[],
      ${texts(({ actor }) => actor)}::text[], ${texts(({ reason }) => reason)}::text[], ${texts(({ at }) => wireTime(at))}::text[],
      ${texts(({ sequence }) => String(sequence))}::text[]) AS q (id, state, value, actor, reason, at, sequence)
    WHERE i.tenant_id = d.tenant_id AND i.session_id = d.session_id AND i.request_id = q.id AND i.state = 'pending'
  )`;
}
