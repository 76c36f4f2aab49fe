import {
  ApprovalNotFound,
  InputRequestNotFound,
  parseInput,
  RequestApproval,
  RequestInput,
  type Approval,
  type InputRequest,
  type NewSessionEvent,
  type RequestedApproval,
  type RequestedInput,
} from '@runplane/contracts';
import type { Db, Tx, Wait } from '@runplane/database';
import {
  appendAsServer,
  askForApproval,
  askForInput,
  getApproval,
  getInputRequest,
  waitForApproval,
  waitForInput,
} from '@runplane/sessions';
import { requireRun } from './require';
import type { RunKey } from './run.sql';
import { assertAsks, requireTurn } from './session-turn';

// What a runner asks of people. It needs no session lease: its right is the claim of the run that has the session's open turn, checked under the
// run's lock, which whoever would take the turn away has to wait for (OWN-3). Run and command are stamped on what it asks, and end it (END-1).

/**
 * The runner of a session's open turn asks people to approve a call.
 *
 * Input     epoch: of the claim; the rest as libs/sessions' requestApproval.
 * Returns   the approval. The same id and content, by the same run: the approval as it stands now, `replayed: true`; also by the next runner.
 * Locks     run → session head.   Writes: session_events, approvals, session_heads, outbox.
 * Errors    RunNotFound, RunDeleted; LeaseLost, RunClosed, RunCancelling; SessionRequired, RunNotActive; ApprovalConflict, TooManyOpenRequests;
 *           InvalidRequest, InvalidJson, PayloadTooLarge.
 * Emits     approval/requested, with the run and its turn.
 * Repeat    safe with an id of the caller's own.
 */
export async function requestApproval(tx: Tx, { tenantId, runId, ...input }: RunKey & RequestApproval): Promise<RequestedApproval> {
  const { epoch, ...ask } = parseInput(RequestApproval, input);
  const { key, append } = await askerOf(tx, { tenantId, runId }, epoch);
  return askForApproval(tx, key, ask, append);
}

/** The same for input. Errors: InputRequestConflict, InvalidInputSchema besides. Emits: user-input/requested. */
export async function requestInput(tx: Tx, { tenantId, runId, ...input }: RunKey & RequestInput): Promise<RequestedInput> {
  const { epoch, ...ask } = parseInput(RequestInput, input);
  const { key, append } = await askerOf(tx, { tenantId, runId }, epoch);
  return askForInput(tx, key, ask, append);
}

/** How the holder of this epoch puts what it asks into the log of its session. Locks: run. */
async function askerOf(tx: Tx, { tenantId, runId }: RunKey, epoch: number) {
  const { run, key, commandId } = await requireTurn(tx, { tenantId, runId }, epoch);
  assertAsks(run);
  return { key, append: (event: NewSessionEvent) => appendAsServer(tx, key, { events: [event], runId, commandId }) };
}

/** An approval that this run has asked for, once it is resolved or after `waitMs`; see waitForApproval. Errors: RunNotFound, ApprovalNotFound. */
export async function waitForRunApproval(
  db: Db,
  { tenantId, runId, approvalId, ...wait }: RunKey & Wait & { approvalId: string },
): Promise<Approval> {
  const sessionId = await sessionOf(db, { tenantId, runId });
  const key = sessionId === null ? undefined : { tenantId, sessionId, approvalId };
  if (key !== undefined && (await getApproval(db, key)).runId === runId) return waitForApproval(db, { ...key, ...wait });
  throw new ApprovalNotFound(`Run ${runId} has asked for no approval ${approvalId}.`, { sessionId: sessionId ?? '', approvalId });
}

/** The same for a request for input. Errors: RunNotFound, InputRequestNotFound. */
export async function waitForRunInput(
  db: Db,
  { tenantId, runId, requestId, ...wait }: RunKey & Wait & { requestId: string },
): Promise<InputRequest> {
  const sessionId = await sessionOf(db, { tenantId, runId });
  const key = sessionId === null ? undefined : { tenantId, sessionId, requestId };
  if (key !== undefined && (await getInputRequest(db, key)).runId === runId) return waitForInput(db, { ...key, ...wait });
  throw new InputRequestNotFound(`Run ${runId} has asked for no input ${requestId}.`, { sessionId: sessionId ?? '', requestId });
}

const sessionOf = async (db: Db, key: RunKey): Promise<string | null> => (await requireRun(db.sql, key)).sessionId;
