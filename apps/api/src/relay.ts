import { redactError } from '@runplane/contracts';
import { checkStore, openDb } from '@runplane/database';
import { feedProbe, startRelay } from '@runplane/outbox';
import { ConfigError, readConfig } from './config';
import { isPassing } from './maintenance/run-every';
import { openSinks } from './open-sinks';

// The relay as a process of its own: `npm run relay`. Any number of them, and of APIs that relay, share the shards of each sink.

const say = (line: string): void => {
  console.error(`runplane relay: ${line}`);
};

async function main(): Promise<void> {
  const stopped = new Promise<void>((resolve) => {
    for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => resolve());
  });
  const config = await readConfig(process.env);
  if (config.databaseUrl === undefined) throw new ConfigError('DATABASE_URL: whose events? An embedded database is its own API’s');
  if (config.sinks.length === 0)
    throw new ConfigError('there is no sink: set RUNPLANE_KAFKA_BROKERS or RUNPLANE_SINKS_FILE (docs/relay.md)');
  const onError = (error: unknown, where: string): void => {
    say(`${where}: ${isPassing(error) ? 'for now, ' : ''}${redactError(error)}`);
  };
  const db = await openDb({
    url: config.databaseUrl,
    directUrl: config.databaseDirectUrl ?? config.databaseUrl,
    poolMax: config.poolMax,
    applicationName: 'runplane-relay',
    preparedStatements: config.preparedStatements,
    startupSettings: config.startupSettings,
    lockTimeoutMs: config.lockTimeoutMs,
    statementTimeoutMs: config.statementTimeoutMs,
    onError,
  });
  await checkStore(db);
  db.hub.addProbe(feedProbe);
  await db.hub.start();
  const relay = await startRelay(db, { sinks: await openSinks(db, config.sinks, onError), onError });
  say(`serves ${config.sinks.map(({ name }) => name).join(', ')} as ${relay.owner}`);
  await stopped;
  await relay.stop();
  await db.close();
  say('has handed back what it held');
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    say(redactError(error));
    process.exit(1);
  },
);
