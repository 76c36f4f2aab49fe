import {
  ClockSkew,
  isDomainError,
  SESSION_CLOCK_SKEW_MS_MAX,
  TransactionConflict,
  type AppendedSessionEvents,
  type JsonValue,
} from '@runplane/contracts';
import {
  announce,
  constraintOf,
  executorOf,
  inTransaction,
  isTx,
  maybeRow,
  type At,
  type Db,
  type Sql,
  type SqlExecutor,
  type Tx,
} from '@runplane/database';
import { encodeFeedCursor, feedStreams } from '@runplane/outbox';
import { replayAppend, replayEvent } from './append-replay';
import { appendCoalescer } from './append-coalescer';
import { appendStatement, WrittenAppend, type AppendGuard } from './append-statement.sql';
import { isPlain, type PlainAppend } from './append-together.sql';
import { foldBatch, loadsOf, placeEvents, touchedBy, type FoldedBatch, type PlacedEvent } from './fold-batch';
import { assertFence, assertOpen, assertSequence } from './judge-append';
import { projectionsOf } from './projections';
import { decisionStream, isDecision } from './projections/requests';
import { RepeatedEvent, type Projection } from './projections/projection';
import { movesQueue, queuesTurn, submissionStreams, TURN_QUEUED } from './projections/submission';
import { sessionNotFound } from './session';
import { sessionStream } from './session-event.sql';
import type { StorableSessionEvent } from './session-event-input';
import { lockHead, readHead, type HeadRow } from './session-head.sql';
import type { SessionKey } from './session.sql';

// The pipeline of every append: read the head with what the touched projections ask for, judge, ask the guards and fold in memory, write with one
// lock-first statement. Projections plug in at projections/index.ts and nowhere here.

/** An append that has passed the door. */
export interface WantedAppend extends SessionKey {
  readonly events: readonly StorableSessionEvent[];
  /** Of the session lease; null: the caller needs none. */
  readonly epoch: number | null;
  /** That the first event must have; undefined: at the end. */
  readonly sequence: number | undefined;
  readonly appendId: string | undefined;
  /** Of the session's oldest submission: written only while it is in force. */
  readonly claim?: { readonly operationId: string; readonly epoch: number } | undefined;
  /** True only in a transaction that writes the end of a session's own log. */
  readonly evenIfDeleted?: boolean | undefined;
}

/** Lost races after which the head is locked before it is read. */
const LOOKS_MAX = 3;

/** Appends at the end of the log, or says why not; see appendSessionEvents. In a caller's transaction the head is locked first. */
export async function appendEvents(at: At, wanted: WantedAppend): Promise<AppendedSessionEvents> {
  if (isTx(at)) return appendLocked(at, wanted);
  // Whether the time of a request is over is judged behind the lock.
  if (wanted.events.some(isDecision)) return inTransaction(at, (tx) => appendLocked(tx, wanted));
  for (let look = 1; look <= LOOKS_MAX; look += 1) {
    const answer = await lookAndAppend(at, wanted, look);
    if (answer !== undefined) return answer;
  }
  return inTransaction(at, (tx) => appendLocked(tx, wanted));
}

/** Undefined: the log has moved between the read and the write, or an answer was lost and its append id tells what became of it. */
async function lookAndAppend(db: Db, wanted: WantedAppend, look: number): Promise<AppendedSessionEvents | undefined> {
  const found = await readForAppend(db.sql, wanted, projectionsOf(db));
  const prepared = await prepare(db.sql, wanted, found);
  if (prepared.kind === 'answer') return prepared.answer;
  try {
    const written = await writeBatch(db, wanted, found.head, prepared.batch);
    if (written === undefined) return undefined;
    announceAppend(db, wanted);
    return written.answer;
  } catch (error) {
    if (wanted.appendId === undefined || look === LOOKS_MAX) throw error;
    if (isUnknownOutcome(error) || constraintOf(error) === 'session_events_append') return undefined;
    throw error;
  }
}

/** The same with the head locked first: nothing can come in between. */
async function appendLocked(tx: Tx, wanted: WantedAppend): Promise<AppendedSessionEvents> {
  const locked = await lockHead(tx, wanted);
  if (locked === undefined) throw sessionNotFound(wanted.sessionId);
  // Views and append ids are read by a second statement: the snapshot of the one that waited for the lock may be older.
  const found = await readForAppend(tx, wanted, projectionsOf(tx), locked);
  const prepared = await prepare(tx, wanted, found);
  if (prepared.kind === 'answer') return prepared.answer;
  const written = await writeBatch(tx, wanted, found.head, prepared.batch);
  if (written === undefined) {
    // The lease has run out since, or the clock has moved: the log cannot have.
    const again = await readHead(tx, wanted);
    if (again !== undefined && wanted.epoch !== null) assertFence(again.head, wanted.epoch);
    throw new TransactionConflict(`Session ${wanted.sessionId} changed under its own lock: repeat the call.`, { attempts: 1 });
  }
  announceAppend(tx, wanted);
  return written.answer;
}

/** What an append is decided on. */
export interface Found {
  readonly head: HeadRow;
  readonly touched: readonly Projection[];
  readonly loaded: readonly (JsonValue | undefined)[];
  readonly appendedAt: number | null;
}

/** Errors: SessionNotFound. */
export async function readForAppend(
  on: SqlExecutor,
  wanted: WantedAppend,
  projections: readonly Projection[],
  locked?: HeadRow,
): Promise<Found> {
  const touched = touchedBy(projections, wanted.events);
  const loads = loadsOf(touched, wanted.events, wanted);
  const asked = loads.filter((load) => load !== undefined);
  const nothingToRead = asked.length === 0 && wanted.appendId === undefined;
  const found =
    locked !== undefined && nothingToRead
      ? { head: locked, loaded: [], appendedAt: null }
      : await readHead(on, wanted, { loads: asked, appendId: wanted.appendId });
  if (found === undefined) throw sessionNotFound(wanted.sessionId);
  return { ...found, touched, loaded: spread(loads, found.loaded) };
}

