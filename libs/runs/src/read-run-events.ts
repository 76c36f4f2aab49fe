import {
  EVENT_LIST_ROWS_DEFAULT,
  EVENT_LIST_ROWS_MAX,
  isFinalRun,
  type RunEvent,
  type RunResult,
  type RunState,
} from '@runplane/contracts';
import { executorOf, waitFor, type At, type Db, type SqlExecutor, type Wait } from '@runplane/database';
import { absentRun, requireEvents, requireRun } from './require';
import { findLastAssistantMessage, findLogHead, readLog, sumUsage } from './run-event.sql';
import { runStream, type RunKey } from './run.sql';

export interface RunEventPage {
  readonly events: RunEvent[];
  /** The log's last sequence, of the same moment as the events. */
  readonly lastSeq: number;
  readonly status: RunState;
  /** The sequence of terminal_status once the run has ended; only diagnostics of the server can follow it. */
  readonly terminalSeq: number | null;
}

export interface ReadRunEvents extends RunKey {
  readonly afterSeq: number;
  readonly limit?: number | undefined;
}

/** Events of a run behind a sequence, ascending, without a gap. Errors: RunNotFound, RunDeleted; EventsPruned when some of them are gone. */
export async function listRunEvents(
  at: At,
  { tenantId, runId, afterSeq, limit = EVENT_LIST_ROWS_DEFAULT }: ReadRunEvents,
): Promise<RunEventPage> {
  const on = executorOf(at);
  const log = await readLog(on, { tenantId, runId }, { afterSeq, limit: Math.min(Math.max(limit, 1), EVENT_LIST_ROWS_MAX) });
  if (log === undefined) throw await absentRun(on, { tenantId, runId });
  const { pruned, ...page } = log;
  requireEvents(runId, pruned, afterSeq);
  return page;
}

/**
 * The same, waiting for the first event up to `waitMs`. Subscribes first and reads then, so that no wake-up is lost; holds no connection
 * while it waits; an ended run is answered at once. Writes nothing.
 */
export function waitForRunEvents(db: Db, request: ReadRunEvents & Wait): Promise<RunEventPage> {
  return waitFor(db, runStream(request), request, async () => {
    const page = await listRunEvents(db, request);
    return { value: page, done: page.events.length > 0 || page.terminalSeq !== null };
  });
}

/** What has become of a run so far. Errors: RunNotFound, RunDeleted; EventsPruned: what the assistant said and what was used went with the events. */
export async function getRunResult(at: At, key: RunKey): Promise<RunResult> {
  const on = executorOf(at);
  const run = await requireRun(on, key);
  const message = await findLastAssistantMessage(on, key);
  const usage = await sumUsage(on, key);
  // Behind the events: their removal, which is told before it begins, may have come in between.
  if (isFinalRun(run.status)) await requireAllEvents(on, key);
  return {
    runId: run.id,
    status: run.status,
    finished: isFinalRun(run.status),
    failure: run.failure,
    lastAssistantMessage: message?.text ?? null,
    usage,
    lastEventSeq: run.lastEventSeq,
  };
}

async function requireAllEvents(on: SqlExecutor, key: RunKey): Promise<void> {
  const head = await findLogHead(on, key);
  if (head === undefined) throw await absentRun(on, key);
  requireEvents(key.runId, head.pruned, 0);
}

/** The same, waiting up to `waitMs` for the run's end. */
export async function waitForRunResult(db: Db, { tenantId, runId, ...wait }: RunKey & Wait): Promise<RunResult> {
  const key = { tenantId, runId };
  await waitFor(db, runStream(key), wait, async () => {
    const head = await findLogHead(db.sql, key);
    if (head === undefined) throw await absentRun(db.sql, key);
    return { value: undefined, done: head.terminalSeq !== null };
  });
  return getRunResult(db, key);
}

export type StreamItem = { readonly events: RunEvent[] } | { readonly end: { readonly status: RunState; readonly terminalSeq: number } };

/** How long a live stream waits for a hint before it looks by itself; the hub's safety poll is what normally wakes it. */
const LOOK_EVERY_MS = 60_000;

/**
 * A run's log, live, from behind a sequence to its end. The last item tells the end; a reader that starts behind terminal_status gets the
 * diagnostics there are first. Each reader has its own cursor; nothing is held while it waits. Ends without `end` on abort and when the
 * hub closes. Errors: as listRunEvents.
 */
export async function* streamRunEvents(
  db: Db,
  { tenantId, runId, afterSeq, signal }: RunKey & { afterSeq: number; signal: AbortSignal },
): AsyncGenerator<StreamItem> {
  const subscription = db.hub.subscribe(runStream({ tenantId, runId }));
  let seen = afterSeq;
  try {
    while (!signal.aborted) {
      const { events, lastSeq, terminalSeq, status } = await listRunEvents(db, {
        tenantId,
        runId,
        afterSeq: seen,
        limit: EVENT_LIST_ROWS_DEFAULT,
      });
      if (events.length > 0) yield { events };
      seen = events.at(-1)?.seq ?? seen;
      if (events.length === EVENT_LIST_ROWS_DEFAULT || (events.length > 0 && seen < lastSeq)) continue; // cut by number or by size
      if (terminalSeq !== null && seen >= terminalSeq) {
        yield { end: { status, terminalSeq } };
        return;
      }
      const woken = await subscription.next({ timeoutMs: LOOK_EVERY_MS, signal });
      if (woken === 'closed' || woken === 'aborted') return;
    }
  } finally {
    subscription.close();
  }
}
