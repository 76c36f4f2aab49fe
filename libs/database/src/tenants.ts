import { parseInput, RetentionOverride, TenantNotFound, TenantSettings } from '@runplane/contracts';
import { z } from 'zod';
import { column, maybeRow, rows } from './rows';
import { sql, type SqlExecutor } from './sql';

const TenantRow = z.object({ id: column.text, settings: column.jsonObject, createdAt: column.time });

export interface Tenant {
  readonly id: string;
  readonly settings: TenantSettings;
  readonly createdAt: string;
}

const toTenant = (row: z.infer<typeof TenantRow>): Tenant => ({ ...row, settings: TenantSettings.parse(row.settings) });
const COLUMNS = sql`id AS "id", settings::text AS "settings", runplane.wire_time(created_at) AS "createdAt"`;

/** Reads a tenant. Errors: TenantNotFound. */
export async function requireTenant(on: SqlExecutor, tenantId: string): Promise<Tenant> {
  const row = await maybeRow(on, TenantRow, sql`SELECT ${COLUMNS} FROM runplane.tenants WHERE id = ${tenantId}::text`);
  if (row === undefined)
    throw new TenantNotFound(`There is no tenant ${tenantId}: make it first (runplane tenants create ${tenantId}).`, { tenantId });
  return toTenant(row);
}

/** Makes a tenant unless it is there; `created` tells which. Its settings stay as they are when it is there. */
export async function ensureTenant(
  on: SqlExecutor,
  tenantId: string,
  settings: z.input<typeof TenantSettings> = {},
): Promise<{ created: boolean }> {
  TenantSettings.parse(settings); // stored as given: a default of a later release is to reach tenants that never chose
  const made = await rows(
    on,
    z.object({ id: column.text }),
    sql`INSERT INTO runplane.tenants (id, settings) VALUES (${tenantId}::text, ${JSON.stringify(settings)}::jsonb)
        ON CONFLICT (id) DO NOTHING RETURNING id AS "id"`,
  );
  return { created: made.length === 1 };
}

/**
 * Changes what a tenant has set about retention: the given fields, the others stay. Returns the tenant.
 * Errors: TenantNotFound; InvalidRequest when the result is no policy.
 */
export async function writeRetention(on: SqlExecutor, tenantId: string, change: RetentionOverride): Promise<Tenant> {
  const given = parseInput(RetentionOverride, change);
  await rows(
    on,
    z.object({ id: column.text }),
    sql`UPDATE runplane.tenants SET settings = settings || jsonb_build_object('retention', coalesce(settings -> 'retention', '{}') || ${JSON.stringify(given)}::jsonb)
        WHERE id = ${tenantId}::text RETURNING id AS "id"`,
  );
  return requireTenant(on, tenantId);
}

/** All tenants, by id. For the operator. */
export async function listTenants(on: SqlExecutor): Promise<Tenant[]> {
  return (await rows(on, TenantRow, sql`SELECT ${COLUMNS} FROM runplane.tenants ORDER BY id`)).map(toTenant);
}
