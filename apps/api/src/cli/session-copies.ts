import { createReadStream } from 'node:fs';
import type { CopiedSession } from '@runplane/contracts';
import { deleteSession } from '@runplane/runs';
import { inTransaction } from '@runplane/database';
import { forkSession, importSession, readSessionLines } from '@runplane/sessions';
import { InvalidArgumentError, type Command } from 'commander';
import { withDb, type Terminal } from './terminal';

interface OfTenant {
  tenant: string;
}

/** A session as a file, as another one, and as none. */
export function addSessionCopyCommands(sessions: Command, terminal: Terminal): void {
  sessions
    .command('export <session-id>')
    .description('Print a session as lines of JSON: its header, then one event per line.')
    .requiredOption('--tenant <id>', 'whose session')
    .addHelpText('after', '\nExample:\n  runplane sessions export chat-7 --tenant acme > chat-7.ndjson')
    .action(async (sessionId: string, { tenant: tenantId }: OfTenant, command: Command) => {
      await withDb(command, async (db) => {
        for await (const line of readSessionLines(db, { tenantId, sessionId })) terminal.out(line);
      });
    });
  sessions
    .command('import <file>')
    .description(
      'Make a session from its lines of JSON; - reads them from standard input. Its id is that of the header, and must not be in use.',
    )
    .requiredOption('--tenant <id>', 'whose session it becomes')
    .addHelpText(
      'after',
      '\nExamples:\n  runplane sessions import chat-7.ndjson --tenant acme\n  gunzip -c chat-7.gz | runplane sessions import - --tenant acme',
    )
    .action(async (file: string, { tenant: tenantId }: OfTenant, command: Command) => {
      const content: AsyncIterable<Uint8Array> = file === '-' ? process.stdin : createReadStream(file);
      const copied = await withDb(command, (db) => importSession(db, { tenantId, content }));
      terminal.print(command, copied, () => describe(copied));
    });
  sessions
    .command('fork <session-id> <new-session-id>')
    .description('Make a session of its own from another one, as it was up to an event.')
    .requiredOption('--tenant <id>', 'whose sessions')
    .option('--through <sequence>', 'the last event that is copied; default: all there are', parseSequence)
    .addHelpText('after', '\nExample:\n  runplane sessions fork chat-7 chat-7-again --tenant acme --through 41')
    .action(
      async (sessionId: string, newSessionId: string, { tenant: tenantId, through }: OfTenant & { through?: number }, command: Command) => {
        const copied = await withDb(command, (db) => forkSession(db, { tenantId, sessionId, newSessionId, throughSequence: through }));
        terminal.print(command, copied, () => describe(copied));
      },
    );
  sessions
    .command('delete <session-id>')
    .description('Delete a session with its log and its runs: at once nobody sees it, its rows are erased in the background.')
    .requiredOption('--tenant <id>', 'whose session')
    .option('--reason <text>', 'told in the tombstone')
    .addHelpText('after', '\nExample:\n  runplane sessions delete chat-7 --tenant acme --reason "asked by its owner"')
    .action(async (sessionId: string, { tenant: tenantId, reason }: OfTenant & { reason?: string }, command: Command) => {
      const deleted = await withDb(command, (db) =>
        inTransaction(db, (tx) => deleteSession(tx, { tenantId, sessionId, reason, requestedBy: 'cli' })),
      );
      terminal.print(command, deleted, () => `${sessionId} ${deleted.changed ? 'is deleted' : 'was deleted before'}: ${deleted.deletedAt}`);
    });
}

function parseSequence(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('Say the sequence of an event, from 0.');
  return Number(text);
}

function describe({ sessionId, copiedThrough, lastSequence, closed }: CopiedSession): string {
  return `${sessionId}: ${copiedThrough + 1} events copied, ${closed} open things closed; its log ends at ${lastSequence}.`;
}
