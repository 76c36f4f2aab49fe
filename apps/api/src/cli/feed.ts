import { FEED_CONSUMER_SILENT_DAYS_DEFAULT, OUTBOX_KEEP_DAYS_DEFAULT, type FeedConsumer, type FeedStatus } from '@runplane/contracts';
import { readStore, rebaseStore } from '@runplane/database';
import { createOutbox, deleteFeedConsumer, getFeedStatus, listFeedConsumers, pruneOutboxOnce, type PrunedOutbox } from '@runplane/outbox';
import { InvalidArgumentError, type Command } from 'commander';
import { table, withDb, type Terminal } from './terminal';

const DAY_MS = 86_400_000;

interface OfTenant {
  /** Absent: the operator's own. */
  tenant?: string;
}

export function addFeedCommands(program: Command, terminal: Terminal): void {
  const feed = program.command('feed').description('The feed of all events: how it is doing, who reads it, what it keeps.');
  feed
    .command('status')
    .description('What readers cannot see yet, who holds the feed back, how far behind registered readers are.')
    .addHelpText('after', '\nExample:\n  runplane feed status --json')
    .action(async (_options, command: Command) => {
      const status = await withDb(command, (db) => getFeedStatus(db, { tenantId: undefined }));
      terminal.print(command, status, () => describeStatus(status));
    });
  addConsumerCommands(feed, terminal);
  feed
    .command('prune')
    .description(
      'Remove events that are old and that no registered reader needs, now and to the end. A process with RUNPLANE_RETENTION=on does the same in the background.',
    )
    .option('--keep-days <days>', `how long events stay at least; default ${OUTBOX_KEEP_DAYS_DEFAULT}`, parseDays, OUTBOX_KEEP_DAYS_DEFAULT)
    .option(
      '--silent-days <days>',
      `how long a silent reader is waited for; default ${FEED_CONSUMER_SILENT_DAYS_DEFAULT}`,
      parseDays,
      FEED_CONSUMER_SILENT_DAYS_DEFAULT,
    )
    .option('--dry-run', 'say what would go, and remove nothing')
    .addHelpText('after', '\nExamples:\n  runplane feed prune --dry-run\n  runplane feed prune --keep-days 2')
    .action(
      async ({ keepDays, silentDays, dryRun = false }: { keepDays: number; silentDays: number; dryRun?: boolean }, command: Command) => {
        const rules = { keepMs: keepDays * DAY_MS, silentMs: silentDays * DAY_MS, dryRun };
        const pruned = await withDb(command, async (db) => {
          let rows = 0;
          for (;;) {
            const pass = await pruneOutboxOnce(db, rules);
            rows += pass.changed;
            if (dryRun || !pass.more) return { ...pass, changed: rows };
          }
        });
        terminal.print(command, { dryRun, ...pruned }, () => describePruned(pruned, dryRun));
      },
    );
  feed
    .command('rebase')
    .description(
      'After a restore into another cluster, or a promotion: lift the numbers of the feed above all that were given. Processes do it at start by themselves.',
    )
    .option('--force', 'also where the cluster looks the same: its files were put back to an older state')
    .addHelpText('after', '\nExample:\n  runplane feed rebase')
    .action(async ({ force = false }: { force?: boolean }, command: Command) => {
      const done = await withDb(command, async (db) => ({
        rebased: await rebaseStore(db, { force }),
        txOffset: String((await readStore(db.sql)).txOffset),
      }));
      terminal.print(command, done, () =>
        done.rebased
          ? `Rebased: feed numbers begin above ${done.txOffset}. Cursors and consumers of before stay valid.`
          : 'Nothing to do: the store stands in the cluster that it remembers.',
      );
    });
}

