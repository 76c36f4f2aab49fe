import { BackendCapacity, mergeBackendCapability, type Backend, type JsonObject } from '@runplane/contracts';
import {
  column,
  inLockOrder,
  isTx,
  maybeRow,
  newKeyOf,
  oneRow,
  rows,
  sql,
  takingLock,
  executorOf,
  type At,
  type SqlExecutor,
} from '@runplane/database';
import { z } from 'zod';

const BackendRow = z
  .object({
    profile: column.text,
    capabilities: column.jsonObject,
    capacity: column.jsonObject,
    health: column.jsonObject,
    updatedAt: column.time,
  })
  .transform(({ capabilities, ...row }): Backend => ({
    ...row,
    capabilities: mergeBackendCapability(capabilities),
    capacity: row.capacity,
  }));

const COLUMNS = sql`b.profile AS "profile", b.capabilities::text AS "capabilities", b.capacity::text AS "capacity", b.health::text AS "health",
  runplane.wire_time(b.updated_at) AS "updatedAt"`;

/** All backends, by profile. */
export function listBackendRows(on: SqlExecutor): Promise<Backend[]> {
  return rows(on, BackendRow, sql`SELECT ${COLUMNS} FROM runplane.backends b ORDER BY b.profile COLLATE "C"`);
}

export function findBackend(on: SqlExecutor, profile: string): Promise<Backend | undefined> {
  return maybeRow(on, BackendRow, sql`SELECT ${COLUMNS} FROM runplane.backends b WHERE b.profile = ${profile}::text`);
}

/** Null keeps what is stored. */
export interface BackendFields {
  readonly capabilities: JsonObject | null;
  readonly capacity: JsonObject | null;
  readonly health: JsonObject | null;
}

const jsonText = (value: JsonObject | null): string | null => (value === null ? null : JSON.stringify(value));

/** Stores a backend; what is null keeps its value, or starts as the registry's default. */
export function upsertBackend(at: At, profile: string, fields: BackendFields): Promise<Backend> {
  if (isTx(at)) takingLock(at, 'newKey', newKeyOf.backend(profile));
  const { capabilities, capacity, health } = fields;
  return oneRow(
    executorOf(at),
    BackendRow,
    sql`
    INSERT INTO runplane.backends AS b (profile, capabilities, capacity, health)
    VALUES (${profile}::text, coalesce(${jsonText(capabilities)}::jsonb, '{}'), coalesce(${jsonText(capacity)}::jsonb, '{}'),
      coalesce(${jsonText(health)}::jsonb, '{"status": "registered"}'))
    ON CONFLICT (profile) DO UPDATE SET capabilities = coalesce(${jsonText(capabilities)}::jsonb, b.capabilities),
      capacity = coalesce(${jsonText(capacity)}::jsonb, b.capacity), health = coalesce(${jsonText(health)}::jsonb, b.health), updated_at = runplane.app_now()
    RETURNING ${COLUMNS}`,
  );
}

/** Stores what the operator's file says of each profile, all in one statement, by profile; what it does not say keeps its value. */
export async function upsertBackends(
  at: At,
  given: readonly { profile: string; capabilities: JsonObject; capacity: JsonObject | null }[],
): Promise<{ changed: number }> {
  if (given.length === 0) return { changed: 0 };
  if (isTx(at)) takingLock(at, 'newKey', ...inLockOrder(given.map(({ profile }) => newKeyOf.backend(profile))));
  const changed = await rows(
    executorOf(at),
    z.object({ profile: column.text }),
    sql`
    INSERT INTO runplane.backends AS b (profile, capabilities, capacity, health)
    SELECT g.profile, g.capabilities::jsonb, coalesce(g.capacity::jsonb, '{}'), '{"status": "registered"}'
    FROM unnest(${given.map(({ profile }) => profile)}::text[], ${given.map(({ capabilities }) => JSON.stringify(capabilities))}::text[],
      ${given.map(({ capacity }) => jsonText(capacity))}::text[]) AS g (profile, capabilities, capacity)
    ORDER BY g.profile COLLATE "C"
    ON CONFLICT (profile) DO UPDATE SET capabilities = excluded.capabilities,
      capacity = CASE WHEN excluded.capacity = '{}' THEN b.capacity ELSE excluded.capacity END, updated_at = runplane.app_now()
      WHERE b.capabilities IS DISTINCT FROM excluded.capabilities OR (excluded.capacity <> '{}' AND b.capacity IS DISTINCT FROM excluded.capacity)
    RETURNING b.profile AS "profile"`,
  );
  return { changed: changed.length };
}

/** Notes how a backend is. Undefined: there is no such backend. */
export function writeBackendHealth(at: At, profile: string, health: JsonObject): Promise<Backend | undefined> {
  if (isTx(at)) takingLock(at, 'newKey', newKeyOf.backend(profile));
  return maybeRow(
    executorOf(at),
    BackendRow,
    sql`UPDATE runplane.backends b SET health = ${JSON.stringify(health)}::jsonb, updated_at = runplane.app_now() WHERE b.profile = ${profile}::text
        RETURNING ${COLUMNS}`,
  );
}

const LimitRow = z.object({ profile: column.text, capacity: column.jsonObject });

/** The profiles that may have only so many runners. What is not a number there, whoever wrote it, limits nothing. */
export async function listRunnerLimits(on: SqlExecutor): Promise<ReadonlyMap<string, number>> {
  const found = await rows(
    on,
    LimitRow,
    sql`SELECT b.profile AS "profile", b.capacity::text AS "capacity" FROM runplane.backends b WHERE b.capacity ? 'maxRunners'`,
  );
  return new Map(
    found.flatMap(({ profile, capacity }) => {
      const maxRunners = BackendCapacity.safeParse(capacity).data?.maxRunners;
      return maxRunners === undefined ? [] : [[profile, maxRunners] as const];
    }),
  );
}
