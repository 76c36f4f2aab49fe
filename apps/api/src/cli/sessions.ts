import { newId, redactError, type SessionRebuild } from '@runplane/contracts';
import {
  getRebuildStatus,
  getSessionRebuild,
  rebuildAllSessions,
  rebuildSession,
  type RebuildSteps,
  type RebuiltSession,
} from '@runplane/sessions';
import type { Command } from 'commander';
import { ConfigError } from '../config';
import { addSessionCopyCommands } from './session-copies';
import { table, withDb, type Terminal } from './terminal';

interface RebuildOptions {
  tenant?: string;
  all?: boolean;
  stale?: boolean;
}

/** Sessions between two lines of progress. */
const PROGRESS_EVERY = 100;
/** Events of one session between two lines of progress. */
const PROGRESS_EVENTS = 50_000;

export function addSessionCommands(program: Command, terminal: Terminal): void {
  const sessions = program.command('sessions').alias('session').description('The logs of sessions and the views of them.');
  addSessionCopyCommands(sessions, terminal);
  sessions
    .command('rebuild [session-id]')
    .description('Build the views of a session, or of many, anew from their logs. Readers and writers go on meanwhile.')
    .option('--tenant <id>', 'whose session; with --all: only this tenant')
    .option('--all', 'every session')
    .option('--stale', 'those whose views were built by older rules or have failed, and what others have asked for and not finished')
    .addHelpText(
      'after',
      `
A rebuild that was stopped, or killed, goes on from where it has come to when it is asked for again. For many sessions the work can be
shared: start the command with --stale in further terminals. The API does the same in the background.

Examples:
  runplane sessions rebuild chat-7 --tenant acme
  runplane sessions rebuild --stale
  runplane sessions rebuild --all --tenant acme`,
    )
    .action(async (sessionId: string | undefined, { tenant, all = false, stale = false }: RebuildOptions, command: Command) => {
      if ([sessionId !== undefined, all, stale].filter(Boolean).length !== 1)
        command.error('error: name a session, or say --all or --stale (one of them)');
      if (sessionId !== undefined && tenant === undefined) command.error('error: whose session? Add --tenant <id>');
      if (stale && tenant !== undefined) command.error('error: --stale is for all tenants');
      if (sessionId !== undefined && tenant !== undefined) return rebuildOne(command, terminal, { tenantId: tenant, sessionId });
      return rebuildMany(command, terminal, { tenantId: tenant, stale });
    });
  sessions
    .command('views [session-id]')
    .description('Whether the views of a session are as its log says, and how far a rebuild is; without a session: how many are not.')
    .option('--tenant <id>', 'whose')
    .addHelpText('after', '\nExamples:\n  runplane sessions views\n  runplane sessions views chat-7 --tenant acme')
    .action(async (sessionId: string | undefined, { tenant: tenantId }: { tenant?: string }, command: Command) => {
      if (sessionId === undefined) {
        const status = await withDb(command, (db) => getRebuildStatus(db, { tenantId }));
        return terminal.print(command, status, () => table(Object.entries(status).map(([name, value]) => [name, String(value ?? '-')])));
      }
      if (tenantId === undefined) return command.error('error: whose session? Add --tenant <id>');
      const rebuild = await withDb(command, (db) => getSessionRebuild(db, { tenantId, sessionId }));
      terminal.print(command, rebuild, () => describe(rebuild));
    });
}

async function rebuildOne(command: Command, terminal: Terminal, key: { tenantId: string; sessionId: string }): Promise<void> {
  const rebuilt = await withDb(command, (db) => {
    const tell = everyEvents(PROGRESS_EVENTS, ({ throughSequence, lastSequence }) => {
      terminal.err(`${key.sessionId}: event ${throughSequence} of ${lastSequence} …\n`);
    });
    return rebuildSession(db, key, { owner: newId('cli'), onProgress: tell });
  });
  terminal.print(command, rebuilt, () => `${key.sessionId}: ${rebuilt.events} events read, ${told(rebuilt)}.`);
}

async function rebuildMany(command: Command, terminal: Terminal, which: { tenantId: string | undefined; stale: boolean }): Promise<void> {
  let done = 0;
  const failures: { sessionId: string; reason: string }[] = [];
  const report = await withDb(command, (db) =>
    rebuildAllSessions(db, {
      ...which,
      owner: newId('cli'),
      onRequested: (sessions) => {
        terminal.err(`${sessions} sessions to rebuild\n`);
      },
      onProgress: everyEvents(PROGRESS_EVENTS, ({ throughSequence, lastSequence }) => {
        terminal.err(`a long one: event ${throughSequence} of ${lastSequence} …\n`);
      }),
      onRebuilt: () => {
        done += 1;
        if (done % PROGRESS_EVERY === 0) terminal.err(`${done} rebuilt …\n`);
      },
      onFailed: ({ sessionId }, error) => {
        failures.push({ sessionId, reason: redactError(error) });
        terminal.err(`${sessionId}: ${redactError(error)}\n`);
      },
    }),
  );
  terminal.print(command, { ...report, failures }, () => `${report.changed} sessions rebuilt, ${report.failed} failed.`);
  if (report.failed > 0) throw new ConfigError('not every session could be rebuilt, see above; it is tried again in the background');
}

/** Tells about long sessions alone, and not about each page of them. */
function everyEvents(events: number, tell: (steps: RebuildSteps) => void): (steps: RebuildSteps) => void {
  let toldAt = 0;
  return (steps) => {
    if (steps.throughSequence < toldAt) toldAt = 0; // another session
    if (steps.throughSequence - toldAt < events) return;
    toldAt = steps.throughSequence;
    tell(steps);
  };
}

const told = ({ changedRows }: RebuiltSession): string =>
  changedRows === 0 ? 'every view was as the log says' : `${changedRows} rows of its views were not as the log says and are now`;

function describe({ sessionId, stale, staleReason, ...rest }: SessionRebuild): string {
  const first = stale ? `The views of ${sessionId} are stale: ${staleReason ?? ''}.` : `The views of ${sessionId} are as its log says.`;
  return `${first}\n\n${table(Object.entries(rest).map(([name, value]) => [`  ${name}`, String(value ?? '-')]))}`;
}
