import { createHash } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { createGunzip, createGzip } from 'node:zlib';
import { ArchiveDamaged, JsonRecord, parseInput } from '@runplane/contracts';
import type { SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { ArchiveReceipt, ArchiveSink } from './archive-sink';
import { listRowTexts, type ArchivedKind, type StoredRun } from './run-archive.sql';
import type { RunKey } from './run.sql';

// The copy of a run, of its events, of a queue task, or of an event that a sink does not take: gzip of JSON lines. The first line is the header, then a line per row, as PostgreSQL writes the row as
// JSON, the small tables first and the events in their order; the last line is the manifest with the counts and the hash of all lines before.
// Nothing is removed before its copy has been read back and is what was written.

const FORMAT = 'runplane-run-archive';
const TASK_FORMAT = 'runplane-task-archive';
const EVENT_FORMAT = 'runplane-parked-event-archive';

export type ArchiveScope = 'run' | 'events';
const KINDS_OF: Record<ArchiveScope, readonly ArchivedKind[]> = {
  run: ['run', 'command', 'intent', 'runner-job', 'cancel-request', 'event'],
  events: ['event'],
};

const Counts = z.record(z.string(), z.int());
const RunHeader = z.object({
  kind: z.literal('header'),
  format: z.literal(FORMAT),
  version: z.literal(1),
  scope: z.enum(['run', 'events']),
  tenantId: z.string(),
  runId: z.string(),
});
const TaskHeader = z.object({
  kind: z.literal('header'),
  format: z.literal(TASK_FORMAT),
  version: z.literal(1),
  tenantId: z.string(),
  taskId: z.string(),
});
const EventHeader = z.object({
  kind: z.literal('header'),
  format: z.literal(EVENT_FORMAT),
  version: z.literal(1),
  tenantId: z.string(),
  sink: z.string(),
  eventId: z.string(),
});
const Header = z.discriminatedUnion('format', [RunHeader, TaskHeader, EventHeader]);
const Manifest = z.object({
  kind: z.literal('manifest'),
  counts: Counts,
  firstSeq: z.int().nullable(),
  lastSeq: z.int().nullable(),
  sha256: z.string(),
});
type Manifest = z.infer<typeof Manifest>;
const TASK_KINDS = ['task', 'attempt'] as const;
const EVENT_KIND = 'parked-event';
const Row = z.object({ kind: z.enum([...KINDS_OF.run, ...TASK_KINDS, EVENT_KIND]), row: JsonRecord });
type RowKind = ArchivedKind | (typeof TASK_KINDS)[number] | typeof EVENT_KIND;

/** One line of an archive, parsed. */
export type ArchiveLine = z.infer<typeof Header> | z.infer<typeof Row> | Manifest;

/** What is being archived is not what it was when the work on it began: look again. */
export class RunChanged extends Error {}

/** A copy that has been read back. */
export interface Archived {
  readonly key: string;
  readonly bytes: number;
  readonly sha256: string;
}

/** Where the copy of a run stands in every sink. Ids may hold any character and be long: the name shows what it can of them, a hash tells them apart. */
export function archiveKeyOf({ tenantId, runId }: RunKey, scope: ArchiveScope): string {
  return `${nameOf(tenantId)}/${nameOf(runId)}/${scope}.jsonl.gz`;
}

function nameOf(id: string): string {
  const shown = id.replace(/[^A-Za-z0-9_-]+/g, '_').slice(0, 60);
  return `${shown}-${createHash('sha256').update(id).digest('hex').slice(0, 16)}`;
}

/** Where the copy of a queue task stands. */
export function taskArchiveKeyOf({ tenantId, taskId }: { tenantId: string; taskId: string }): string {
  return `${nameOf(tenantId)}/${nameOf(taskId)}/task.jsonl.gz`;
}

/** What a copy is made of: the rows in the order in which they will stand, as JSON. */
interface ArchiveContent {
  readonly header: z.infer<typeof Header>;
  readonly rows: AsyncIterable<{ readonly kind: RowKind; readonly row: string; readonly seq?: number }>;
  /** Throws where the rows are not all that there should be: such a copy must not replace a good one. */
  readonly assertWhole: (manifest: Manifest) => void;
  /** Called between pages; may end the work by throwing. */
  readonly alive: () => Promise<void>;
}

/** Writes a copy and reads it back. Errors: ArchiveDamaged when what is read back is not what was written; RunChanged; what the sink throws. */
async function writeArchive(sink: ArchiveSink, key: string, content: ArchiveContent): Promise<Archived> {
  const written: { manifest?: Manifest } = {};
  const lines = linesOf(content, (manifest) => {
    written.manifest = manifest;
  });
  const receipt = await sink.put(key, gzipped(lines));
  if (written.manifest === undefined) throw damaged(key, 'the sink did not read the stream to its end');
  await verify(sink, key, { receipt, manifest: written.manifest, alive: content.alive });
  return { key, ...receipt };
}

/** Writes the copy of an ended run and reads it back. Errors: as writeArchive. */
export function archiveRun(
  on: SqlExecutor,
  sink: ArchiveSink,
  { tenantId, runId, stored, scope, alive }: RunKey & { stored: StoredRun; scope: ArchiveScope; alive: () => Promise<void> },
): Promise<Archived> {
  const run = { tenantId, runId };
  return writeArchive(sink, archiveKeyOf(run, scope), {
    header: { kind: 'header', format: FORMAT, version: 1, scope, ...run },
    rows: rowsOfRun(on, run, scope, alive),
    assertWhole: (manifest) => assertComplete(manifest, stored, scope),
    alive,
  });
}

/** Writes the copy of an ended queue task and reads it back: its row and so many attempts, as JSON in their order. Errors: as writeArchive. */
export function archiveTask(
  sink: ArchiveSink,
  {
    tenantId,
    taskId,
    attempts,
    rows,
  }: { tenantId: string; taskId: string; attempts: number; rows: AsyncIterable<{ kind: 'task' | 'attempt'; row: string }> },
): Promise<Archived> {
  return writeArchive(sink, taskArchiveKeyOf({ tenantId, taskId }), {
    header: { kind: 'header', format: TASK_FORMAT, version: 1, tenantId, taskId },
    rows,
    assertWhole: ({ counts }) => {
      if (counts['task'] !== 1 || (counts['attempt'] ?? 0) !== attempts) throw new RunChanged('the task has changed while it was archived');
    },
    alive: () => Promise.resolve(),
  });
}

/** Writes the copy of an event that a sink has not taken and reads it back: one row, with why. Errors: as writeArchive. */
export function archiveParkedEvent(
  sink: ArchiveSink,
  { row, ...event }: { tenantId: string; sink: string; eventId: string; row: string },
): Promise<Archived> {
  return writeArchive(sink, `${nameOf(event.tenantId)}/${nameOf(`${event.sink}/${event.eventId}`)}/parked-event.jsonl.gz`, {
    header: { kind: 'header', format: EVENT_FORMAT, version: 1, ...event },
    rows: Readable.from([{ kind: EVENT_KIND, row }]) as AsyncIterable<{ kind: typeof EVENT_KIND; row: string }>,
    assertWhole: () => undefined,
    alive: () => Promise.resolve(),
  });
}

function gzipped(lines: AsyncIterable<string>): Readable {
  const gzip = createGzip();
  // An error of a source would otherwise be nobody's, and the stream would never end.
  pipeline(Readable.from(inBlocks(lines)), gzip, () => undefined);
  return gzip;
}

const BLOCK_CHARS = 64 * 1024;

/** Each write to gzip costs a way to another thread and back. */
async function* inBlocks(lines: AsyncIterable<string>): AsyncGenerator<string> {
  let block = '';
  for await (const line of lines) {
    block += line;
    if (block.length < BLOCK_CHARS) continue;
    yield block;
    block = '';
  }
  if (block !== '') yield block;
}

async function* linesOf({ header, rows, assertWhole }: ArchiveContent, done: (manifest: Manifest) => void): AsyncGenerator<string> {
  const tally = new Tally(() => new RunChanged());
  const line = (text: string): string => {
    tally.add(text);
    return `${text}\n`;
  };
  yield line(JSON.stringify(header));
  for await (const { kind, row, seq } of rows) {
    tally.row(kind, seq);
    // A payload is stored as it came: a line break can stand between its tokens, where a space says the same.
    yield line(`{"kind":"${kind}","row":${row.replace(/[\r\n]/g, ' ')}}`);
  }
  const manifest = tally.manifest();
  assertWhole(manifest);
  done(manifest);
  yield `${JSON.stringify(manifest)}\n`;
}

async function* rowsOfRun(
  on: SqlExecutor,
  run: RunKey,
  scope: ArchiveScope,
  alive: () => Promise<void>,
): AsyncGenerator<{ kind: ArchivedKind; row: string; seq?: number }> {
  for (const kind of KINDS_OF[scope]) {
    for (let after: string | null = null; ;) {
      await alive();
      const page = await listRowTexts(on, run, { kind, after });
      for (const { place, row } of page) yield kind === 'event' ? { kind, row, seq: Number(place) } : { kind, row };
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.place;
    }
  }
}

/** A copy of less than was counted must not replace a good one: somebody else is removing the run, or has changed it. */
function assertComplete({ counts, firstSeq, lastSeq }: Manifest, stored: StoredRun, scope: ArchiveScope): void {
  const events = stored.firstEventSeq === null ? 0 : stored.lastEventSeq - stored.firstEventSeq + 1;
  const expected: Record<string, number> =
    scope === 'events'
      ? { event: events }
      : {
          run: 1,
          command: stored.commands,
          intent: stored.intents,
          'runner-job': stored.runnerJobs,
          'cancel-request': stored.cancelRequests,
          event: events,
        };
  const same = KINDS_OF[scope].every((kind) => (counts[kind] ?? 0) === expected[kind]);
  if (!same || firstSeq !== stored.firstEventSeq || (events > 0 && lastSeq !== stored.lastEventSeq)) throw new RunChanged();
}

/** Counts and hashes lines; refuses events out of order. */
class Tally {
  readonly #hash = createHash('sha256');
  readonly #counts: Record<string, number> = {};
  #firstSeq: number | null = null;
  #lastSeq: number | null = null;
  readonly #outOfOrder: (reason: string) => Error;

  constructor(outOfOrder: (reason: string) => Error) {
    this.#outOfOrder = outOfOrder;
  }

  add(line: string): void {
    this.#hash.update(line).update('\n');
  }

  row(kind: RowKind, seq: number | undefined): void {
    this.#counts[kind] = (this.#counts[kind] ?? 0) + 1;
    if (seq === undefined) return;
    if (this.#lastSeq !== null && seq !== this.#lastSeq + 1) throw this.#outOfOrder(`event ${seq} stands behind event ${this.#lastSeq}`);
    this.#firstSeq ??= seq;
    this.#lastSeq = seq;
  }

  manifest(): Manifest {
    const sha256 = this.#hash.digest('hex');
    return { kind: 'manifest', counts: this.#counts, firstSeq: this.#firstSeq, lastSeq: this.#lastSeq, sha256 };
  }
}

async function verify(
  sink: ArchiveSink,
  key: string,
  { receipt, manifest, alive }: { receipt: ArchiveReceipt; manifest: Manifest; alive: () => Promise<void> },
): Promise<void> {
  const hash = createHash('sha256');
  let lines = 0;
  for await (const line of parsedLines(
    key,
    observed(await sink.get(key), (bytes) => hash.update(bytes)),
  )) {
    lines += 1;
    if (lines % 1_000 === 0) await alive();
    if (line.kind === 'manifest' && JSON.stringify(line) !== JSON.stringify(manifest)) throw damaged(key, 'it is another copy');
  }
  if (hash.digest('hex') !== receipt.sha256) throw damaged(key, 'its bytes are not those that were stored');
}

async function* observed(content: AsyncIterable<Buffer>, see: (bytes: Buffer) => void): AsyncGenerator<Buffer> {
  for await (const bytes of content) {
    see(bytes);
    yield bytes;
  }
}

/**
 * The lines of an archive, checked as they come: counts, the order of events and the hash agree with the manifest at its end.
 * Errors: ArchiveNotFound; ArchiveDamaged, possibly behind lines that were given out already.
 */
export async function* readArchive(sink: ArchiveSink, key: string): AsyncGenerator<ArchiveLine> {
  yield* parsedLines(key, await sink.get(key));
}

async function* parsedLines(key: string, content: AsyncIterable<Buffer>): AsyncGenerator<ArchiveLine> {
  const tally = new Tally((reason) => damaged(key, reason));
  let before: ArchiveLine['kind'] | undefined;
  for await (const text of textLines(key, content)) {
    const line = parseLine(key, text);
    if ((before === undefined) !== (line.kind === 'header') || before === 'manifest')
      throw damaged(key, `a line ${line.kind} stands in a wrong place`);
    before = line.kind;
    if (line.kind === 'manifest') {
      if (JSON.stringify(line) !== JSON.stringify(tally.manifest())) throw damaged(key, 'its lines are not those of its manifest');
    } else {
      tally.add(text);
      if (line.kind !== 'header') tally.row(line.kind, line.kind === 'event' ? Number(line.row['seq']) : undefined);
    }
    yield line;
  }
  if (before !== 'manifest') throw damaged(key, 'it has no end');
}

async function* textLines(key: string, content: AsyncIterable<Buffer>): AsyncGenerator<string> {
  const unzipped = createGunzip();
  pipeline(Readable.from(content), unzipped, () => undefined);
  const decoder = new TextDecoder('utf-8', { fatal: true });
  let rest = '';
  try {
    for await (const bytes of unzipped as AsyncIterable<Buffer>) {
      const parts = (rest + decoder.decode(bytes, { stream: true })).split('\n');
      rest = parts.pop() ?? '';
      yield* parts;
    }
    rest += decoder.decode();
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code ?? '';
    if (code.startsWith('Z_') || code === 'ERR_ENCODING_INVALID_ENCODED_DATA') throw damaged(key, 'it cannot be unpacked', error);
    throw error;
  }
  if (rest !== '') throw damaged(key, 'its last line is cut');
}

const Line = z.discriminatedUnion('kind', [Header, Row, Manifest]);

function parseLine(key: string, text: string): ArchiveLine {
  try {
    return parseInput(Line, JSON.parse(exact(text)));
  } catch (error) {
    throw damaged(key, 'a line of it is none of this format', error);
  }
}

/** A whole number that JSON.parse would round is read as the text of its digits. */
function exact(json: string): string {
  if (!/\d{16}/.test(json)) return json;
  return json.replace(/"(?:[^"\\]+|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g, (token) =>
    /^-?\d{16,}$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token,
  );
}

function damaged(archiveKey: string, reason: string, cause?: unknown): ArchiveDamaged {
  return new ArchiveDamaged(
    `The archive ${archiveKey} is damaged: ${reason}.`,
    { archiveKey, reason },
    cause === undefined ? {} : { cause },
  );
}

/** A run as it was archived: rows of each table as JSON. Whole numbers beyond ±(2^53 − 1) are texts, since JSON.parse would round them. */
export interface ArchivedRun extends RunKey {
  readonly scope: ArchiveScope;
  readonly rows: Readonly<Record<ArchivedKind, readonly z.infer<typeof JsonRecord>[]>>;
}

const isOfRun = (kind: RowKind): kind is ArchivedKind => (KINDS_OF.run as readonly RowKind[]).includes(kind);

/** Reads a whole archive into memory and checks it. For a long run use `readArchive`. Errors: ArchiveNotFound, ArchiveDamaged. */
export async function readArchivedRun(sink: ArchiveSink, key: string): Promise<ArchivedRun> {
  const found: Record<ArchivedKind, z.infer<typeof JsonRecord>[]> = {
    run: [],
    command: [],
    intent: [],
    'runner-job': [],
    'cancel-request': [],
    event: [],
  };
  let header: z.infer<typeof RunHeader> | undefined;
  for await (const line of readArchive(sink, key)) {
    if (line.kind === 'header') {
      if (line.format !== FORMAT) throw damaged(key, 'it is the copy of something else');
      header = line;
    } else if (line.kind !== 'manifest' && isOfRun(line.kind)) found[line.kind].push(line.row);
  }
  if (header === undefined) throw damaged(key, 'it is empty');
  const { tenantId, runId, scope } = header;
  return { tenantId, runId, scope, rows: found };
}
