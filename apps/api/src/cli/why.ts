import type {
  FeedExplanation,
  RelayExplanation,
  RunExplanation,
  SessionExplanation,
  SubmissionExplanation,
  TaskExplanation,
} from '@runplane/contracts';
import { explainFeed } from '@runplane/outbox';
import { explainQueueTask, explainSubmission } from '@runplane/queue';
import { explainRun, explainSession } from '@runplane/runs';
import type { Command } from 'commander';
import { addRelayWhyCommands } from './relay';
import { table, withDb, type Terminal } from './terminal';

export function addWhyCommands(program: Command, terminal: Terminal): void {
  const why = program
    .command('why')
    .description(
      'Why a run, a session, a task, a submission, the feed, or a key or shard of a sink is not moving, in one sentence, with the facts.',
    );
  why
    .command('run <run-id>')
    .requiredOption('--tenant <id>', 'whose run')
    .addHelpText('after', '\nExample:\n  runplane why run run_0192f0c4-… --tenant acme')
    .action(async (runId: string, { tenant: tenantId }: { tenant: string }, command: Command) => {
      const found = await withDb(command, (db) => explainRun(db, { tenantId, runId }));
      terminal.print(command, found, () => describeWhy(found));
    });
  why
    .command('session <session-id>')
    .requiredOption('--tenant <id>', 'whose session')
    .addHelpText('after', '\nExample:\n  runplane why session chat-7 --tenant acme')
    .action(async (sessionId: string, { tenant: tenantId }: { tenant: string }, command: Command) => {
      const found = await withDb(command, (db) => explainSession(db, { tenantId, sessionId }));
      terminal.print(command, found, () => describeWhy(found));
    });
  why
    .command('feed')
    .description('Why readers of the feed see nothing new, or a consumer is no further.')
    .option('--consumer <name>', 'a registered consumer')
    .option('--tenant <id>', 'whose consumer; default: the operator’s own')
    .addHelpText('after', '\nExamples:\n  runplane why feed\n  runplane why feed --consumer billing --tenant acme')
    .action(async ({ consumer, tenant }: { consumer?: string; tenant?: string }, command: Command) => {
      const found = await withDb(command, (db) => explainFeed(db, { tenantId: undefined, consumer, consumerOf: tenant }));
      terminal.print(command, found, () => describeWhy(found));
    });
  why
    .command('task <task-id>')
    .requiredOption('--tenant <id>', 'whose task')
    .addHelpText('after', '\nExample:\n  runplane why task qt_0192f0c4-… --tenant acme')
    .action(async (taskId: string, { tenant: tenantId }: { tenant: string }, command: Command) => {
      const found = await withDb(command, (db) => explainQueueTask(db, { tenantId, taskId }));
      terminal.print(command, found, () => describeWhy(found));
    });
  why
    .command('submission <session-id> <operation-id>')
    .requiredOption('--tenant <id>', 'whose session')
    .addHelpText('after', '\nExample:\n  runplane why submission chat-7 msg-2 --tenant acme')
    .action(async (sessionId: string, operationId: string, { tenant: tenantId }: { tenant: string }, command: Command) => {
      const found = await withDb(command, (db) => explainSubmission(db, { tenantId, sessionId, operationId }));
      terminal.print(command, found, () => describeWhy(found));
    });
  addRelayWhyCommands(why, terminal);
}

type Explanation = RelayExplanation | RunExplanation | SessionExplanation | TaskExplanation | SubmissionExplanation | FeedExplanation;

/** The sentence, then the facts. */
export function describeWhy({ sentence, cause, facts, ...rest }: Explanation): string {
  const ofRun = 'run' in rest && rest.run !== null ? rest.run.facts : {};
  const lines = Object.entries({ cause, ...facts, ...ofRun }).map(([name, value]) => [
    `  ${name}`,
    typeof value === 'string' ? value : JSON.stringify(value),
  ]);
  return `${sentence}\n\n${table(lines)}`;
}
