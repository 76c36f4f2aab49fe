import { SCOPES, type Scope } from '@runplane/contracts';
import { InvalidArgumentError, type Command } from 'commander';
import { createApiKey, revokeApiKey } from '../access/api-keys';
import { listApiKeys, type StoredApiKey } from '../access/api-keys.sql';
import { CREDENTIAL_CACHE_MS } from '../access/credentials';
import { table, withDb, type Terminal } from './terminal';

interface CreateOptions {
  tenant: string;
  name: string;
  scope: Scope[];
  expires?: number;
}

export function addKeyCommands(program: Command, terminal: Terminal): void {
  const keys = program.command('keys').description('API keys: a key belongs to one tenant and allows what its scopes say.');
  keys
    .command('create')
    .description('Make a key and print it, this once.')
    .requiredOption('--tenant <id>', 'whose key it is')
    .requiredOption('--name <name>', 'what it is for')
    .requiredOption('--scope <scopes>', `with commas: ${SCOPES.join(', ')}`, parseScopes)
    .option('--expires <time>', 'how long it is valid, as 90d, 12h or 30m; default: until it is revoked', parseLifetime)
    .addHelpText(
      'after',
      '\nExamples:\n  runplane keys create --tenant acme --name web --scope sessions:write,runs:read\n  runplane keys create --tenant acme --name ci --scope admin --expires 30d --json',
    )
    .action(async ({ tenant: tenantId, name, scope: scopes, expires }: CreateOptions, command: Command) => {
      const made = await withDb(command, (db) => createApiKey(db.sql, { tenantId, name, scopes, lifetimeSeconds: expires }));
      terminal.print(command, { ...made, tenantId, name, scopes }, () => made.key);
      terminal.err(`The key ${made.id} of ${tenantId}. Keep it now: it is not shown again.\n`); // so that KEY=$(…) has the key alone
    });
  keys
    .command('list')
    .description('The keys of a tenant, without their secrets.')
    .requiredOption('--tenant <id>', 'whose keys')
    .option('--run-tokens', 'also the tokens of runners')
    .addHelpText('after', '\nExample:\n  runplane keys list --tenant acme')
    .action(async ({ tenant: tenantId, runTokens = false }: { tenant: string; runTokens?: boolean }, command: Command) => {
      const found = await withDb(command, (db) => listApiKeys(db.sql, { tenantId, runTokens }));
      terminal.print(command, found, () => describeKeys(tenantId, found));
    });
  keys
    .command('revoke <key-id>')
    .description('Make a key useless, for good.')
    .addHelpText('after', '\nExample:\n  runplane keys revoke key_0192f0c4-…   (runplane keys list shows the ids)')
    .action(async (keyId: string, _options, command: Command) => {
      const revoked = await withDb(command, (db) => revokeApiKey(db.sql, keyId));
      terminal.print(command, revoked, () => `Revoked ${keyId}; running processes let it go within ${CREDENTIAL_CACHE_MS / 1000} s.`);
    });
}

function describeKeys(tenantId: string, found: readonly StoredApiKey[]): string {
  if (found.length === 0) return `${tenantId} has no key: runplane keys create --tenant ${tenantId} --name … --scope …`;
  const rows = found.map((key) => [key.id, key.name, key.scopes.join(','), key.lastUsedAt ?? 'never', stateOf(key)]);
  return table([['ID', 'NAME', 'SCOPES', 'LAST USED', 'STATE'], ...rows]);
}

function stateOf({ revokedAt, expiresAt }: StoredApiKey): string {
  if (revokedAt !== null) return `revoked ${revokedAt}`;
  return expiresAt === null ? 'valid' : `valid until ${expiresAt}`;
}

function parseScopes(text: string): Scope[] {
  return text.split(',').map((word) => {
    const scope = SCOPES.find((each) => each === word.trim());
    if (scope === undefined) throw new InvalidArgumentError(`"${word}" is no scope; these are: ${SCOPES.join(', ')}.`);
    return scope;
  });
}

const SECONDS_OF = { d: 86_400, h: 3_600, m: 60 } as const;

function parseLifetime(text: string): number {
  const [, amount, unit] = /^([1-9]\d{0,3})([dhm])$/.exec(text) ?? [];
  if (amount === undefined || unit === undefined) throw new InvalidArgumentError('Say how long, as 90d, 12h or 30m.');
  return Number(amount) * SECONDS_OF[unit as keyof typeof SECONDS_OF];
}
