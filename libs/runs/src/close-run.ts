import {
  commandStateOf,
  FAILURE_MESSAGE_CODE_POINTS_MAX,
  freeText,
  isFinalRun,
  type JsonObject,
  type TerminalStatus,
} from '@runplane/contracts';
import { emptySql, sql, type Sql, type Stream, type Tx } from '@runplane/database';
import { cancelOpenRequests, lockSession, writeFeedNumber, writeThread, writeTurnEnded, type SessionRow } from '@runplane/sessions';
import { writeCancelStage } from './cancel-request.sql';
import { lockOpenCommands, writeCommandsCancelledWithRun, writeCommandsClosed, type CommandEnding, type CommandRow } from './command.sql';
import { cancelOpenIntents } from './dispatch-intent.sql';
import { appendServerEvents, listOpenToolCalls, type ServerEvent } from './run-event.sql';
import { deleteRunLease } from './run-lease.sql';
import { addSearchText } from './run-search.sql';
import { searchLines } from './run-search';
import { commandStream, type RunRow } from './run.sql';
import { cancelStageEvent, commandTerminalEvent, runTerminalEvent, sessionUpdatedEvent, steerEvent } from './server-events';

/** Told with each end of a run, for what hangs on runs without their knowing: see settleAttemptsOnce in libs/queue. */
export const RUN_ENDED = 'runs:ended' satisfies Stream;

/** How a run ends, and why. */
export interface RunEnding {
  readonly status: TerminalStatus;
  /** Null exactly for `completed`. */
  readonly failureKind: string | null;
  readonly failureMessage: string | null;
  /** The machine's word for the cause where the server ends the run; null where a runner reports. */
  readonly reason: string | null;
  readonly threadId?: string | null | undefined;
  readonly turnId?: string | null | undefined;
  /** The cancel that this ending fulfils. */
  readonly cancel?: { readonly requestId: string; readonly epoch: number; readonly reason: string } | undefined;
  /** Events that tell what led here, before the closing ones. */
  readonly before?: readonly ServerEvent[] | undefined;
  /** Further facts in the events that tell the end of the run and of its commands. */
  readonly facts?: JsonObject | undefined;
  /** Further columns of the run that change with it, as the end of a SET list. */
  readonly set?: Sql | undefined;
}

/** A run that is ending, with what lies under it, all locked. */
interface Closing {
  readonly run: RunRow;
  readonly ending: RunEnding;
  readonly commands: readonly CommandRow[];
  readonly session: SessionRow | undefined;
}

/** Ends one kind of thing under a run and tells it. Takes locks above the session's rank only; everything below is held. */
type Closer = (tx: Tx, closing: Closing) => Promise<ServerEvent[]>;

/** Everything that can be open under a run, in the order in which the log tells its end, before terminal_status. */
const CLOSERS: readonly Closer[] = [updateThread, closeToolCalls, closeRequests, closeCommands];

/**
 * Ends a run: the one function through which every ending goes (END-1). Under it nothing stays open: lease, intents, tool calls, what it asks of
 * people, commands; the session is freed if it still belongs to the run.
 *
 * Input     run: locked by this transaction and not ended.
 * Locks     run (held) → run lease → commands → intents → session → session head, where it asks something.   Writes: the same, approvals, input
 *           requests, both logs, outbox.
 * Emits     tool_result (`cancelled` or `lost`) for each open tool call, command-terminal for each open command, steer-missed for each open steer,
 *           terminal_status, and behind it the last stage of a cancel; in the session's log approval/resolved and user-input/resolved.
 * Keeps     END-1, LOG-2, LOG-3, TURN-1.
 */
export async function closeRun(tx: Tx, run: RunRow, given: RunEnding): Promise<void> {
  if (isFinalRun(run.status)) throw new Error(`closeRun: run ${run.id} has ended already`);
  const ending = {
    ...given,
    failureMessage: given.failureMessage === null ? null : freeText(given.failureMessage, FAILURE_MESSAGE_CODE_POINTS_MAX),
  };
  const key = { tenantId: run.tenantId, runId: run.id };
  await deleteRunLease(tx, key);
  const commands = await lockOpenCommands(tx, key);
  await cancelOpenIntents(tx, key, { commandId: null, reason: ending.failureMessage ?? `run ${ending.status}` });
  const session = run.sessionId === null ? undefined : await lockSession(tx, { tenantId: run.tenantId, sessionId: run.sessionId });

  const closing: Closing = { run, ending, commands, session };
  const events = [...(ending.before ?? [])];
  for (const close of CLOSERS) events.push(...(await close(tx, closing)));
  events.push(runTerminalEvent(ending), ...(await closeCancelRequests(tx, closing)));
  await appendServerEvents(
    tx,
    key,
    events,
    sql`, status = ${ending.status}::text::runplane.run_state, failure_kind = ${ending.failureKind}::text, failure_message = ${ending.failureMessage}::text,
      claimed_by = NULL, claim_deadline_at = NULL, cancel_deadline_at = NULL, finished_at = runplane.app_now(), updated_at = runplane.app_now()${ending.set ?? emptySql}`,
    ending.failureKind === null ? emptySql : addSearchText(searchLines([ending.failureKind, ending.failureMessage])),
  );
  tx.changed(commandStream(key));
  tx.changed(RUN_ENDED);
  if (session === undefined) return;
  const { tenantId, sessionId } = session;
  const freed = await writeTurnEnded(tx, {
    tenantId,
    sessionId,
    runId: run.id,
    commandId: null,
    terminalStatus: ending.status,
    failureKind: ending.failureKind,
  });
  if (!freed) await writeFeedNumber(tx, { tenantId, sessionId });
}

