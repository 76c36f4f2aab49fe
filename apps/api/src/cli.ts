#!/usr/bin/env node
import { Command, CommanderError } from 'commander';
import { isDomainError, redactError } from '@runplane/contracts';
import { isConnectionLoss, sqlStateOf } from '@runplane/database';
import { addFeedCommands } from './cli/feed';
import { addKeyCommands } from './cli/keys';
import { addMigrateCommand } from './cli/migrate';
import { addRelayCommands } from './cli/relay';
import { addRetentionCommands } from './cli/retention';
import { addSessionCommands } from './cli/sessions';
import { Terminal } from './cli/terminal';
import { addTenantCommands } from './cli/tenants';
import { addWhyCommands } from './cli/why';

/** The operator's command line. It works on the database alone; the API need not run. */
export function buildCli(terminal: Terminal): Command {
  const program = new Command('runplane')
    .description('Tenants, API keys, migrations, retention, views and sinks of a Runplane store, and why something does not move.')
    .option('--database-url <url>', 'the store; default: DATABASE_URL, else the embedded PostgreSQL in RUNPLANE_DATA_DIR')
    .option('--json', 'print JSON, for programs')
    .showHelpAfterError('(--help shows examples)')
    .configureOutput({ writeOut: (text) => terminal.out(text), writeErr: (text) => terminal.err(text) })
    .exitOverride();
  addTenantCommands(program, terminal);
  addKeyCommands(program, terminal);
  addMigrateCommand(program, terminal);
  addWhyCommands(program, terminal);
  addRetentionCommands(program, terminal);
  addSessionCommands(program, terminal);
  addFeedCommands(program, terminal);
  addRelayCommands(program, terminal);
  return program;
}

/** Runs one command line; returns the exit code: 0, 1 for a refusal or failure, 2 for a wrong command line. */
export async function runCli(args: readonly string[], terminal: Terminal = new Terminal()): Promise<number> {
  try {
    await buildCli(terminal).parseAsync(args, { from: 'user' });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    terminal.err(`runplane: ${redactError(error)}\n`);
    if (isAboutDatabase(error)) {
      terminal.err('Look at DATABASE_URL (or --database-url); `runplane migrate` makes the tables in an empty database.\n');
    }
    return 1;
  }
}

function isAboutDatabase(error: unknown): boolean {
  if (isDomainError(error)) return error.code === 'database_unavailable';
  const isNoUrl = error instanceof TypeError && 'code' in error && error.code === 'ERR_INVALID_URL';
  return isNoUrl || isConnectionLoss(error) || sqlStateOf(error) !== undefined;
}

if (require.main === module) {
  void runCli(process.argv.slice(2)).then((code) => {
    process.exitCode = code;
  });
}
