#!/usr/bin/env node
import { Command, InvalidArgumentError, Option } from 'commander';
import { appendExpectations, runAppendBench } from './append/run';
import { claimExpectations, runClaimBench } from './claim/run';
import { growthExpectations, runGrowthBench } from './growth/run';
import { expectationLine, isMet, tableOf, writeJson, type Expectation } from './support/result';
import { outboxExpectations, runOutboxBench } from './outbox/run';
import { queuePeersExpectations, runQueuePeersBench } from './queue-peers/run';
import { RELAY_CASES, relayExpectations, runRelayBench } from './relay/run';
import { relayStatusExpectations, runRelayStatusBench } from './relay-status/run';
import { runSessionAppendBench, sessionAppendExpectations } from './session-append/run';
import { runWaitersBench, waitersExpectations } from './waiters/run';

const program = new Command('npm run bench --')
  .description(
    'Measures Runplane against plain PostgreSQL on this machine. Starts a database of its own; results.md says how to read the numbers.',
  )
  .showHelpAfterError();

interface AppendOptions {
  readonly callers: number[];
  readonly cases?: string[];
  readonly rounds: number;
  readonly seconds: number;
  readonly json?: string;
  readonly check?: true;
}

program
  .command('append')
  .description(
    'appending run events: the library’s door (ours), the same without sharing statements (single), the same on the pool of an API process (coalesced), one bare INSERT (floor), a transaction by hand, and the store this one replaces (original)',
  )
  .option('--callers <list>', 'how many callers at a time, one comparison each', listOf(positive), [1, 16, 64])
  .option(
    '--cases <list>',
    'only these: ours, single, coalesced, hand, original; the floor always runs. Without it more than 16 callers are for coalesced alone',
    listOf(String),
  )
  .option('--rounds <n>', 'turns of each case; the median counts', positive, 3)
  .option('--seconds <n>', 'length of a turn', positive, 5)
  .option('--json <file>', 'write the results there as well')
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ json, check, ...bench }: AppendOptions) => {
    const results = await runAppendBench({ ...bench, say: progress });
    console.log(`\n${tableOf(results)}\n`);
    if (json !== undefined) await writeJson(json, results);
    judge(appendExpectations(results), check === true);
  });

interface SessionAppendOptions {
  readonly sessions: number[];
  readonly cases?: string[];
  readonly rounds: number;
  readonly seconds: number;
  readonly json?: string;
  readonly check?: true;
}

program
  .command('session-append')
  .description(
    'appending the events of a turn to a session, 1 and 20 a call: a writer that holds the lease (writer), the operation without one (append), one bare INSERT (floor), the store this one replaces (original), and emmett-postgresql (emmett)',
  )
  .option('--sessions <list>', 'how many sessions at a time, one comparison each', listOf(positive), [1, 16])
  .option('--cases <list>', 'only these: writer, append, original, emmett; the floor always runs', listOf(String))
  .option('--rounds <n>', 'turns of each case; the median counts', positive, 3)
  .option('--seconds <n>', 'length of a turn', positive, 3)
  .option('--json <file>', 'write the results there as well')
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ json, check, ...bench }: SessionAppendOptions) => {
    const results = await runSessionAppendBench({ ...bench, say: progress });
    console.log(`\n${tableOf(results)}\n`);
    if (json !== undefined) await writeJson(json, results);
    judge(sessionAppendExpectations(results), check === true);
  });

interface ClaimOptions {
  readonly tasks: number;
  readonly sessions: number;
  readonly calls: number;
  readonly cycles: number;
  readonly only: string;
  readonly check?: true;
}

program
  .command('claim')
  .description(
    'claiming queue tasks and submissions: on an empty store, behind a backlog, and after many claims have left dead rows behind; how tenants share a queue',
  )
  .option('--tasks <n>', 'tasks of the backlog', positive, 1_000_000)
  .option('--sessions <n>', 'sessions with a submission each, and submissions of one more session', positive, 100_000)
  .option('--calls <n>', 'calls of each case in each stage', positive, 300)
  .option(
    '--cycles <n>',
    'tasks that are made, claimed and ended, and submissions that are claimed and given back, between the last two stages; a million takes an hour',
    positive,
    1_000_000,
  )
  .option('--only <text>', 'cases whose name has this, and not how tenants share a queue', '')
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ check, ...bench }: ClaimOptions) => {
    const report = await runClaimBench({ ...bench, say: progress });
    console.log(`\n${tableOf(report.results)}\n`);
    judge(claimExpectations(report), check === true);
  });

interface QueuePeersOptions {
  readonly peers: string[];
  readonly callers: number[];
  readonly rounds: number;
  readonly jobs: number;
  readonly check?: true;
}

program
  .command('queue-peers')
  .description(
    'putting jobs into a queue and working them off, ours and pg-boss, graphile-worker and DBOS, one at a time and 100 a call, on one database',
  )
  .option('--peers <list>', 'these; ours is what the others are compared with', listOf(String), [
    'ours',
    'pg-boss',
    'graphile-worker',
    'dbos',
  ])
  .option('--callers <list>', 'how many callers at a time, one comparison each', listOf(positive), [1, 8])
  .option('--rounds <n>', 'turns of each; the median counts', positive, 3)
  .option('--jobs <n>', 'jobs of a turn one at a time; ten times as many with 100 a call', positive, 2_000)
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ check, ...bench }: QueuePeersOptions) => {
    const results = await runQueuePeersBench({ ...bench, say: progress });
    console.log(`\n${tableOf(results)}\n`);
    judge(queuePeersExpectations(results), check === true);
  });

