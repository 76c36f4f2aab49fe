import type { RunExplanation, SessionExplanation } from '@runplane/contracts';
import { explainRun, explainSession } from '@runplane/runs';
import type { Command } from 'commander';
import { table, withDb, type Terminal } from './terminal';

export function addWhyCommands(program: Command, terminal: Terminal): void {
  const why = program.command('why').description('Why a run or a session is not moving, in one sentence, with the facts.');
  why
    .command('run <run-id>')
    .requiredOption('--tenant <id>', 'whose run')
    .addHelpText('after', '\nExample:\n  runplane why run run_0192f0c4-… --tenant acme')
    .action(async (runId: string, { tenant: tenantId }: { tenant: string }, command: Command) => {
      const found = await withDb(command, (db) => explainRun(db, { tenantId, runId }));
      terminal.print(command, found, () => describe(found));
    });
  why
    .command('session <session-id>')
    .requiredOption('--tenant <id>', 'whose session')
    .addHelpText('after', '\nExample:\n  runplane why session chat-7 --tenant acme')
    .action(async (sessionId: string, { tenant: tenantId }: { tenant: string }, command: Command) => {
      const found = await withDb(command, (db) => explainSession(db, { tenantId, sessionId }));
      terminal.print(command, found, () => describe(found));
    });
}

function describe({ sentence, cause, facts, ...rest }: RunExplanation | SessionExplanation): string {
  const ofRun = 'run' in rest && rest.run !== null ? rest.run.facts : {};
  const lines = Object.entries({ cause, ...facts, ...ofRun }).map(([name, value]) => [
    `  ${name}`,
    typeof value === 'string' ? value : JSON.stringify(value),
  ]);
  return `${sentence}\n\n${table(lines)}`;
}
