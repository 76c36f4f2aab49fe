import path from 'node:path';
import { RETENTION_KINDS, RETENTION_ROWS_MAX, RetentionPolicy, type RetentionKind, type RetentionOverride } from '@runplane/contracts';
import { requireTenant, writeRetention, type Db } from '@runplane/database';
import { createFolderArchive, readArchive, type ArchiveSink, type RetentionOfTenant, type RetentionPlaces } from '@runplane/runs';
import { InvalidArgumentError, type Command } from 'commander';
import { ConfigError, readConfig } from '../config';
import { PRUNE_ONCE } from '../maintenance/prune-once';
import { table, withDb, type Terminal } from './terminal';

interface PruneOptions extends RetentionOverride {
  tenant?: string;
  dryRun?: boolean;
  kind?: RetentionKind[];
  archiveDir?: string;
}

export function addRetentionCommands(program: Command, terminal: Terminal): void {
  withAges(program.command('retention'))
    .description(
      'Remove what is older than tenants keep it, now and to the end. A process with RUNPLANE_RETENTION=on does the same in the background.',
    )
    .option('--tenant <id>', 'only this tenant; needed where ages are given')
    .option('--dry-run', 'say what would go, and remove nothing')
    .option('--kind <kinds>', `with commas: ${RETENTION_KINDS.join(', ')}`, parseKinds)
    .option('--archive-dir <dir>', 'where copies go; default: RUNPLANE_ARCHIVE_DIR')
    .addHelpText(
      'after',
      '\nExamples:\n  runplane retention --dry-run --tenant acme\n  runplane retention --dry-run --tenant acme --runs-days 30 --events-days 7\n  runplane retention --archive-dir /var/lib/runplane/archive',
    )
    .action(async ({ tenant, dryRun = false, kind = [...RETENTION_KINDS], archiveDir, ...ages }: PruneOptions, command: Command) => {
      const policy = Object.keys(ages).length === 0 ? undefined : ages;
      if (policy !== undefined && tenant === undefined) command.error('error: ages given here are for one tenant: add --tenant <id>');
      const archive = await archiveOf(archiveDir);
      const done = await withDb(command, (db) => pruneAll(db, terminal, { tenantId: tenant, policy, dryRun, archive, kinds: kind }));
      terminal.print(command, { dryRun, tenants: done }, () => describe(done, dryRun));
      if (done.some(({ failures, archiveMissing }) => failures.length > 0 || archiveMissing))
        throw new ConfigError('not everything could be removed, see above');
    });
  const archives = program.command('archive').description('Copies of removed runs and queue tasks.');
  archives
    .command('read <archive-key>')
    .description(
      'Print a copy as JSON lines, and check it to its end. The key stands in the problem run_deleted or events_pruned, and in the feed.',
    )
    .option('--archive-dir <dir>', 'where copies are; default: RUNPLANE_ARCHIVE_DIR')
    .addHelpText('after', '\nExample:\n  runplane archive read acme-…/run_0192f0c4-…/run.jsonl.gz --archive-dir /var/lib/runplane/archive')
    .action(async (archiveKey: string, { archiveDir }: { archiveDir?: string }) => {
      const archive = await archiveOf(archiveDir);
      if (archive === undefined) throw new ConfigError('which archive? Set RUNPLANE_ARCHIVE_DIR or --archive-dir');
      for await (const line of readArchive(archive, archiveKey)) terminal.out(`${JSON.stringify(line)}\n`);
    });
}

/** How long a tenant keeps what has ended: shown, or changed where ages are given. */
export function addRetentionPolicyCommand(tenants: Command, terminal: Terminal): void {
  withAges(tenants.command('retention <tenant-id>'))
    .description('How long a tenant keeps what has ended; with ages: change them. Ages are days, or `keep` for ever.')
    .addHelpText(
      'after',
      '\nExamples:\n  runplane tenants retention acme\n  runplane tenants retention acme --runs-days 90 --events-days 30 --runners-days keep',
    )
    .action(async (tenantId: string, ages: RetentionOverride, command: Command) => {
      const { settings } = await withDb(command, (db) =>
        Object.keys(ages).length === 0 ? requireTenant(db.sql, tenantId) : writeRetention(db.sql, tenantId, ages),
      );
      const policy = RetentionPolicy.parse(settings.retention ?? {});
      const shown = [
        'runsDays',
        'eventsDays',
        'intentsDays',
        'cancelRequestsDays',
        'runnersDays',
        'readersDays',
        'queueTasksDays',
        'parkedDays',
      ] as const;
      terminal.print(command, { tenantId, retention: policy }, () =>
        table([
          ...shown.map((name) => [name, policy[name] === null ? 'for ever' : `${policy[name]} days`]),
          ['archive', policy.archive ? 'a copy first' : 'no copies'],
        ]),
      );
    });
}

