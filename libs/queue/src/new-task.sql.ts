import { QUEUE_TASK_STATES, type JsonObject } from '@runplane/contracts';
import { column, emptySql, joinSql, rawSql, rows, sql, textLines, type Sql, type SqlExecutor } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';

// New tasks, and tasks by the keys under which they were made.

/** What a task is to do: this is what its hash is of. */
export interface TaskWork {
  readonly tenantId: string;
  readonly projectId: string;
  readonly queue: string;
  readonly lane: string;
  readonly backendProfile: string | null;
  readonly providerId: string | null;
  readonly workspaceRef: JsonObject | null;
  readonly sessionRef: JsonObject | null;
  readonly executionPolicy: JsonObject | null;
  readonly resourceBundleRef: JsonObject | null;
  readonly payload: JsonObject;
  readonly references: JsonObject[];
}

export interface NewTask extends Omit<TaskWork, 'payload' | 'references'> {
  readonly id: string;
  readonly title: string;
  readonly priority: number;
  readonly sessionId: string | null;
  /** JSON text, normalized. */
  readonly payload: string;
  readonly payloadHash: string;
  readonly hashVersion: number;
  /** JSON texts. */
  readonly references: string;
  readonly metadata: string;
  readonly idempotencyKey: string | null;
  readonly runAt: string | null;
  readonly maxAttempts: number;
}

const InsertedRow = z.object({ tenantId: column.text, id: column.text.nullable() });

const json = (value: unknown): string | null => (value === null ? null : JSON.stringify(value));

/** What tasks that are made together mostly share. */
const SHARED_TEXTS: Readonly<Record<string, (task: NewTask) => string | null>> = {
  tenant_id: ({ tenantId }) => tenantId,
  project_id: ({ projectId }) => projectId,
  queue: ({ queue }) => queue,
  lane: ({ lane }) => lane,
  backend_profile: ({ backendProfile }) => backendProfile,
  provider_id: ({ providerId }) => providerId,
  workspace_ref: ({ workspaceRef }) => json(workspaceRef),
  session_ref: ({ sessionRef }) => json(sessionRef),
  session_id: ({ sessionId }) => sessionId,
  execution_policy: ({ executionPolicy }) => json(executionPolicy),
  resource_bundle_ref: ({ resourceBundleRef }) => json(resourceBundleRef),
  task_references: ({ references }) => references,
  metadata: ({ metadata }) => metadata,
  run_at: ({ runAt }) => runAt,
};
const SHARED_NUMBERS: Readonly<Record<string, (task: NewTask) => number>> = {
  priority: ({ priority }) => priority,
  hash_version: ({ hashVersion }) => hashVersion,
  max_attempts: ({ maxAttempts }) => maxAttempts,
};

const isSame = <T>([first, ...others]: readonly T[]): boolean => others.every((other) => other === first);

/** Tasks as rows; what all of them share is said once, which spares both sides most of the work. */
function givenTasks(tasks: readonly NewTask[]): Sql {
  const texts = Object.entries(SHARED_TEXTS).map(([name, of]) => ({ name, values: tasks.map(of) }));
  const numbers = Object.entries(SHARED_NUMBERS).map(([name, of]) => ({ name, values: tasks.map(of) }));
  const own = sql`${textLines(tasks.map(({ id }) => id))}, ${tasks.map(({ title }) => title)}::text[], ${textLines(tasks.map(({ payload }) => payload))},
    ${textLines(tasks.map(({ payloadHash }) => payloadHash))}, ${textLines(tasks.map(({ idempotencyKey }) => idempotencyKey))}`;
  const names = 'id, title, payload, payload_hash, idempotency_key';
  if (texts.every(({ values }) => isSame(values)) && numbers.every(({ values }) => isSame(values))) {
    const shared = [
      ...texts.map(({ name, values }) => sql`${values[0] ?? null}::text AS ${rawSql(name)}`),
      ...numbers.map(({ name, values }) => sql`${values[0] ?? null}::int AS ${rawSql(name)}`),
    ];
    return sql`SELECT ${joinSql(shared)}, g.* FROM unnest(${own}) WITH ORDINALITY AS g (${rawSql(names)}, place)`;
  }
  const shared = [...texts.map(({ values }) => textLines(values)), ...numbers.map(({ values }) => sql`${values}::int[]`)];
  const sharedNames = [...texts, ...numbers].map(({ name }) => name).join(', ');
  return sql`SELECT * FROM unnest(${own}, ${joinSql(shared)}) WITH ORDINALITY AS g (${rawSql(names)}, ${rawSql(sharedNames)}, place)`;
}

