import {
  APPROVAL_RESOLUTIONS,
  INPUT_OUTCOMES,
  normalizeJson,
  SESSION_EVENT_TYPES,
  type JsonObject,
  type SessionLogEvent,
} from '@runplane/contracts';
import { ensureTenant, joinSql, sql, type Sql } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import fc from 'fast-check';
import { emptyContext } from '../testing/told';
import { PROJECTIONS } from './index';
import type { FoldContext, FoldedHead } from './projection';

// VIEW-1: whatever the log holds, in whatever batches it was appended, every view is the fold of the log from its start.

const t = useDatabase({ checkInvariants: false });

/** The views of the log as they are after these events, written page by page under `tenantId`. */
async function fold(tenantId: string, sessionId: string, pages: readonly (readonly SessionLogEvent[])[]): Promise<FoldedHead> {
  let head: FoldedHead = emptyContext.head;
  for (const page of pages) {
    const context: FoldContext = { tenantId, sessionId, header: { id: sessionId }, head };
    const parts: Sql[] = [];
    for (const projection of PROJECTIONS) {
      const events = page.filter(({ type }) => projection.touches(type));
      if (events.length === 0) continue;
      const load = projection.load(events, context);
      const [row] = load === undefined ? [] : await t.db.sql.query(sql`SELECT (${load})::text AS loaded`);
      const loaded: unknown = row === undefined ? undefined : JSON.parse((row['loaded'] as string | null) ?? 'null');
      const state = events.reduce((before, event) => projection.apply(before, event), projection.initial(loaded, context));
      parts.push(...projection.writes(state));
      head = { ...head, ...projection.head?.(state) };
    }
    await t.db.sql
      .query(sql`WITH d AS MATERIALIZED (SELECT ${tenantId}::text AS tenant_id, ${sessionId}::text AS session_id, runplane.app_now() AS now),
      out AS MATERIALIZED (SELECT 0::bigint AS sequence, 0::bigint AS tx, 0::bigint AS position WHERE false)
      ${parts.length === 0 ? sql`` : sql`, ${joinSql(parts, ', ')}`} SELECT 1 AS done`);
  }
  return head;
}

const TABLES = [
  'session_views',
  'channel_bindings',
  'channel_inbounds',
  'channel_routes',
  'channel_deliveries',
  'context_windows',
  'context_notes',
  'context_history',
  'approvals',
  'input_requests',
  'submissions',
];

/** All rows of the views as JSON text, key order included. */
async function viewsOf(tenantId: string, sessionId: string): Promise<string[]> {
  const all = TABLES.map(
    (table) => `SELECT '${table} ' || replace(to_json(t)::text, '"tenant_id":"${tenantId}",', '') AS row
    FROM runplane.${table} t WHERE tenant_id = '${tenantId}' AND session_id = '${sessionId}'`,
  );
  const { rows } = await t.db.pool.query<{ row: string }>(`SELECT row FROM (${all.join(' UNION ALL ')}) r ORDER BY row COLLATE "C"`);
  return rows.map(({ row }) => row);
}

const id = fc.constantFrom('a', 'b', 'legacy-s', '会', '', null, 7);
const anything = fc.oneof(id, fc.jsonValue({ maxDepth: 2 }));
/** Values that fit, for every field that a projection reads; often another value. */
const FIELDS: Record<string, fc.Arbitrary<unknown>> = {
  approval_id: id,
  request_id: id,
  operation_id: id,
  submission_id: id,
  delivery_id: id,
  input_id: id,
  message_id: id,
  channel_id: fc.constant('tg'),
  account_id: fc.constantFrom('x', 1),
  conversation_id: id,
  kind: fc.constantFrom('turn', 'other'),
  payload: anything,
  source: fc.constant({}),
  error: anything,
  activity: id,
  status: id,
  message_source: fc.record({ channelId: fc.constant('tg'), account_id: fc.constant('x'), conversation_id: id }),
  target: fc.constantFrom('next-turn', 'next-step'),
  wakeup: fc.boolean(),
  index: fc.integer({ min: -1, max: 3 }),
  delete_count: fc.integer({ min: 0, max: 2 }),
  inserted: fc.array(fc.record({ input_id: id }), { maxLength: 3 }),
  windowId: id,
  previousWindowId: id,
  startedSequence: fc.integer({ min: 0, max: 30 }),
  trigger: id,
  carriedEventSequences: fc.array(fc.oneof(fc.integer({ min: -1, max: 40 }), anything), { maxLength: 6 }),
  path: id,
  text: fc.string({ unit: 'binary' }),
  message: anything,
  content: anything,
  name: id,
  arguments: anything,
  expires_at_ms: fc.integer({ min: 0, max: 2_000_000_000 }),
  outcome: fc.constantFrom(...INPUT_OUTCOMES),
  resolution: fc.constantFrom(...APPROVAL_RESOLUTIONS),
  timeout_seconds: fc.integer({ min: -1, max: 1000 }),
  attention_required: fc.boolean(),
};
/** Integers that JSON keeps. */
const storable = (_: string, value: unknown): unknown => (Number.isInteger(value) && !Number.isSafeInteger(value) ? 1 : value);
const data: fc.Arbitrary<JsonObject> = fc
  .record(
    Object.fromEntries(
      Object.entries(FIELDS).map(([name, value]) => [name, fc.oneof({ weight: 12, arbitrary: value }, anything, fc.constant(undefined))]),
    ),
  )
  .map((value) => normalizeJson(JSON.parse(JSON.stringify(value, storable)) as JsonObject).value);
const event = fc.record({
  type: fc.constantFrom(...SESSION_EVENT_TYPES, 'other/type', 'constructor'),
  turnId: fc.constantFrom(null, 't1', 't2'),
  data,
});
const pages = fc.array(fc.array(event, { minLength: 1, maxLength: 12 }), { minLength: 1, maxLength: 8 });

let cases = 0;
const seen = new Set<string>();
test('views are the same whatever the pages of a fold', async () => {
  await ensureTenant(t.db.sql, 'acme');
  await fc.assert(
    fc.asyncProperty(pages, async (given) => {
      cases += 1;
      const sessionId = `s-${cases}`;
      let sequence = 0;
      const log = given.map((page) =>
        page.map(({ type, turnId, data: told }): SessionLogEvent => ({
          sequence: sequence++,
          type,
          time: 1_700_000_000_000 + sequence * 1000,
          turnId,
          stepId: turnId,
          data: told,
          runId: null,
          commandId: null,
        })),
      );
      const live = await fold('acme', sessionId, log);
      const folded = await fold('folded', sessionId, [log.flat()]);
      expect(live).toEqual(folded);
      const views = await viewsOf('acme', sessionId);
      expect(views).toEqual(await viewsOf('folded', sessionId));
      for (const row of views) seen.add(row.split(' ', 1)[0] ?? '');
    }),
    { numRuns: 25 },
  );
  expect([...seen].sort()).toEqual([...TABLES].sort()); // the logs are not all empty of meaning
});