interface WaitersOptions {
  readonly waiters: number;
  readonly runs: number;
  readonly changes: number;
  readonly check?: true;
}

program
  .command('waiters')
  .description('what long polls and live streams of one process hold while they wait, and how soon a change wakes them')
  .option('--waiters <n>', 'half of them poll, half follow a stream; a multiple of twice the runs', positive, 2_000)
  .option('--runs <n>', 'how many runs they wait for', positive, 200)
  .option('--changes <n>', 'events that are sent to measure the wake-up', positive, 100)
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ check, ...bench }: WaitersOptions) => {
    const results = await runWaitersBench({ ...bench, say: progress });
    console.log(`\n${tableOf(results)}\n`);
    judge(waitersExpectations(results), check === true);
  });

interface RelayOptions {
  readonly events: number;
  readonly rounds: number;
  readonly cases?: string[];
  readonly compression: 'none' | 'gzip';
  readonly seconds: number;
  readonly check?: true;
}

program
  .command('relay')
  .description(
    'events from the outbox to Kafka: the relay (relay), its publisher from memory (publisher), the same client as fast as it can from memory (raw), and pg-transactional-outbox (peer); and the delay from commit to broker. Needs Java 17 and, once, Maven',
  )
  .option('--events <n>', 'how many are brought to Kafka in a turn', positive, 50_000)
  .option('--rounds <n>', 'turns of each case; the median counts', positive, 3)
  .option(`--cases <list>`, `only these: ${RELAY_CASES.join(', ')}`, listOf(String))
  .addOption(new Option('--compression <name>', 'of all cases').choices(['none', 'gzip']).default('none'))
  .option('--seconds <n>', 'how long the delay is measured in a round; 0: not at all', Number, 10)
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ check, ...bench }: RelayOptions) => {
    const report = await runRelayBench({ ...bench, say: progress });
    console.log(`\n${tableOf(report.results)}\n`);
    if (report.delays.length > 0) console.log(`From commit to broker:\n${tableOf(report.delays)}\n`);
    judge(relayExpectations(report), check === true);
  });

interface RelayStatusOptions {
  readonly rows: number;
  readonly smallRows: number;
  readonly calls: number;
  readonly check?: true;
}

program
  .command('relay-status')
  .description('what status and `why` of relay and feed take before a short backlog and before a long one')
  .option('--rows <n>', 'events of the long one', positive, 10_000_000)
  .option('--small-rows <n>', 'events of the short one', positive, 100_000)
  .option('--calls <n>', 'calls of each case on each store, in turns', positive, 50)
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ check, ...bench }: RelayStatusOptions) => {
    const results = await runRelayStatusBench({ ...bench, say: progress });
    console.log(`\n${tableOf(results)}\n`);
    judge(relayStatusExpectations(results), check === true);
  });

interface OutboxOptions {
  readonly rounds: number;
  readonly check?: true;
}

program
  .command('outbox')
  .description(
    'what the outbox adds to the time of an append to runs and sessions: the same statements with it and without it, in short turns',
  )
  .option('--rounds <n>', 'turns of ten calls of each; the median of all calls counts', positive, 60)
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ check, ...bench }: OutboxOptions) => {
    const results = await runOutboxBench({ ...bench, say: progress });
    console.log(`\n${tableOf(results)}\n`);
    judge(outboxExpectations(results), check === true);
  });

interface GrowthOptions {
  readonly runs: number;
  readonly events: number;
  readonly smallRuns: number;
  readonly calls: number;
  readonly only?: string;
  readonly json?: string;
  readonly check?: true;
}

program
  .command('growth')
  .description(
    'the same lists, searches, reads and writes on a small store and on a big one; needs about 1 GB of disk for each million events',
  )
  .option('--runs <n>', 'runs of the big store', positive, 1_000_000)
  .option('--events <n>', 'events of the big store, at least nine for each run', positive, 10_000_000)
  .option('--small-runs <n>', 'runs of the small store, with ten events each', positive, 10_000)
  .option('--calls <n>', 'calls of each case on each store, in turns; the median of the faster half counts', positive, 100)
  .option('--only <text>', 'only cases with this in their name')
  .option('--json <file>', 'write the results there as well')
  .option('--check', 'exit with 1 when an expectation is not met')
  .action(async ({ runs, events, smallRuns, calls, only, json, check }: GrowthOptions) => {
    const small = { runs: smallRuns, events: smallRuns * 10 };
    const report = await runGrowthBench({ big: { runs, events }, small, calls, only, say: progress });
    console.log(`\n${tableOf(report.results)}\n`);
    for (const scan of report.scans) console.log(`scan     ${scan}`);
    if (json !== undefined) await writeJson(json, report.results);
    judge(growthExpectations(report), check === true);
  });

void program.parseAsync().catch((error: unknown) => {
  console.error(error);
  process.exitCode = 1;
});

function judge(expectations: readonly Expectation[], check: boolean): void {
  for (const expectation of expectations) console.log(expectationLine(expectation));
  if (check && !expectations.every(isMet)) process.exitCode = 1;
}

/** To stderr, so that the table alone can be kept. */
function progress(line: string): void {
  console.error(line);
}

function positive(text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new InvalidArgumentError('a number above 0 is needed');
  return value;
}

function listOf<T>(read: (text: string) => T): (text: string) => T[] {
  return (text) => text.split(',').map(read);
}
