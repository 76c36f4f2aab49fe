import { FORGET_HELD_MAX, type BlockedKeyPage, type SinkStatus, type WebhookDeliveryPage } from '@runplane/contracts';
import { createRelayControl, explainSink, getRelayStatus, listBlockedKeys, listWebhookDeliveries } from '@runplane/outbox';
import { InvalidArgumentError, type Command } from 'commander';
import { describeWhy } from './why';
import { table, withDb, type Terminal } from './terminal';

/** What an operator asks and does about the sinks of the relay. */
export function addRelayCommands(program: Command, terminal: Terminal): void {
  const relay = program
    .command('relay')
    .description('Sinks of the relay: how they stand, and what to do about events that they do not take.');
  relay
    .command('status')
    .description('Backlog, lag and blocked keys of every sink.')
    .action(async (_options: object, command: Command) => {
      const found = await withDb(command, (db) => getRelayStatus(db));
      terminal.print(command, found, () => describeSinks(found.sinks));
    });
  relay
    .command('keys <sink>')
    .description('The keys that a sink does not take, with the event at which each waits.')
    .option('--parked', 'only those that wait for an operator')
    .option('--cursor <cursor>', 'of the page before')
    .action(async (sink: string, { parked, cursor }: { parked?: boolean; cursor?: string }, command: Command) => {
      const page = await withDb(command, (db) => listBlockedKeys(db, { sink, cursor, ...(parked === true ? { state: 'parked' } : {}) }));
      terminal.print(command, page, () => describeKeys(page));
    });
  relay
    .command('deliveries <sink>')
    .description('What was posted to the endpoint of a webhook and what it answered, the newest first; of the last seven days.')
    .option('--key <key>', 'only of this key')
    .option('--failed', 'only what the endpoint failed at')
    .option('--cursor <cursor>', 'of the page before')
    .action(async (sink: string, { key, failed, cursor }: { key?: string; failed?: boolean; cursor?: string }, command: Command) => {
      const only = failed === true ? { outcome: 'failed' as const } : {};
      const page = await withDb(command, (db) => listWebhookDeliveries(db, { sink, key, cursor, ...only }));
      terminal.print(command, page, () => describeDeliveries(page));
    });
  relay
    .command('skip <sink> <key> <cursor>')
    .description('Give up the event at which a key is blocked: it will not be sent to this sink.')
    .addHelpText('after', '\nExample:\n  runplane relay skip kafka acme/chat-7 WzEsImZlZWQ… (key and cursor as `relay keys` shows them)')
    .action(async (sink: string, key: string, cursor: string, _options: object, command: Command) => {
      const done = await withDb(command, (db) => createRelayControl(db).skipBlockedEvent({ sink, key, cursor }));
      terminal.print(command, done, () => `skipped; ${done.heldCount} events of ${key} wait, and are tried now`);
    });
  relay
    .command('retry <sink> [key]')
    .description('Try a blocked key again at once; without a key: all parked ones.')
    .action(async (sink: string, key: string | undefined, _options: object, command: Command) => {
      const done = await withDb(command, async (db) => {
        for (let keyCount = 0, before: string | undefined; ;) {
          const part = await createRelayControl(db).retryBlockedKeys({ sink, key, before });
          ({ before } = part);
          keyCount += part.keyCount;
          if (!part.more) return { ...part, keyCount };
          terminal.err(`${keyCount} keys …\n`);
        }
      });
      terminal.print(command, done, () => `${done.keyCount} keys are tried again`);
    });
  relay
    .command('republish <sink>')
    .description('Send a range of the feed to a sink once more, in order per key.')
    .requiredOption('--from <cursor>', 'behind which it begins, or `oldest`')
    .option('--to <cursor>', 'the last event, or `now`', 'now')
    .action(async (sink: string, range: { from: string; to: string }, command: Command) => {
      const done = await withDb(command, (db) => createRelayControl(db).republish({ sink, ...range }));
      terminal.print(command, done, () => `${done.shards} shards are sent again; \`runplane relay status\` shows how many are left`);
    });
  relay
    .command('enable <sink>')
    .description('Let relays serve the sink again: where it was, or from a start.')
    .option(
      '--start <start>',
      '`now`, `oldest` or a cursor; what was held is forgotten then, part by part: interrupted, it goes on with the next call',
    )
    .action(async (sink: string, options: { start?: string }, command: Command) => {
      const done = await withDb(command, async (db) => {
        for (let call = options, parts = 1; ; call = {}, parts += 1) {
          const part = await createRelayControl(db).enableSink({ sink, ...call });
          if (!part.more) return { ...part, changed: part.changed || parts > 1 };
          terminal.err(`${parts * FORGET_HELD_MAX} held events forgotten …\n`);
        }
      });
      terminal.print(command, done, () => (done.changed ? `${sink} is enabled` : `${sink} was enabled already`));
    });
  relay
    .command('disable <sink>')
    .description('Stop all relaying to the sink, at once. It holds back no retention then.')
    .action(async (sink: string, _options: object, command: Command) => {
      const done = await withDb(command, (db) => createRelayControl(db).disableSink({ sink }));
      terminal.print(command, done, () => (done.changed ? `${sink} is disabled` : `${sink} was disabled already`));
    });
}

