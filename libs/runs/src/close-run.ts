import { commandStateOf, FAILURE_MESSAGE_CODE_POINTS_MAX, freeText, isFinalRun, type TerminalStatus } from '@runplane/contracts';
import { emptySql, sql, type Sql, type Tx } from '@runplane/database';
import { lockSession, writeThread, writeTurnEnded, type SessionRow } from '@runplane/sessions';
import { writeCancelStage } from './cancel-request.sql';
import { lockOpenCommands, writeCommandsCancelledWithRun, writeCommandsClosed, type CommandEnding, type CommandRow } from './command.sql';
import { cancelOpenIntents } from './dispatch-intent.sql';
import { appendServerEvents, listOpenToolCalls, type ServerEvent } from './run-event.sql';
import { deleteRunLease } from './run-lease.sql';
import type { RunRow } from './run.sql';
import { cancelStageEvent, commandTerminalEvent, runTerminalEvent, sessionUpdatedEvent } from './server-events';

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
  /** Further columns of the run that change with it, as the end of a SET list. */
  readonly set?: Sql | undefined;
}

/**
 * Ends a run: the one function through which every ending goes (END-1). Under it nothing stays open: lease, intents, tool calls, commands,
 * and the session is freed if it still belongs to the run. One list of closers, in lock order; each says what it has ended.
 *
 * Input     run: locked by this transaction and not ended.
 * Locks     run (held) → run lease → commands → intents → session.   Writes: the same and the run's log, outbox.
 * Emits     tool_result (`cancelled` or `lost`) for each open tool call, command-terminal for each open command, terminal_status, and behind it the
 *           last stage of a cancel.
 * Keeps     END-1, LOG-2, LOG-3, TURN-1.
 */
export async function closeRun(tx: Tx, run: RunRow, ending: RunEnding): Promise<void> {
  if (isFinalRun(run.status)) throw new Error(`closeRun: run ${run.id} has ended already`);
  const key = { tenantId: run.tenantId, runId: run.id };
  const message = ending.failureMessage === null ? null : freeText(ending.failureMessage, FAILURE_MESSAGE_CODE_POINTS_MAX);

  await deleteRunLease(tx, key);
  const commands = await lockOpenCommands(tx, key);
  await cancelOpenIntents(tx, key, { commandId: null, reason: message ?? `run ${ending.status}` });
  const session = run.sessionId === null ? undefined : await lockSession(tx, { tenantId: run.tenantId, sessionId: run.sessionId });

  const toolResults = await closeToolCalls(run, ending, tx);
  if (ending.cancel !== undefined) await writeCommandsCancelledWithRun(tx, key, ending.cancel);
  const endings = commands.map((command) => commandEnding(command, ending, message));
  const thread = await closeThread(tx, run, session, ending);
  const stages = await closeCancelRequests(tx, run, commands);

  const events = [
    ...(ending.before ?? []),
    ...thread,
    ...toolResults,
    ...endings.flatMap((end, index) => commandTerminal(commands[index] as CommandRow, end, ending)),
    runTerminalEvent({ ...ending, failureMessage: message }),
    ...stages,
  ];
  await appendServerEvents(
    tx,
    key,
    events,
    sql`, status = ${ending.status}::text::runplane.run_state, failure_kind = ${ending.failureKind}::text, failure_message = ${message}::text,
      claimed_by = NULL, claim_deadline_at = NULL, cancel_deadline_at = NULL, finished_at = runplane.app_now(), updated_at = runplane.app_now()${ending.set ?? emptySql}`,
  );
  await writeCommandsClosed(tx, run.tenantId, endings);
  if (session !== undefined) {
    const { tenantId, sessionId } = session;
    await writeTurnEnded(tx, { tenantId, sessionId, runId: run.id, commandId: null, terminalStatus: ending.status, failureKind: ending.failureKind });
  }
}

async function closeToolCalls(run: RunRow, ending: RunEnding, tx: Tx): Promise<ServerEvent[]> {
  const open = await listOpenToolCalls(tx, { tenantId: run.tenantId, runId: run.id });
  const status = ending.status === 'cancelled' ? 'cancelled' : 'lost';
  return open.map(({ toolCallId, commandId }) => ({
    type: 'tool_result',
    payload: { callId: toolCallId, status, output: null, ...(commandId === null ? {} : { commandId }) },
    commandId,
    toolCallId,
  }));
}

/** A steer that is still open when its turn ends was never consumed; everything else ends as the run does. */
function commandEnding(command: CommandRow, ending: RunEnding, message: string | null): CommandEnding {
  const missed = command.type === 'steer' && ending.status !== 'cancelled';
  return missed ? missedSteer(command.id) : { commandId: command.id, state: commandStateOf(ending.status), failureKind: ending.failureKind, failureMessage: message };
}

export function missedSteer(commandId: string): CommandEnding {
  return { commandId, state: 'failed', failureKind: 'steer-missed', failureMessage: 'the turn ended before the steer was consumed' };
}

export function commandTerminal(command: CommandRow, end: CommandEnding, ending: Pick<RunEnding, 'status' | 'reason' | 'threadId' | 'turnId' | 'cancel'>): ServerEvent[] {
  const terminal = commandTerminalEvent({ ...ending, ...end, terminalStatus: end.failureKind === 'steer-missed' ? 'failed' : ending.status });
  if (end.failureKind !== 'steer-missed') return [terminal];
  return [{ type: 'backend_status', payload: { phase: 'steer-missed', commandId: command.id, targetCommandId: command.targetCommandId }, commandId: command.id }, terminal];
}

/** What a finished turn learned of the backend's thread goes to the session, unless another open run owns it. */
export async function closeThread(
  tx: Tx,
  run: RunRow,
  session: SessionRow | undefined,
  { threadId, turnId }: Pick<RunEnding, 'threadId' | 'turnId'>,
): Promise<ServerEvent[]> {
  if (session === undefined || threadId == null) return [];
  const { tenantId, sessionId } = session;
  const written = await writeThread(tx, { tenantId, sessionId, runId: run.id, threadId, turnId: turnId ?? null });
  return written ? [sessionUpdatedEvent({ sessionId, conversationId: session.conversationId, threadId, turnId: turnId ?? null })] : [];
}

/** Every cancel request that is open under the run has been answered by its end. */
async function closeCancelRequests(tx: Tx, run: RunRow, commands: readonly CommandRow[]): Promise<ServerEvent[]> {
  const requestIds = new Set([run.cancelRequestId, ...commands.map((command) => command.cancelRequestId)].filter((id) => id !== null));
  if (requestIds.size === 0) return [];
  const requests = await writeCancelStage(tx, run.tenantId, [...requestIds], 'terminalized');
  return requests.map((request) => cancelStageEvent(request, 'terminalized'));
}
