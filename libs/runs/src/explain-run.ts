import { type JsonObject, type RunExplanation, type SessionCause, type SessionExplanation, type SessionRebuild } from '@runplane/contracts';
import { executorOf, requireTenant, type At, type SqlExecutor } from '@runplane/database';
import {
  requireSession,
  getSessionRebuild,
  listPendingApprovalsPage,
  listPendingInputsPage,
  storageHeldMs,
  type SessionKey,
  type SessionRow,
} from '@runplane/sessions';
import { findExplainedRun, type ExplainedRun } from './explain-run.sql';
import { absentRun } from './require';
import { decideStaleness } from './run-decisions';
import { explainFacts, inWords } from './run-explanation';
import type { RunKey } from './run.sql';

/** Why the run is where it is: a cause, one sentence, and the facts it was found by. No lock, one snapshot. Errors: RunNotFound. */
export async function explainRun(at: At, key: RunKey): Promise<RunExplanation> {
  const on = executorOf(at);
  const run = await findExplainedRun(on, key);
  if (run === undefined) throw await absentRun(on, key);
  return explanationOf(key.runId, run);
}

/** Why the session is free or busy, and with what. Errors: SessionNotFound. */
export async function explainSession(at: At, key: SessionKey): Promise<SessionExplanation> {
  const on = executorOf(at);
  const session = await requireSession(on, key);
  const run = await activeRun(on, session);
  const { claimDeadlineMs } = (await requireTenant(on, key.tenantId)).settings;
  const asked = run === undefined ? await oldestRequest(on, key) : undefined;
  const { cause, isMoving, sentence } = explainSessionFacts(session, run, { claimDeadlineMs, asked });
  const views = await getSessionRebuild(at, key);
  return {
    sessionId: session.sessionId,
    cause,
    isMoving,
    sentence: views.stale ? `${sentence} ${staleViews(views)}` : sentence,
    facts: known({
      staleViews: views.staleReason,
      executionState: session.executionState,
      activeRunId: session.activeRunId,
      activeCommandId: session.activeCommandId,
      lastRunId: session.lastRunId,
      terminalStatus: session.terminalStatus,
      failureKind: session.failureKind,
      version: session.version,
      askedId: asked?.id ?? null,
      askedEndsInMs: asked?.endsInMs ?? null,
    }),
    run: run === undefined ? null : explanationOf(session.activeRunId ?? '', run),
  };
}

/** What is read of the log (context, approvals, snapshot) may not be as the log says; the log itself is. */
function staleViews({ staleReason, state, lastError }: SessionRebuild): string {
  const how = { none: 'ask for a rebuild', waiting: 'a rebuild waits', running: 'a rebuild is under way', completed: 'ask for a rebuild' };
  return `Its views are stale (${staleReason ?? ''}): ${how[state]}${lastError === null ? '' : `, the last one failed: ${lastError}`}.`;
}

async function activeRun(on: SqlExecutor, { tenantId, activeRunId }: SessionRow): Promise<ExplainedRun | undefined> {
  return activeRunId === null ? undefined : findExplainedRun(on, { tenantId, runId: activeRunId });
}

/** What a session asks of people while no run holds it. */
interface AskedOfPeople {
  readonly cause: 'waits-for-approval' | 'waits-for-input';
  readonly what: string;
  readonly id: string;
  readonly endsInMs: number | null;
}

/** The oldest approval that can still be decided, else the oldest question. */
async function oldestRequest(on: SqlExecutor, key: SessionKey): Promise<AskedOfPeople | undefined> {
  const [approval] = await listPendingApprovalsPage(on, { ...key, after: undefined, limit: 1 });
  if (approval !== undefined) {
    const { toolName, approvalId: id, expiresInMs: endsInMs } = approval;
    return { cause: 'waits-for-approval', what: `somebody to approve a call of ${toolName}`, id, endsInMs };
  }
  const [request] = await listPendingInputsPage(on, { ...key, after: undefined, limit: 1 });
  if (request === undefined) return undefined;
  return { cause: 'waits-for-input', what: 'an answer to its question', id: request.requestId, endsInMs: request.expiresInMs };
}

/** The rule alone: `run` is the open turn's. */
export function explainSessionFacts(
  session: SessionRow,
  run: ExplainedRun | undefined,
  { claimDeadlineMs, asked }: { claimDeadlineMs: number; asked?: AskedOfPeople | undefined },
): { cause: SessionCause; isMoving: boolean; sentence: string } {
  const heldMs = storageHeldMs(session);
  if (heldMs !== undefined) {
    const sentence = `Its storage is being deleted (it had expired): no turn starts for ${inWords(heldMs)}, or until that is done.`;
    return { cause: 'storage-leaving', isMoving: true, sentence };
  }
  if (session.activeRunId === null || run === undefined) {
    if (asked !== undefined) {
      const sentence = `A worker of the session waits for ${asked.what} (${asked.id}); it expires in ${inWords(asked.endsInMs)}. No run holds the session.`;
      return { cause: asked.cause, isMoving: false, sentence };
    }
    if (session.lastRunId === null)
      return { cause: 'never-used', isMoving: true, sentence: 'No run was ever started in the session; it is free for a turn.' };
    const outcome = session.terminalStatus === null ? 'has not begun a turn' : `ended as ${session.terminalStatus}`;
    const failure = session.failureKind === null ? '' : ` (${session.failureKind})`;
    return {
      cause: 'free',
      isMoving: true,
      sentence: `The session is free for a turn; its last run ${session.lastRunId} ${outcome}${failure}.`,
    };
  }
  const lease = run.leaseInMs === null ? undefined : { expiresInMs: run.leaseInMs };
  const waitLeftMs = claimDeadlineMs - Math.min(run.unchangedForMs, run.pendingCommandForMs ?? 0);
  const staleness = decideStaleness(run, lease, run.intentState ?? undefined, waitLeftMs);
  const why = explainFacts(run);
  const turn = `The turn ${session.activeCommandId ?? ''} of run ${session.activeRunId}`;
  if (staleness.kind === 'stale') {
    return {
      cause: 'takeover-possible',
      isMoving: false,
      sentence: `${turn} is stale (${staleness.why}): a new turn takes the session over. ${why.sentence}`,
    };
  }
  const until = staleness.staleInMs === null ? '' : ` It can be taken over in ${inWords(staleness.staleInMs)} if nothing happens.`;
  return { cause: 'busy', isMoving: why.isMoving, sentence: `${turn} holds the session. ${why.sentence}${until}` };
}

function explanationOf(runId: string, run: ExplainedRun): RunExplanation {
  const { cause, isMoving, sentence, nextChangeInMs } = explainFacts(run);
  return {
    runId,
    cause,
    isMoving,
    sentence,
    nextChangeInMs: nextChangeInMs === null ? null : Math.max(nextChangeInMs, 0),
    facts: known({ ...run }),
  };
}

/** The facts without those that do not apply. */
function known(facts: Readonly<Record<string, JsonObject[string]>>): JsonObject {
  return Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== null));
}