function withAges(command: Command): Command {
  return command
    .option('--runs-days <days>', 'ended runs with all that is under them', parseDays)
    .option('--events-days <days>', 'events of ended runs', parseDays)
    .option('--intents-days <days>', 'finished dispatch intents of ended runs', parseDays)
    .option('--cancel-requests-days <days>', 'answered cancel requests', parseDays)
    .option('--runners-days <days>', 'silent runners', parseDays)
    .option('--readers-days <days>', 'silent readers of sessions, with their marks', parseDays)
    .option('--queue-tasks-days <days>', 'ended queue tasks with their attempts and read marks', parseDays)
    .option('--parked-days <days>', 'events that a sink does not take; 30 unless told otherwise', parseDays)
    .option('--archive', 'remove runs, events and queue tasks only with a copy')
    .option('--no-archive', 'remove runs, events, queue tasks and parked events without a copy');
}

function parseDays(text: string): number | null {
  if (text === 'keep') return null;
  if (!/^[1-9]\d{0,4}$/.test(text)) throw new InvalidArgumentError('Say a number of days, or keep.');
  return Number(text);
}

function parseKinds(text: string): RetentionKind[] {
  return text.split(',').map((word) => {
    const kind = RETENTION_KINDS.find((each) => each === word.trim());
    if (kind === undefined) throw new InvalidArgumentError(`"${word}" is no kind; these are: ${RETENTION_KINDS.join(', ')}.`);
    return kind;
  });
}

async function archiveOf(given: string | undefined): Promise<ArchiveSink | undefined> {
  const dir = given ?? (await readConfig(process.env)).archiveDir;
  return dir === undefined ? undefined : createFolderArchive({ dir: path.resolve(dir) });
}

const PROGRESS_EVERY = 100;

/** Pass after pass until nothing is left; a dry run looks at the first of each kind that one pass may hold. */
async function pruneAll(
  db: Db,
  terminal: Terminal,
  {
    kinds,
    dryRun,
    ...pass
  }: {
    kinds: readonly RetentionKind[];
    dryRun: boolean;
    tenantId: string | undefined;
    policy: RetentionOverride | undefined;
    archive: ArchiveSink | undefined;
  },
): Promise<RetentionOfTenant[]> {
  const all: RetentionOfTenant[] = [];
  for (const kind of kinds) {
    let gone = 0;
    const onRemoved = (): void => {
      gone += 1;
      if (!dryRun && gone % PROGRESS_EVERY === 0) terminal.err(`${kind}: ${gone} removed …\n`);
    };
    for (let after: RetentionPlaces = new Map(); ;) {
      const { tenants, changed, next } = await PRUNE_ONCE[kind](db, { ...pass, dryRun, after, limit: RETENTION_ROWS_MAX, onRemoved });
      all.push(...tenants);
      after = next;
      if (dryRun || (changed === 0 && next.size === 0)) break;
    }
  }
  return all;
}

function describe(done: readonly RetentionOfTenant[], dryRun: boolean): string {
  if (done.length === 0) return dryRun ? 'Nothing would go.' : 'Nothing was old enough.';
  const verb = dryRun ? 'would go' : 'gone';
  return table([
    ['TENANT', 'KIND', verb.toUpperCase(), 'ROWS', 'NOTES'],
    ...done.map(({ tenantId, kind, ids, rows, failures, archiveMissing, more }) => [
      tenantId,
      kind,
      String(ids.length),
      Object.entries(rows)
        .filter(([, n]) => n > 0)
        .map(([name, n]) => `${n} ${name}`)
        .join(', '),
      [
        archiveMissing ? 'wants copies: set RUNPLANE_ARCHIVE_DIR or --archive-dir' : '',
        failures.length > 0 ? `${failures.length} failed, first ${failures[0]?.id}: ${failures[0]?.reason}` : '',
        dryRun && more ? 'and more' : '',
      ]
        .filter((note) => note !== '')
        .join('; '),
    ]),
  ]);
}