function addConsumerCommands(feed: Command, terminal: Terminal): void {
  const consumers = feed.command('consumers').description('Registered readers, whose places the store keeps.');
  const outcome = (command: Command, consumer: FeedConsumer, said: string): void => {
    terminal.print(command, consumer, () => `${said}\n\n${describeConsumers([consumer])}`);
  };
  consumers
    .command('list')
    .description('All of them, of every tenant and the operator’s own.')
    .addHelpText('after', '\nExample:\n  runplane feed consumers list')
    .action(async (_options, command: Command) => {
      const { consumers: found } = await withDb(command, (db) => listFeedConsumers(db, { tenantId: undefined, all: true }));
      terminal.print(command, found, () => describeConsumers(found));
    });
  consumers
    .command('register <name>')
    .description('Make one; one that is there stays as it is.')
    .option('--tenant <id>', 'whose events it reads; default: all')
    .option('--after <place>', 'a cursor, start or now', 'start')
    .addHelpText('after', '\nExample:\n  runplane feed consumers register audit --after now')
    .action(async (name: string, { tenant: tenantId, after }: OfTenant & { after: string }, command: Command) => {
      const { consumer, created } = await withDb(command, (db) => createOutbox(db).registerFeedConsumer({ tenantId, name, after }));
      outcome(command, consumer, created ? `Registered ${name}.` : `${name} is there already.`);
    });
  consumers
    .command('rewind <name>')
    .description('Put one to another place, so that it reads events again, or passes over some.')
    .option('--tenant <id>', 'whose it is; default: the operator’s own')
    .requiredOption('--to <place>', 'a cursor, start or now')
    .addHelpText('after', '\nExample:\n  runplane feed consumers rewind billing --tenant acme --to start')
    .action(async (name: string, { tenant: tenantId, to }: OfTenant & { to: string }, command: Command) => {
      const consumer = await withDb(command, (db) => createOutbox(db).rewindFeedConsumer({ tenantId, name, to }));
      outcome(command, consumer, `Moved ${name}.`);
    });
  consumers
    .command('delete <name>')
    .description('Forget one: retention waits for it no longer.')
    .option('--tenant <id>', 'whose it is; default: the operator’s own')
    .addHelpText('after', '\nExample:\n  runplane feed consumers delete billing --tenant acme')
    .action(async (name: string, { tenant: tenantId }: OfTenant, command: Command) => {
      const deleted = await withDb(command, (db) => deleteFeedConsumer(db, { tenantId, name }));
      terminal.print(command, deleted, () => `Deleted ${name}; it stood at ${deleted.cursor}.`);
    });
}

function describeStatus({ held, heldBackMs, heldBackBy, rebaseNeeded, rows, bytes, floorHeldBy, consumers }: FeedStatus): string {
  const facts: [string, string][] = [
    ['held', `${held.events}${held.isExact ? '' : ' or more'} events, the oldest ${Math.round(held.oldestMs / 1000)} s old`],
    ['oldest writer', heldBackMs === 0 ? '-' : `open for ${Math.round(heldBackMs / 1000)} s`],
    ['held back by', heldBackBy === null ? '-' : JSON.stringify(heldBackBy)],
    ['rebase needed', rebaseNeeded ? 'yes: runplane feed rebase' : 'no'],
    ['outbox', `about ${rows ?? '?'} rows, ${bytes === null ? '?' : Math.round(bytes / 1_048_576)} MiB`],
    ['floor waits for', floorHeldBy ?? 'nobody'],
  ];
  return `${table(facts)}\n\n${describeConsumers(consumers)}`;
}

function describeConsumers(consumers: readonly FeedConsumer[]): string {
  if (consumers.length === 0) return 'No registered consumer.';
  return table([
    ['TENANT', 'NAME', 'BEHIND', 'OLDEST', 'LAST SEEN', 'STATE'],
    ...consumers.map(({ tenantId, name, lag, seenAt, isExpired, holdsFloor }) => [
      tenantId ?? '(all)',
      name,
      `${lag.events}${lag.isExact ? '' : '+'}`,
      `${Math.round(lag.ms / 1000)} s`,
      seenAt,
      isExpired ? 'expired: rewind it' : holdsFloor ? 'ok' : 'silent',
    ]),
  ]);
}

function describePruned({ changed, heldBy, more }: PrunedOutbox, dryRun: boolean): string {
  if (heldBy === null) return 'Nothing is old enough yet.';
  const limit = heldBy === 'age' ? 'their age' : heldBy;
  return `${changed}${dryRun && more ? ' or more' : ''} rows ${dryRun ? 'would go' : 'gone'}; what stays is kept by ${limit}.`;
}

function parseDays(text: string): number {
  if (!/^\d{1,5}$/.test(text)) throw new InvalidArgumentError('Say a number of days.');
  return Number(text);
}
