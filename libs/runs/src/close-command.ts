import { commandStateOf, FAILURE_MESSAGE_CODE_POINTS_MAX, freeText } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { cancelOpenRequests, lockSession, writeTurnEnded } from '@runplane/sessions';
import { writeCancelStage } from './cancel-request.sql';
import { commandTerminal, missedSteer, updateThread, type RunEnding } from './close-run';
import { lockOpenCommands, writeCommandsClosed, type CommandEnding, type CommandRow } from './command.sql';
import { cancelOpenIntents } from './dispatch-intent.sql';
import { appendServerEvents } from './run-event.sql';
import type { RunRow } from './run.sql';
import { cancelStageEvent } from './server-events';

/** How a command ends: as a run does, without what only runs have. */
export type CommandOutcome = Pick<RunEnding, 'status' | 'failureKind' | 'failureMessage' | 'reason' | 'threadId' | 'turnId' | 'before'>;

/**
 * Ends one open command of an open run, which stays open and claimed. All endings of a single command go through here. A turn frees its
 * session and takes its unconsumed steers, and what it asks of people, with it.
 *
 * Input     run and command: locked by this transaction; the command is open.
 * Locks     run, command (held) → intents → session → session head, where a turn asks something.   Writes: commands, intents,
 *           sessions, run_events, approvals, input requests, session events, outbox.
 */
export async function closeCommand(tx: Tx, run: RunRow, command: CommandRow, outcome: CommandOutcome): Promise<void> {
  const key = { tenantId: run.tenantId, runId: run.id };
  const message = outcome.failureMessage === null ? null : freeText(outcome.failureMessage, FAILURE_MESSAGE_CODE_POINTS_MAX);
  const isTurn = command.type === 'turn';
  const missed = isTurn ? (await lockOpenCommands(tx, key)).filter((other) => other.targetCommandId === command.id) : [];
  await cancelOpenIntents(tx, key, { commandId: command.id, reason: message ?? `command ${outcome.status}` });
  const session = run.sessionId === null ? undefined : await lockSession(tx, { tenantId: run.tenantId, sessionId: run.sessionId });

  if (isTurn && session !== undefined) {
    const { tenantId, sessionId } = session;
    const reason = `turn ${outcome.status}`;
    await cancelOpenRequests(tx, { tenantId, sessionId, runId: run.id, commandId: command.id, reason });
  }

  const ending: CommandEnding = {
    commandId: command.id,
    state: commandStateOf(outcome.status),
    failureKind: outcome.failureKind,
    failureMessage: message,
  };
  const thread = await updateThread(tx, { run, session, ending: outcome });
  const answered = [command, ...missed].flatMap(({ cancelRequestId }) => cancelRequestId ?? []);
  const stages = answered.length === 0 ? [] : await writeCancelStage(tx, run.tenantId, answered, 'terminalized');
  await appendServerEvents(tx, key, [
    ...(outcome.before ?? []),
    ...thread,
    ...missed.flatMap((steer) => commandTerminal(steer, missedSteer(steer.id), { ...outcome, reason: 'turn-ended' })),
    ...commandTerminal(command, ending, outcome),
    ...stages.map((request) => cancelStageEvent(request, 'terminalized')),
  ]);
  await writeCommandsClosed(tx, run.tenantId, [...missed.map((steer) => missedSteer(steer.id)), ending]);
  if (!isTurn || session === undefined) return;
  const { tenantId, sessionId } = session;
  await writeTurnEnded(tx, {
    tenantId,
    sessionId,
    runId: run.id,
    commandId: command.id,
    terminalStatus: outcome.status,
    failureKind: outcome.failureKind,
  });
}
