import { migrate } from '@runplane/database';
import type { Command } from 'commander';
import { withDatabaseUrl, type Terminal } from './terminal';

export function addMigrateCommand(program: Command, terminal: Terminal): void {
  program
    .command('migrate')
    .description(
      'Apply the migrations that the database does not have yet. The same work as `prisma migrate deploy`; either may follow the other.',
    )
    .addHelpText('after', '\nExample:\n  DATABASE_URL=postgresql://… runplane migrate')
    .action(async (_options, command: Command) => {
      const applied = await withDatabaseUrl(command, (url) => migrate(url));
      terminal.print(command, { applied }, () => (applied.length === 0 ? 'Nothing to do.' : `Applied ${applied.join(', ')}.`));
    });
}