/**
 * Inserts tasks, and the lanes that are new with them. A task whose key is taken, also by a twin that commits while this waits, is left out of `made`:
 * read it by its key then; and so is one whose tenant is not among `tenants`, which are those that are there.
 *
 * Keys and lanes are inserted in their order, so that two calls cannot wait for each other in a circle.
 */
export async function insertTasks(
  on: SqlExecutor,
  tasks: readonly NewTask[],
): Promise<{ tenants: ReadonlySet<string>; made: ReadonlySet<string> }> {
  // Without keys all are made whose tenant is there: none is inserted on trial, which PostgreSQL logs twice, and none is told of.
  const isKeyed = tasks.some(({ idempotencyKey }) => idempotencyKey !== null);
  const found = await rows(
    on,
    InsertedRow,
    sql`
    WITH tenant AS MATERIALIZED (SELECT id, runplane.app_now() AS now FROM runplane.tenants WHERE id = ANY (${[...new Set(tasks.map(({ tenantId }) => tenantId))]}::text[])),
    given AS MATERIALIZED (${givenTasks(tasks)}
    ), made AS (
      INSERT INTO runplane.queue_tasks (tenant_id, id, project_id, queue, lane, title, priority, backend_profile, provider_id, workspace_ref, session_ref,
        session_id, execution_policy, resource_bundle_ref, payload, payload_hash, hash_version, task_references, metadata, idempotency_key, run_at,
        ready_at, due, max_attempts, changed_tx)
      SELECT tenant.id, g.id, g.project_id, g.queue, g.lane, g.title, g.priority, g.backend_profile, g.provider_id, g.workspace_ref::jsonb, g.session_ref::jsonb,
        g.session_id, g.execution_policy::jsonb, g.resource_bundle_ref::jsonb, g.payload::json, g.payload_hash, g.hash_version::smallint,
        g.task_references::jsonb, g.metadata::jsonb, g.idempotency_key, g.run_at::timestamptz, coalesce(g.run_at::timestamptz, tenant.now),
        coalesce(g.run_at::timestamptz <= tenant.now, true), g.max_attempts, ${feedTx}
      FROM given g JOIN tenant ON tenant.id = g.tenant_id
      ORDER BY g.tenant_id COLLATE "C", g.project_id COLLATE "C", g.idempotency_key COLLATE "C", g.place
      ${isKeyed ? sql`ON CONFLICT (tenant_id, project_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING RETURNING tenant_id, id` : emptySql}
    ), lanes AS (
      INSERT INTO runplane.queue_lanes (tenant_id, queue, lane)
      SELECT x.* FROM (SELECT DISTINCT g.tenant_id, g.queue, g.lane FROM given g JOIN ${isKeyed ? sql`made ON made.id = g.id` : sql`tenant ON tenant.id = g.tenant_id`}) x
      WHERE NOT EXISTS (SELECT FROM runplane.queue_lanes l WHERE l.tenant_id = x.tenant_id AND l.queue = x.queue AND l.lane = x.lane)
      ORDER BY 1, 2, 3
      ON CONFLICT DO NOTHING
    )
    ${
      isKeyed
        ? sql`SELECT tenant.id AS "tenantId", made.id AS "id" FROM tenant LEFT JOIN made ON made.tenant_id = tenant.id`
        : sql`SELECT id AS "tenantId", NULL::text AS "id" FROM tenant`
    }`,
  );
  const tenants = new Set(found.map(({ tenantId }) => tenantId));
  const made = isKeyed
    ? found.flatMap(({ id }) => (id === null ? [] : [id]))
    : tasks.flatMap(({ tenantId, id }) => (tenants.has(tenantId) ? [id] : []));
  return { tenants, made: new Set(made) };
}

const KeyedRow = z.object({
  projectId: column.text,
  idempotencyKey: column.text,
  id: column.text,
  payloadHash: column.text,
  state: column.state(QUEUE_TASK_STATES),
  version: column.int8,
});
export type KeyedTask = z.infer<typeof KeyedRow>;

/** Tasks by project and key. */
export function findTasksByKey(
  on: SqlExecutor,
  tenantId: string,
  keys: readonly { readonly projectId: string; readonly idempotencyKey: string }[],
): Promise<KeyedTask[]> {
  return rows(
    on,
    KeyedRow,
    sql`SELECT t.project_id AS "projectId", t.idempotency_key AS "idempotencyKey", t.id AS "id", t.payload_hash AS "payloadHash", t.state::text AS "state",
          t.version::text AS "version"
        FROM unnest(${keys.map(({ projectId }) => projectId)}::text[], ${keys.map(({ idempotencyKey }) => idempotencyKey)}::text[]) AS g (project_id, key)
        JOIN runplane.queue_tasks t ON t.tenant_id = ${tenantId}::text AND t.project_id = g.project_id AND t.idempotency_key = g.key
        WHERE t.idempotency_key IS NOT NULL`,
  );
}
