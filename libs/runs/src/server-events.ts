import type { CancelRequest, CancelStage, JsonObject, JsonValue, TerminalStatus } from '@runplane/contracts';
import type { CommandEnding, CommandRow } from './command.sql';
import { phase, type ServerEvent } from './run-event.sql';
import type { RunLease } from './run-lease.sql';
import type { NewRun, RunRow } from './run.sql';

// The events that only the server writes, each built in one place, so that every path to a fact tells it with the same fields.

export function runCreatedEvent(run: NewRun): ServerEvent {
  const { projectId, sessionId, backendProfile, providerId } = run;
  const path = run.workspaceRef['path'];
  return phase('run-created', {
    runId: run.runId,
    projectId,
    sessionId,
    backendProfile,
    providerId,
    workspacePath: typeof path === 'string' ? path : null,
  });
}

/** The user's words, for turns and steers that have some. */
export function userMessageEvent(command: {
  commandId: string;
  type: string;
  payload: JsonObject;
  sessionId: string | null;
}): ServerEvent[] {
  const { commandId, type, payload, sessionId } = command;
  const text = payload['text'];
  if ((type !== 'turn' && type !== 'steer') || typeof text !== 'string') return [];
  return [{ type: 'user_message', payload: { commandId, commandType: type, text, sessionId }, commandId }];
}

export const commandCreatedEvent = (commandId: string, commandType: string): ServerEvent =>
  phase('command-created', { commandId, commandType });

/**
 * How far a steer has come: `accepted` by the server, `delivered` to the runner, `consumed` by its work, or `missed`, since its turn ended
 * before. Beside the events that every command has; nothing for other commands.
 */
export function steerEvent(
  step: 'accepted' | 'delivered' | 'consumed' | 'missed',
  commandId: string,
  { type, targetCommandId }: { type: string; targetCommandId: string | null },
): ServerEvent[] {
  return type === 'steer' ? [phase(`steer-${step}`, { commandId, targetCommandId })] : [];
}

export function commandTerminalEvent(
  end: CommandEnding & {
    terminalStatus: TerminalStatus;
    reason: string | null;
    threadId?: string | null | undefined;
    turnId?: string | null | undefined;
    cancel?: { requestId: string; epoch: number } | undefined;
    facts?: JsonObject | undefined;
  },
): ServerEvent {
  return phase('command-terminal', {
    ...end.facts,
    commandId: end.commandId,
    state: end.state,
    terminalStatus: end.terminalStatus,
    failureKind: end.failureKind,
    message: end.failureMessage,
    reason: end.reason,
    threadId: end.threadId ?? null,
    turnId: end.turnId ?? null,
    cancelRequestId: end.cancel?.requestId ?? null,
    cancelEpoch: end.cancel?.epoch ?? null,
  });
}

export function runTerminalEvent(ending: {
  status: TerminalStatus;
  failureKind: string | null;
  failureMessage: string | null;
  reason: string | null;
  cancel?: { requestId: string; epoch: number } | undefined;
  facts?: JsonObject | undefined;
}): ServerEvent {
  return {
    type: 'terminal_status',
    payload: {
      ...ending.facts,
      terminalStatus: ending.status,
      failureKind: ending.failureKind,
      message: ending.failureMessage,
      reason: ending.reason,
      cancelRequestId: ending.cancel?.requestId ?? null,
      cancelEpoch: ending.cancel?.epoch ?? null,
    },
  };
}

export function sessionUpdatedEvent(facts: {
  sessionId: string;
  conversationId: string | null;
  threadId: string;
  turnId: string | null;
}): ServerEvent {
  const { turnId, ...sessionRef } = facts;
  return phase('session-updated', { sessionRef, turnId });
}

export function cancelStageEvent(request: CancelRequest, stage: CancelStage, extra: Record<string, JsonValue> = {}): ServerEvent {
  return phase(`cancel-${stage}`, {
    cancelRequestId: request.id,
    cancelEpoch: request.epoch,
    targetKind: request.targetKind,
    targetId: request.targetId,
    ...(request.commandId === null ? {} : { commandId: request.commandId }),
    reason: request.reason,
    ...extra,
  });
}

/** Tells that a holder was cut off by a cancel, before what it held ends. */
export function fencedEvents(
  requests: readonly CancelRequest[],
  { claimedBy, claimEpoch }: Pick<RunRow, 'claimedBy' | 'claimEpoch'>,
  lease: RunLease | undefined,
  command?: CommandRow,
): ServerEvent[] {
  const facts = { claimedBy, claimEpoch, leaseExpiresAt: lease?.expiresAt ?? null, ...(command && { commandState: command.state }) };
  return requests.map((request) => cancelStageEvent(request, 'fenced', facts));
}

export const claimLostEvent = (facts: { runnerId: string | null; epoch: number; reason: string }): ServerEvent =>
  phase('claim-lost', facts);

export function staleTakeoverEvent(command: CommandRow, facts: { why: string; claimedBy: string | null }): ServerEvent {
  return phase('session-turn-admission-stale-terminalized', {
    reason: 'session-turn-admission-stale-lease',
    commandId: command.id,
    failureKind: 'infra-failed',
    ...facts,
  });
}

interface RetentionFacts {
  readonly status: TerminalStatus;
  readonly finishedAt: string;
  readonly archived: { readonly key: string; readonly sha256: string } | null;
}

const retentionFacts = ({ status, finishedAt, archived }: RetentionFacts): Record<string, JsonValue> => ({
  terminalStatus: status,
  finishedAt,
  archive: archived === null ? null : { name: archived.key, sha256: archived.sha256 },
});

/** Everything before this event is gone, or is going. */
export const eventsPrunedEvent = (facts: RetentionFacts & { lastEventSeq: number; terminalSeq: number }): ServerEvent =>
  phase('retention-events-pruned', { throughSeq: facts.lastEventSeq, terminalSeq: facts.terminalSeq, ...retentionFacts(facts) });

/** The run is gone, with this event: only the feed has it. */
export const runDeletedEvent = (facts: RetentionFacts): ServerEvent => phase('retention-deleted', retentionFacts(facts));

interface DroppedFacts {
  readonly sink: string;
  readonly eventId: string;
  readonly sequence: number;
  readonly type: string;
  readonly reason: string | null;
  readonly message: string | null;
  readonly parkedAt: string;
  readonly archive: { readonly name: string; readonly sha256: string } | null;
}

export const RELAY_EVENT_DROPPED = 'relay-event-dropped';

/** A sink has not got an event of this run, and will not: retention has given it up. */
export const relayEventDropped = ({ archive, ...facts }: DroppedFacts): ServerEvent =>
  phase(RELAY_EVENT_DROPPED, { ...facts, archive: archive === null ? null : { ...archive } });