export function addRelayWhyCommands(why: Command, terminal: Terminal): void {
  why
    .command('key <sink> <key>')
    .description('Why the events of a key have or have not reached a sink.')
    .addHelpText('after', '\nExample:\n  runplane why key kafka acme/chat-7')
    .action(async (sink: string, key: string, _options: object, command: Command) => {
      const found = await withDb(command, (db) => explainSink(db, { sink, key }));
      terminal.print(command, found, () => describeWhy(found));
    });
  why
    .command('shard')
    .argument('<sink>')
    .argument('<shard>', 'its number', parseShard)
    .description('Why the events of a shard have or have not reached a sink.')
    .action(async (sink: string, shard: number, _options: object, command: Command) => {
      const found = await withDb(command, (db) => explainSink(db, { sink, shard }));
      terminal.print(command, found, () => describeWhy(found));
    });
}

function parseShard(text: string): number {
  if (!/^\d{1,2}$/.test(text)) throw new InvalidArgumentError('Say a number of a shard.');
  return Number(text);
}

function describeSinks(sinks: readonly SinkStatus[]): string {
  if (sinks.length === 0) return 'There are no sinks: configure one (docs/relay.md).';
  const atLeast = (count: number, isExact: boolean): string => (isExact ? String(count) : `${count}+`);
  return table([
    ['SINK', 'KIND', 'STATE', 'RELAYS', 'SHARDS', 'BACKLOG', 'LAG', 'RETRYING', 'PARKED', 'FIRST ERROR'],
    ...sinks.map((s) => [
      s.sink,
      s.kind,
      s.enabled ? 'enabled' : 'disabled',
      String(s.relays),
      String(s.shardsHeld),
      atLeast(s.backlogCount, s.isExact),
      `${Math.round(s.lagMs / 1000)} s`,
      String(s.retryingCount),
      String(s.parkedCount),
      s.firstError ?? '',
    ]),
  ]);
}

function describeDeliveries({ deliveries, cursor }: WebhookDeliveryPage): string {
  if (deliveries.length === 0) return 'Nothing was posted.';
  const lines = table([
    ['TRIED', 'OUTCOME', 'HTTP', 'MS', 'KEY', 'EVENT', 'ERROR'],
    ...deliveries.map(({ triedAt, outcome, httpStatus, durationMs, key, sequence, type, error }) => [
      triedAt,
      outcome,
      httpStatus === null ? '' : String(httpStatus),
      String(durationMs),
      key,
      `${sequence} ${type}`,
      error ?? '',
    ]),
  ]);
  return cursor === null ? lines : `${lines}\n\nmore: --cursor ${cursor}`;
}

function describeKeys({ keys, cursor }: BlockedKeyPage): string {
  if (keys.length === 0) return 'No key is blocked.';
  const lines = table([
    ['KEY', 'STATE', 'HELD', 'ATTEMPTS', 'EVENT', 'CURSOR', 'ERROR'],
    ...keys.map(({ key, state, heldCount, attempts, event, cursor: place, lastError }) => [
      key,
      state,
      String(heldCount),
      String(attempts),
      event === null ? 'gone' : `${event.stream} ${event.sequence} ${event.type}`,
      place,
      lastError ?? '',
    ]),
  ]);
  return cursor === null ? lines : `${lines}\n\nmore: --cursor ${cursor}`;
}
