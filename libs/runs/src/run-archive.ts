import { createHash } from 'node:crypto';
import { pipeline, Readable } from 'node:stream';
import { createGunzip, createGzip } from 'node:zlib';
import { ArchiveDamaged, JsonRecord, parseInput } from '@runplane/contracts';
import type { SqlExecutor } from '@runplane/database';
import { z } from 'zod';
import type { ArchiveReceipt, ArchiveSink } from './archive-sink';
import { listRowTexts, type ArchivedKind, type StoredRun } from './run-archive.sql';
import type { RunKey } from './run.sql';

// The copy of a run, or of its events: gzip of JSON lines. The first line is the header, then a line per row, as PostgreSQL writes the row as
// JSON, the small tables first and the events in their order; the last line is the manifest with the counts and the hash of all lines before.
// Nothing is removed before its copy has been read back and is what was written.

const FORMAT = 'runplane-run-archive';

export type ArchiveScope = 'run' | 'events';
const KINDS_OF: Record<ArchiveScope, readonly ArchivedKind[]> = {
  run: ['run', 'command', 'intent', 'runner-job', 'cancel-request', 'event'],
  events: ['event'],
};

const Counts = z.record(z.string(), z.int());
const Header = z.object({
  kind: z.literal('header'),
  format: z.literal(FORMAT),
  version: z.literal(1),
  scope: z.enum(['run', 'events']),
  tenantId: z.string(),
  runId: z.string(),
});
const Manifest = z.object({
  kind: z.literal('manifest'),
  counts: Counts,
  firstSeq: z.int().nullable(),
  lastSeq: z.int().nullable(),
  sha256: z.string(),
});
type Manifest = z.infer<typeof Manifest>;
const Row = z.object({ kind: z.enum(KINDS_OF.run), row: JsonRecord });

/** One line of an archive, parsed. */
export type ArchiveLine = z.infer<typeof Header> | z.infer<typeof Row> | Manifest;

/** The run is not what it was when the work on it began: look again. */
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

/**
 * Writes the copy of an ended run and reads it back. `alive` is called between pages and may end the work by throwing.
 * Errors: ArchiveDamaged when what is read back is not what was written; RunChanged; what the sink throws.
 */
export async function archiveRun(
  on: SqlExecutor,
  sink: ArchiveSink,
  { tenantId, runId, stored, scope, alive }: RunKey & { stored: StoredRun; scope: ArchiveScope; alive: () => Promise<void> },
): Promise<Archived> {
  const key = archiveKeyOf({ tenantId, runId }, scope);
  const written: { manifest?: Manifest } = {};
  const lines = linesOf(on, { tenantId, runId, stored, scope, alive }, (manifest) => {
    written.manifest = manifest;
  });
  const receipt = await sink.put(key, gzipped(lines));
  if (written.manifest === undefined) throw damaged(key, 'the sink did not read the stream to its end');
  await verify(sink, key, { receipt, manifest: written.manifest, alive });
  return { key, ...receipt };
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

async function* linesOf(
  on: SqlExecutor,
  about: RunKey & { stored: StoredRun; scope: ArchiveScope; alive: () => Promise<void> },
  done: (manifest: Manifest) => void,
): AsyncGenerator<string> {
  const { tenantId, runId, scope, stored } = about;
  const tally = new Tally(() => new RunChanged());
  const line = (text: string): string => {
    tally.add(text);
    return `${text}\n`;
  };
  yield line(JSON.stringify({ kind: 'header', format: FORMAT, version: 1, scope, tenantId, runId } satisfies z.infer<typeof Header>));
  for (const kind of KINDS_OF[scope]) {
    for (let after: string | null = null; ;) {
      await about.alive();
      const page = await listRowTexts(on, { tenantId, runId }, { kind, after });
      for (const { place, row } of page) {
        tally.row(kind, kind === 'event' ? Number(place) : undefined);
        // A payload is stored as it came: a line break can stand between its tokens, where a space says the same.
        yield line(`{"kind":"${kind}","row":${row.replace(/[\r\n]/g, ' ')}}`);
      }
      const last = page.at(-1);
      if (last === undefined) break;
      after = last.place;
    }
  }
  const manifest = tally.manifest();
  assertComplete(manifest, stored, scope);
  done(manifest);
  yield `${JSON.stringify(manifest)}\n`;
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

  row(kind: ArchivedKind, seq: number | undefined): void {
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
  let header: z.infer<typeof Header> | undefined;
  for await (const line of readArchive(sink, key)) {
    if (line.kind === 'header') header = line;
    else if (line.kind !== 'manifest') found[line.kind].push(line.row);
  }
  if (header === undefined) throw damaged(key, 'it is empty');
  const { tenantId, runId, scope } = header;
  return { tenantId, runId, scope, rows: found };
}
