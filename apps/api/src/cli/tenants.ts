import { InvalidIdentifier } from '@runplane/contracts';
import { ensureTenant, listTenants } from '@runplane/database';
import type { Command } from 'commander';
import { addRetentionPolicyCommand } from './retention';
import { table, withDb, type Terminal } from './terminal';

/** Part of stream names and partition keys, so narrower than other identifiers. */
const TENANT_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;

export function addTenantCommands(program: Command, terminal: Terminal): void {
  const tenants = program.command('tenants').description('The customers of this store; everything else belongs to one.');
  tenants
    .command('create <tenant-id>')
    .description('Make a tenant; one that is there is left as it is.')
    .addHelpText('after', '\nExample:\n  runplane tenants create acme')
    .action(async (tenantId: string, _options, command: Command) => {
      requireTenantId(tenantId);
      const { created } = await withDb(command, (db) => ensureTenant(db.sql, tenantId));
      const next = `Next: runplane keys create --tenant ${tenantId} --name my-service --scope runs:read,runs:write`;
      terminal.print(command, { tenantId, created }, () => `${created ? 'Made' : 'There is already'} the tenant ${tenantId}.\n${next}`);
    });
  tenants
    .command('list')
    .description('All tenants.')
    .addHelpText('after', '\nExample:\n  runplane tenants list --json')
    .action(async (_options, command: Command) => {
      const found = await withDb(command, (db) => listTenants(db.sql));
      terminal.print(command, found, () =>
        found.length === 0
          ? 'No tenant yet: runplane tenants create <tenant-id>'
          : table(found.map(({ id, createdAt }) => [id, createdAt])),
      );
    });
  addRetentionPolicyCommand(tenants, terminal);
}

function requireTenantId(tenantId: string): void {
  if (TENANT_ID.test(tenantId)) return;
  const reason = 'a tenant id has 1 to 100 letters, digits, dots, hyphens and underscores, and begins with a letter or digit';
  throw new InvalidIdentifier(`${reason}.`, { reason });
}
