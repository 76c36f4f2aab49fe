import {
  isFinalCommand,
  isFinalRun,
  SessionBusy,
  type AdmittedSteer,
  type BusyPolicy,
  type InterruptingTurn,
  type QueuedTurn,
  type TenantSettings,
} from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { enqueueTurn, writeTurnEnded, type SessionRow, type WaitingTurn } from '@runplane/sessions';
import type { ActiveTurn } from './active-turn';
import { steerTurn } from './admit-steer';
import { cancelLockedRun, endCancelledRun } from './cancel-run';
import { closeRun } from './close-run';
import type { WantedCommand } from './create-command';
import { requireLockedRun } from './require';
import { decideBusy } from './run-decisions';
import { staleTakeoverEvent } from './server-events';

/** A new turn that has found its session with an open one. */
export interface WantingTurn {
  readonly busyPolicy: BusyPolicy;
  readonly command: WantedCommand;
  readonly requestedBy: string | undefined;
  /** As it would wait in the session's queue. */
  readonly waiting: WaitingTurn;
}

/**
 * What the policy says to the turn that the session has: a steer of it, the cancel of its run, or a place behind it is the answer to the call; undefined
 * where it has ended and the session is free. Errors: SessionBusy, NoReceivableTurn.
 */
export async function settleActiveTurn(
  tx: Tx,
  wanted: WantingTurn,
  active: ActiveTurn,
  session: SessionRow,
  { claimDeadlineMs }: TenantSettings,
): Promise<AdmittedSteer | InterruptingTurn | QueuedTurn | undefined> {
  const { run, lease, command, intentState } = active;
  const { tenantId, sessionId } = session;
  if (isFinalRun(run.status) || isFinalCommand(command.state)) {
    // The projection is behind the facts; no operation leaves it so, an import might.
    const { status: terminalStatus, failureKind } = run;
    await writeTurnEnded(tx, { tenantId, sessionId, runId: run.id, commandId: command.id, terminalStatus, failureKind });
    return undefined;
  }
  const waitLeftMs = claimDeadlineMs - Math.min(run.unchangedForMs, command.unchangedForMs);
  const decision = decideBusy(wanted.busyPolicy, run, lease, intentState, waitLeftMs);
  switch (decision.kind) {
    case 'take-over':
      await takeOver(tx, active, decision.why);
      return undefined;
    case 'busy':
      throw new SessionBusy(`Session ${sessionId} is busy with turn ${command.id} of run ${run.id}.`, {
        sessionId,
        runId: run.id,
        commandId: command.id,
        holder: run.claimedBy,
        leaseRemainingMs: lease?.expiresInMs ?? null,
        staleInMs: decision.staleInMs,
      });
    case 'enqueue':
      return enqueueTurn(tx, wanted.waiting, decision.staleInMs);
    case 'steer':
      return steerTurn(tx, active, session, wanted.command);
    case 'end-cancel':
      await endCancelledRun(tx, run, { fenced: true, reason: 'cancel-deadline' });
      return undefined;
    case 'interrupt':
      return interrupt(tx, wanted, active, sessionId);
  }
}

/** Ends a turn that nobody works on. */
async function takeOver(tx: Tx, { run, command }: ActiveTurn, why: string): Promise<void> {
  const reason = 'session-turn-admission-stale-lease';
  const before = [staleTakeoverEvent(command, { why, claimedBy: run.claimedBy })];
  if (run.status === 'cancelling') return endCancelledRun(tx, run, { fenced: true, reason, before });
  const failureMessage = 'a new turn replaced one whose runner was gone';
  await closeRun(tx, run, { status: 'failed', failureKind: 'infra-failed', failureMessage, reason, before });
}

/**
 * Asks for the cancel of the run that has the session. One that nobody has claimed ends with it, which frees the session; a runner may stop
 * in its own way until the deadline. A cancel that was asked for before is the one that is waited for.
 */
async function interrupt(
  tx: Tx,
  { requestedBy }: WantingTurn,
  { run, lease, command }: ActiveTurn,
  sessionId: string,
): Promise<InterruptingTurn | undefined> {
  const { tenantId, id: runId } = run;
  const { request } = await cancelLockedRun(tx, run, lease, { target: { kind: 'run', id: runId }, reason: 'interrupt', requestedBy });
  const { status, claimedBy: holder, cancelDeadlineInMs } = await requireLockedRun(tx, { tenantId, runId });
  if (isFinalRun(status)) return undefined;
  if (request === null) throw new Error(`run ${runId} is being cancelled without a request`);
  const deadlineRemainingMs = Math.max(0, cancelDeadlineInMs ?? 0);
  return { disposition: 'interrupting', sessionId, runId, commandId: command.id, holder, request, deadlineRemainingMs };
}