/** What a finished turn learned of the backend's thread goes to the session, unless another open run owns it. */
export async function updateThread(
  tx: Tx,
  { run, session, ending }: { run: RunRow; session: SessionRow | undefined; ending: Pick<RunEnding, 'threadId' | 'turnId'> },
): Promise<ServerEvent[]> {
  const { threadId } = ending;
  if (session === undefined || threadId == null) return [];
  const { tenantId, sessionId, conversationId } = session;
  const turnId = ending.turnId ?? null;
  const written = await writeThread(tx, { tenantId, sessionId, runId: run.id, threadId, turnId });
  return written ? [sessionUpdatedEvent({ sessionId, conversationId, threadId, turnId })] : [];
}

async function closeToolCalls(tx: Tx, { run, ending }: Closing): Promise<ServerEvent[]> {
  const open = await listOpenToolCalls(tx, { tenantId: run.tenantId, runId: run.id });
  const status = ending.status === 'cancelled' ? 'cancelled' : 'lost';
  return open.map(({ toolCallId, commandId }) => ({
    type: 'tool_result',
    payload: { callId: toolCallId, status, output: null, ...(commandId === null ? {} : { commandId }) },
    commandId,
    toolCallId,
  }));
}

/** What the run asks of people is over with it; told in the session's log. */
async function closeRequests(tx: Tx, { run, ending, session }: Closing): Promise<ServerEvent[]> {
  if (session === undefined) return [];
  const { tenantId, sessionId } = session;
  await cancelOpenRequests(tx, { tenantId, sessionId, runId: run.id, reason: `run ${ending.status}` });
  return [];
}

async function closeCommands(tx: Tx, { run, ending, commands }: Closing): Promise<ServerEvent[]> {
  if (ending.cancel !== undefined) await writeCommandsCancelledWithRun(tx, { tenantId: run.tenantId, runId: run.id }, ending.cancel);
  const ends = commands.map((command) => ({ command, end: commandEnding(command, ending) }));
  await writeCommandsClosed(
    tx,
    run.tenantId,
    ends.map(({ end }) => end),
  );
  return ends.flatMap(({ command, end }) => commandTerminal(command, end, ending));
}

/** A steer that is still open when its turn ends was never consumed, however the turn ends; everything else ends as the run does. */
function commandEnding(command: CommandRow, { status, failureKind, failureMessage }: RunEnding): CommandEnding {
  if (command.type === 'steer') return missedSteer(command.id);
  return { commandId: command.id, state: commandStateOf(status), failureKind, failureMessage };
}

const STEER_MISSED = 'steer-missed';

export function missedSteer(commandId: string): CommandEnding {
  return { commandId, state: 'failed', failureKind: STEER_MISSED, failureMessage: 'the turn ended before the steer was consumed' };
}

/** The events that tell a command's end. */
export function commandTerminal(
  command: CommandRow,
  end: CommandEnding,
  ending: Pick<RunEnding, 'status' | 'reason' | 'threadId' | 'turnId' | 'cancel' | 'facts'>,
): ServerEvent[] {
  const missed = end.failureKind === STEER_MISSED;
  const { cancelRequestId: requestId, cancelEpoch: epoch } = command;
  const cancel = end.state !== 'cancelled' ? undefined : requestId === null ? ending.cancel : { requestId, epoch };
  return [
    ...(missed ? steerEvent('missed', command.id, command) : []),
    ...(end.state === 'completed' ? steerEvent('consumed', command.id, command) : []),
    commandTerminalEvent({ ...end, ...ending, cancel, terminalStatus: missed ? 'failed' : ending.status }),
  ];
}

/** Every cancel request that is open under the run has been answered by its end. */
async function closeCancelRequests(tx: Tx, { run, commands }: Closing): Promise<ServerEvent[]> {
  const requestIds = new Set([run.cancelRequestId, ...commands.map((command) => command.cancelRequestId)].filter((id) => id !== null));
  if (requestIds.size === 0) return [];
  const requests = await writeCancelStage(tx, run.tenantId, [...requestIds], 'terminalized');
  return requests.map((request) => cancelStageEvent(request, 'terminalized'));
}