/** Gives each load its answer; those that asked for nothing have none. */
function spread(loads: readonly (Sql | undefined)[], texts: readonly (string | null)[]): (JsonValue | undefined)[] {
  const answers = texts.values();
  return loads.map((load) => {
    if (load === undefined) return undefined;
    const text = answers.next().value ?? null;
    return text === null ? null : (JSON.parse(text) as JsonValue);
  });
}

export type Prepared = { kind: 'answer'; answer: AppendedSessionEvents } | { kind: 'write'; batch: FoldedBatch };

/** Judges the head and folds the batch; a repeat and an empty append are answered here. Errors: every refusal of an append. */
export async function prepare(on: SqlExecutor, wanted: WantedAppend, found: Found): Promise<Prepared> {
  const { head, appendedAt } = found;
  const { events, epoch, appendId } = wanted;
  if (wanted.evenIfDeleted !== true) assertOpen(head);
  if (appendedAt !== null && appendId !== undefined) {
    return { kind: 'answer', answer: await replayAppend(on, head, { appendId, appendedAt, events }) };
  }
  if (epoch !== null) assertFence(head, epoch);
  assertSequence(head, wanted.sequence);
  if (events.length === 0) return { kind: 'answer', answer: { events: [], lastSequence: head.lastSequence, replayed: false } };
  const placed = placeEvents(events, head, head.now);
  assertClock(placed, head.now);
  try {
    return { kind: 'write', batch: foldBatch(found.touched, { events: placed, head, loaded: found.loaded }) };
  } catch (error) {
    if (!(error instanceof RepeatedEvent)) throw error;
    if (events.length > 1) throw error.refusal;
    return { kind: 'answer', answer: await replayEvent(on, head, error.sequence) };
  }
}

/** Errors: ClockSkew. */
function assertClock(events: readonly PlacedEvent[], now: number): void {
  if (events.every(({ time }) => Math.abs(time - now) <= SESSION_CLOCK_SKEW_MS_MAX)) return;
  const databaseTime = new Date(now).toISOString();
  throw new ClockSkew(`An event's time is more than five minutes off the database's, which is ${databaseTime}.`, {
    databaseTime,
    skewMsMax: SESSION_CLOCK_SKEW_MS_MAX,
  });
}

/** Writes a folded batch; undefined: the head is not what it was when it was read, and nothing is written. `now`: the database's clock then. */
export async function writeBatch(
  at: At,
  wanted: WantedAppend,
  head: HeadRow,
  batch: FoldedBatch,
): Promise<{ answer: AppendedSessionEvents; now: number } | undefined> {
  const row = await write(at, wanted, head, batch);
  return row.ok ? { answer: answerOf(batch.events, head.storeId, row), now: row.now } : undefined;
}

/** By the statement that other sessions' appends share, where it is one that can, and nobody's transaction. Errors: SessionNotFound. */
function write(at: At, wanted: WantedAppend, head: HeadRow, batch: FoldedBatch): Promise<WrittenAppend> {
  const { tenantId, sessionId, epoch, appendId = null, claim = null, evenIfDeleted } = wanted;
  const guard: AppendGuard = { lastSequence: head.lastSequence, viewsEpoch: head.viewsEpoch, epoch, claim, open: evenIfDeleted !== true };
  if (isTx(at) || !at.options.coalesce || claim !== null || !guard.open || !isPlain(batch))
    return writeAlone(at, { tenantId, sessionId, batch, guard, appendId });
  return appendCoalescer(at, writePlain).run({ tenantId, sessionId, batch, guard, appendId });
}

const writePlain = (db: Db, append: PlainAppend): Promise<WrittenAppend> =>
  writeAlone(db, { ...append, guard: { ...append.guard, claim: null, open: true } });

async function writeAlone(
  at: At,
  { batch, guard, appendId, ...key }: PlainAppend & { readonly guard: AppendGuard },
): Promise<WrittenAppend> {
  const floor = isTx(at) ? at.feed.value : 0n;
  const row = await maybeRow(executorOf(at), WrittenAppend, appendStatement(key, batch, { guard, floor, appendId }));
  if (row === undefined) throw sessionNotFound(key.sessionId);
  return row;
}

function answerOf(events: readonly PlacedEvent[], storeId: string, { tx, position }: WrittenAppend): AppendedSessionEvents {
  return {
    events: events.map(({ sequence, eventId, timeText }, i) => ({
      sequence,
      eventId,
      time: timeText,
      cursor: encodeFeedCursor(storeId, { tx, position: position + BigInt(i) }),
    })),
    lastSequence: events.at(-1)?.sequence ?? -1,
    replayed: false,
  };
}

/** Tells whoever follows the log or the feed, waits for a decision, or for something to claim, after the commit. */
export function announceAppend(at: At, append: Pick<WantedAppend, 'tenantId' | 'sessionId' | 'events'>): void {
  const streams = [
    sessionStream(append),
    ...feedStreams(append.tenantId),
    ...append.events.flatMap((event) => decisionStream(append, event)),
    ...(append.events.some(movesQueue) ? submissionStreams(append.tenantId) : []),
    ...(append.events.some(queuesTurn) ? [TURN_QUEUED] : []),
  ];
  for (const stream of streams) announce(at, stream);
}

export const isUnknownOutcome = (error: unknown): boolean => isDomainError(error) && error.code === 'outcome_unknown';
