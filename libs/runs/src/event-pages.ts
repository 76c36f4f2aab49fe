import {
  CommandNotFound,
  contentHash,
  cursorTime,
  defineCursor,
  identifier,
  ListEvents,
  ListSessionEvents,
  parseInput,
  RunNotFound,
  SessionNotFound,
  type JsonObject,
  type RunEventCount,
  type RunEventList,
  type SessionEventList,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { z } from 'zod';
import type { CommandKey } from './command.sql';
import { countEvents, ofCommand, OUTPUT, scanRunEvents, scanSessionEvents, type Choice } from './event-pages.sql';
import { absentRun, requireEvents } from './require';
import { findLogHead } from './run-event.sql';
import type { RunKey } from './run.sql';

// Chosen events, page by page. A page reads 10,000 rows at most: it may be short, even empty, before the end; its cursor is null at the end alone.
// What is appended behind the end is followed by listRunEvents, the stream or the feed.

const sequence = z.int().min(0);
const eventCursor = defineCursor('run-events', z.strictObject({ seq: sequence }));
const sessionCursor = defineCursor('session-events', z.strictObject({ createdAt: cursorTime, runId: identifier, seq: sequence }));

/** How many events a run has behind a sequence. Errors: RunNotFound. */
export async function countRunEvents(
  at: At,
  { tenantId, runId, afterSeq = 0 }: RunKey & { afterSeq?: number | undefined },
): Promise<RunEventCount> {
  const on = executorOf(at);
  const counted = await countEvents(on, { tenantId, runId }, parseInput(sequence, afterSeq));
  if (counted === undefined) throw await absentRun(on, { tenantId, runId });
  return counted;
}

/** What was said in a run: messages, output, errors, its end. Errors: InvalidRequest, InvalidCursor, RunNotFound, RunDeleted, EventsPruned. */
export function listRunOutput(at: At, { tenantId, runId, ...page }: RunKey & ListEvents): Promise<RunEventList> {
  return readPage(at, { tenantId, runId }, page, { list: 'output' }, OUTPUT);
}

/**
 * What belongs to a command: its events, those that name it as their target, and the run's end. Errors: InvalidRequest, InvalidCursor,
 * RunNotFound, RunDeleted, EventsPruned, CommandNotFound (also for a command of another run).
 */
export function listCommandEvents(
  at: At,
  { tenantId, runId, commandId, ...page }: RunKey & CommandKey & ListEvents,
): Promise<RunEventList> {
  return readPage(at, { tenantId, runId }, page, { list: 'command', commandId }, ofCommand(commandId), commandId);
}

async function readPage(
  at: At,
  key: RunKey,
  input: ListEvents,
  filter: JsonObject,
  choice: Choice,
  commandId: string | null = null,
): Promise<RunEventList> {
  const { cursor, limit } = parseInput(ListEvents, input);
  const filterHash = contentHash({ ...key, ...filter }).hash;
  const afterSeq = cursor === undefined ? 0 : eventCursor.decode(cursor, filterHash).seq;
  const on = executorOf(at);
  const page = await scanRunEvents(on, key, { choice, commandId, afterSeq, limit });
  if (page === undefined) throw await absentRun(on, key);
  requireEvents(key.runId, page.pruned, afterSeq);
  if (!page.isThere && commandId !== null)
    throw new CommandNotFound(`There is no command ${commandId} in run ${key.runId}.`, { commandId });
  return { events: page.events, cursor: page.next === null ? null : eventCursor.encode({ seq: page.next }, filterHash) };
}

type SessionKey = { readonly tenantId: string; readonly sessionId: string };

/**
 * Every event of a session's run (the named one, else the active, else the last), or of all its runs in the order of their creation. Pages stay
 * with the run of the first. Errors: InvalidRequest, InvalidCursor, SessionNotFound, RunNotFound (also for a run of another session); EventsPruned
 * for one run whose events are gone: over all runs such logs are passed over, but for the event that tells it.
 */
export function listSessionTrace(at: At, request: SessionKey & ListSessionEvents): Promise<SessionEventList> {
  return readSessionPage(at, request, 'trace', null);
}

/** The same with what was said alone. */
export function listSessionOutput(at: At, request: SessionKey & ListSessionEvents): Promise<SessionEventList> {
  return readSessionPage(at, request, 'output', OUTPUT);
}

async function readSessionPage(
  at: At,
  { tenantId, sessionId, ...input }: SessionKey & ListSessionEvents,
  list: string,
  choice: Choice | null,
): Promise<SessionEventList> {
  const { cursor, limit, runId, runs } = parseInput(ListSessionEvents, input);
  const filterHash = contentHash({ tenantId, sessionId, list, runs, runId: runId ?? null }).hash;
  const after = cursor === undefined ? undefined : sessionCursor.decode(cursor, filterHash);
  const on = executorOf(at);
  const page = await scanSessionEvents(on, {
    tenantId,
    sessionId,
    runs: runs === 'all' ? 'all' : { one: runId },
    choice,
    after,
    limit,
  });
  if (page === undefined) throw new SessionNotFound(`There is no session ${sessionId}.`, { sessionId });
  if (!page.runIsThere && page.runId !== null) {
    throw new RunNotFound(`Run ${page.runId} does not belong to session ${sessionId}.`, { runId: page.runId });
  }
  if (page.runId !== null) {
    const head = await findLogHead(on, { tenantId, runId: page.runId });
    requireEvents(page.runId, head?.pruned ?? null, after?.seq ?? 0);
  }
  return {
    sessionId,
    runId: page.runId,
    events: page.events,
    cursor: page.next === null ? null : sessionCursor.encode(page.next, filterHash),
  };
}
