import {
  APPROVAL_RESOLUTIONS,
  INPUT_OUTCOMES,
  isDomainError,
  normalizeJson,
  SESSION_EVENT_TYPES,
  type JsonObject,
  type SessionProjection,
} from '@runplane/contracts';
import { ensureTenant, inTransaction, openDb, type Db } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import fc from 'fast-check';
import { appendEvents } from '../append-events';
import { createSession } from '../create-session';
import { EMPTY_HEAD, foldPage, listLog } from '../rebuild/fold-log';
import { rebuildSession } from '../rebuild/rebuild-session';
import { shadowOf } from '../rebuild/shadow-views.sql';
import type { StorableSessionEvent } from '../session-event-input';
import { readHead } from '../session-head.sql';
import type { SessionKey } from '../session.sql';
import { projectionsOf } from './index';

// VIEW-1: whatever a log holds and in whatever batches it was appended, every view is the fold of the log from its start, and what a rebuild makes.

/** What a team might keep: how many turns there were, and the last one's name. */
const turns: SessionProjection<{ count: number; last: string | null }> = {
  key: 'turns',
  version: 1,
  touches: (type) => type.startsWith('turn/'),
  initial: () => ({ count: 0, last: null }),
  apply: ({ count }, { turnId }) => ({ count: count + 1, last: turnId }),
};

let db: Db;
afterAll(() => db.close()); // before the database goes
const t = useDatabase({ checkInvariants: false });
beforeAll(async () => {
  await ensureTenant(t.db.sql, 'acme');
  db = await openDb({ url: t.url, projections: [turns] });
});

const TABLES = [
  'approvals',
  'channel_bindings',
  'channel_deliveries',
  'channel_inbounds',
  'channel_routes',
  'context_history',
  'context_notes',
  'context_windows',
  'input_requests',
  'session_views',
  'submissions',
];

/** What no log tells of a submission: how its head was claimed, and fenced. A rebuild keeps it. */
const COORDINATION = '"(attempts|claim_epoch)":[0-9]+,';

/** All rows of the views as JSON text, key order included. */
async function viewsOf(tenantId: string, sessionId: string): Promise<string[]> {
  const all = TABLES.map(
    (
      table,
    ) => `SELECT '${table} ' || regexp_replace(regexp_replace(to_json(t)::text, '"tenant_id":"[^"]*",', ''), '${table === 'submissions' ? COORDINATION : '$^'}', '', 'g') AS row
      FROM runplane.${table} t WHERE tenant_id = $1 AND session_id = $2`,
  );
  const { rows } = await t.db.pool.query<{ row: string }>(`SELECT row FROM (${all.join(' UNION ALL ')}) r ORDER BY row COLLATE "C"`, [
    tenantId,
    sessionId,
  ]);
  return rows.map(({ row }) => row);
}

/** Appends all that the guards let in: the whole batch, otherwise one by one. */
async function append(key: SessionKey, events: StorableSessionEvent[]): Promise<void> {
  try {
    await appendEvents(db, { ...key, events, epoch: null, sequence: undefined, appendId: undefined });
  } catch (error) {
    if (!isDomainError(error)) throw error;
    if (events.length > 1) for (const one of events) await append(key, [one]);
  }
}

const id = fc.constantFrom('a', 'b', 'legacy-s', '会', '', null, 7);
const anything = fc.oneof(id, fc.jsonValue({ maxDepth: 2 }));
/** Values that fit, for every field that a projection reads. */
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
/** Often something that fits no schema, as an import may bring it. */
const data = fc
  .record(
    Object.fromEntries(
      Object.entries(FIELDS).map(([name, value]) => [name, fc.oneof({ weight: 12, arbitrary: value }, anything, fc.constant(undefined))]),
    ),
  )
  .map((value) => normalizeJson(JSON.parse(JSON.stringify(value, storable)) as JsonObject));
type Told = readonly [type: string, turnId: string | null, data: { value: JsonObject; text: string }];
const toldEvent = ([type, turnId, { value, text }]: Told): StorableSessionEvent => ({
  type,
  turnId,
  stepId: turnId,
  data: value,
  dataText: text,
  time: null,
  sequence: null,
  runId: null,
  commandId: null,
});
const event = fc
  .tuple(fc.constantFrom(...SESSION_EVENT_TYPES, 'other/type', 'constructor'), fc.constantFrom(null, 't1', 't2'), data)
  .map(toldEvent);
const batches = fc.array(fc.array(event, { minLength: 1, maxLength: 12 }), { minLength: 1, maxLength: 4 });

/** A row in every table. */
const here = { channel_id: 'tg', account_id: 'x', conversation_id: 'c' };
const everything = Object.entries<JsonObject>({
  'approval/requested': { approval_id: 'a' },
  'user-input/requested': { request_id: 'a', expires_at_ms: 9 },
  'submission/accepted': { operation_id: 'a', submission_id: 'a', kind: 'turn' },
  'channel/bound': here,
  'channel/inbound': { ...here, message_id: 1 },
  'channel/delivery/queued': { delivery_id: 'd' },
  'input/enqueued': { input_id: 'i', message_source: here },
  'user/message': { content: 'hello' },
  'context/window-started': { windowId: 'w' },
  'context/note-written': { path: 'p', text: 'n' },
  'turn/start': {},
}).map(([type, value]) => toldEvent([type, 't1', normalizeJson(value)]));

let cases = 0;
const seen = new Set<string>();
/** More of them for a long search: PROPERTY_RUNS=500. */
const numRuns = Number(process.env['PROPERTY_RUNS'] ?? 5);
test(
  'every view is the fold of the log, in one go and by a rebuild, an interrupted one too',
  async () => {
    await fc.assert(
      fc.asyncProperty(batches, async (given) => {
        cases += 1;
        const key = { tenantId: 'acme', sessionId: `s-${cases}` };
        const header = { id: key.sessionId };
        await inTransaction(db, (tx) => createSession(tx, { tenantId: key.tenantId, header }));
        for (const batch of given) await append(key, batch);

        const live = await viewsOf(key.tenantId, key.sessionId);
        const { head } = (await readHead(db.sql, key)) ?? {};
        const log = await listLog(db.sql, key, { after: -1, limit: 1_000, bytes: 2 ** 30 });
        const folded = await inTransaction(db, (tx) =>
          foldPage(tx, { ...key, header }, { events: log, head: EMPTY_HEAD, projections: projectionsOf(db) }),
        );
        expect(head).toMatchObject(folded);
        expect(live).toEqual(await viewsOf(shadowOf(key.tenantId), key.sessionId));

        expect(await rebuildSession(db, key, { owner: 'test', pageEvents: 15 })).toMatchObject({ events: log.length, changedRows: 0 });
        // Interrupted behind its first page, appended to, and taken up again.
        const stop = new AbortController();
        const interrupted = rebuildSession(db, key, { owner: 'test', pageEvents: 7, signal: stop.signal, onProgress: () => { stop.abort(); } }); // prettier-ignore
        await interrupted.catch(() => undefined);
        await append(key, given.flat());
        expect(await rebuildSession(db, key, { owner: 'test', pageEvents: 11 })).toMatchObject({ changedRows: 0 });
        for (const row of live) seen.add(row.split(' ', 1)[0] ?? '');
      }),
      { numRuns, examples: [[[everything]]] },
    );
    expect([...seen].sort()).toEqual(TABLES); // the logs are not all empty of meaning
  },
  60_000 + numRuns * 10_000,
);
