import { sql, type Sql } from '@runplane/database';
import type { ChannelState, InboundKey } from './channel';
import type { EndedTurn, FoldContext } from './projection';

const texts = (values: readonly (string | number | null)[]): (string | null)[] =>
  values.map((value) => (value === null ? null : String(value)));
const json = (value: unknown): string | null => (value === null || value === undefined ? null : JSON.stringify(value));
/** A point in time, of milliseconds since 1970 as text. */
export const time = (ms: Sql): Sql => sql`('epoch'::timestamptz + ${ms}::bigint * interval '1 millisecond')`;

/** The messages of these keys that have come in before. */
export function channelLoad({ tenantId, sessionId }: Pick<FoldContext, 'tenantId' | 'sessionId'>, keys: readonly InboundKey[]): Sql {
  return sql`(SELECT json_agg(json_build_object('address', i.address, 'messageId', i.message_id, 'sequence', i.sequence::text))
    FROM unnest(${keys.map(({ address }) => address)}::text[], ${keys.map(({ messageId }) => messageId)}::text[]) AS k(address, message_id)
    JOIN runplane.channel_inbounds i ON i.tenant_id = ${tenantId}::text AND i.session_id = ${sessionId}::text
      AND i.address = k.address AND i.message_id = k.message_id)`;
}

export function channelWrites(state: ChannelState): readonly Sql[] {
  return [...bindingWrites(state), ...inboundWrites(state), ...routeWrites(state), ...deliveryWrites(state)];
}

function bindingWrites({ bindings }: ChannelState): readonly Sql[] {
  const bound = [...bindings].flatMap(([address, binding]) => (binding === null ? [] : [{ address, ...binding }]));
  const unbound = [...bindings].flatMap(([address, binding]) => (binding === null ? [address] : []));
  const parts: Sql[] = [];
  if (bound.length > 0) {
    parts.push(sql`channel_bound AS (
      INSERT INTO runplane.channel_bindings (tenant_id, session_id, address, sequence, data)
      SELECT d.tenant_id, d.session_id, b.address, b.sequence::bigint, b.data::json
      FROM d CROSS JOIN unnest(${bound.map(({ address }) => address)}::text[], ${texts(bound.map(({ sequence }) => sequence))}::text[],
        ${bound.map(({ data }) => json(data))}::text[]) AS b(address, sequence, data)
      ON CONFLICT (tenant_id, session_id, address) DO UPDATE SET sequence = excluded.sequence, data = excluded.data)`);
  }
  if (unbound.length > 0) {
    parts.push(sql`channel_unbound AS (
      DELETE FROM runplane.channel_bindings b USING d
      WHERE b.tenant_id = d.tenant_id AND b.session_id = d.session_id AND b.address = ANY(${unbound}::text[]))`);
  }
  return parts;
}

function inboundWrites({ inbounds }: ChannelState): readonly Sql[] {
  const added = [...inbounds.values()].filter(({ data }) => data !== undefined);
  if (added.length === 0) return [];
  return [
    sql`channel_inbounds AS (
      INSERT INTO runplane.channel_inbounds (tenant_id, session_id, address, message_id, sequence, data, created_at)
      SELECT d.tenant_id, d.session_id, i.address, i.message_id, i.sequence::bigint, i.data::json, ${time(sql`i.time`)}
      FROM d CROSS JOIN unnest(${added.map(({ address }) => address)}::text[], ${added.map(({ messageId }) => messageId)}::text[],
        ${texts(added.map(({ sequence }) => sequence))}::text[], ${added.map(({ data }) => json(data))}::text[],
        ${texts(added.map((inbound) => inbound.time))}::text[]) AS i(address, message_id, sequence, data, time)
      ON CONFLICT (tenant_id, session_id, address, message_id) DO UPDATE SET sequence = excluded.sequence, data = excluded.data,
        created_at = excluded.created_at)`,
  ];
}

function routeWrites({ routes }: ChannelState): readonly Sql[] {
  const all = [...routes].map(([turnId, route]) => ({ turnId, ...route }));
  const set = all.filter(({ source }) => source !== undefined);
  const ended = all.flatMap(({ turnId, source, endedAt }) => (source === undefined && endedAt !== null ? [{ turnId, endedAt }] : []));
  const parts: Sql[] = [];
  if (set.length > 0) {
    parts.push(sql`channel_routes AS (
      INSERT INTO runplane.channel_routes (tenant_id, session_id, turn_id, sequence, source, ended_at)
      SELECT d.tenant_id, d.session_id, r.turn_id, r.sequence::bigint, r.source::json, ${time(sql`r.ended`)}
      FROM d CROSS JOIN unnest(${set.map(({ turnId }) => turnId)}::text[], ${texts(set.map(({ sequence }) => sequence))}::text[],
        ${set.map(({ source }) => json(source))}::text[], ${texts(set.map(({ endedAt }) => endedAt))}::text[]) AS r(turn_id, sequence, source, ended)
      ON CONFLICT (tenant_id, session_id, turn_id) DO UPDATE SET sequence = excluded.sequence, source = excluded.source, ended_at = excluded.ended_at)`);
  }
  if (ended.length > 0) parts.push(endRoutes(ended));
  return parts;
}

/** Ends the routes of turns of one session. */
export const endRoutes = (turns: readonly EndedTurn[]): Sql => sql`channel_routes_ended AS (
      UPDATE runplane.channel_routes r SET ended_at = ${time(sql`e.time`)}
      FROM d CROSS JOIN ${endedTurnRows(turns)} AS e(turn_id, time)
      WHERE r.tenant_id = d.tenant_id AND r.session_id = d.session_id AND r.turn_id = e.turn_id)`;

export const endedTurnRows = (turns: readonly EndedTurn[]): Sql =>
  sql`unnest(${turns.map(({ turnId }) => turnId)}::text[], ${texts(turns.map(({ endedAt }) => endedAt))}::text[])`;

function deliveryWrites({ deliveries }: ChannelState): readonly Sql[] {
  if (deliveries.size === 0) return [];
  const all = [...deliveries].map(([id, delivery]) => ({ id, ...delivery }));
  const queued = all.filter(({ isQueuedHere }) => isQueuedHere).map(({ id }) => id);
  return [
    sql`channel_deliveries AS (
      INSERT INTO runplane.channel_deliveries AS t (tenant_id, session_id, delivery_id, state, data, error, queued_sequence, completed_sequence, updated_at)
      SELECT d.tenant_id, d.session_id, x.id, x.state::runplane.delivery_state, x.data::json, x.error, x.queued::bigint, x.completed::bigint, ${time(sql`x.time`)}
      FROM d CROSS JOIN unnest(${all.map(({ id }) => id)}::text[], ${all.map(({ state }) => state)}::text[], ${all.map(({ data }) => json(data))}::text[],
        ${all.map(({ error }) => error)}::text[], ${texts(all.map(({ queuedSequence }) => queuedSequence))}::text[],
        ${texts(all.map(({ completedSequence }) => completedSequence))}::text[], ${texts(all.map((delivery) => delivery.time))}::text[])
        AS x(id, state, data, error, queued, completed, time)
      ON CONFLICT (tenant_id, session_id, delivery_id) DO UPDATE SET state = excluded.state, error = excluded.error,
        completed_sequence = excluded.completed_sequence, updated_at = excluded.updated_at,
        data = CASE WHEN excluded.delivery_id = ANY(${queued}::text[]) THEN excluded.data ELSE t.data END,
        queued_sequence = CASE WHEN excluded.delivery_id = ANY(${queued}::text[]) THEN excluded.queued_sequence ELSE t.queued_sequence END)`,
  ];
}
