import { CANCEL_STAGES, NoCancelRequested, type CancelStage } from '@runplane/contracts';
import type { Tx } from '@runplane/database';
import { requireWriter } from './ack-command';
import { findCancelRequest, writeCancelStage } from './cancel-request.sql';
import { requireLockedCommand } from './require';
import { appendServerEvents } from './run-event.sql';
import type { RunKey } from './run.sql';
import { cancelStageEvent } from './server-events';

/**
 * The runner says how far it has come with a cancel: it knows (`delivered`), it is stopping (`aborting`). The end is told by finishing.
 *
 * Input     epoch: of the claim; commandId: for the cancel of a command, else of the run.
 * Returns   the stage that stands; a stage that was reached before changes nothing.
 * Locks     run → command.   Writes: cancel_requests, run_events, outbox.
 * Errors    RunNotFound, CommandNotFound, LeaseLost, RunClosed, NoCancelRequested.
 * Emits     cancel-delivered, cancel-aborting, once each.
 */
export async function acknowledgeCancel(
  tx: Tx,
  { tenantId, runId, epoch, stage, commandId }: RunKey & { epoch: number; stage: 'delivered' | 'aborting'; commandId?: string | undefined },
): Promise<{ stage: CancelStage }> {
  const key = { tenantId, runId };
  const run = await requireWriter(tx, key, epoch);
  const command = commandId === undefined ? undefined : await requireLockedCommand(tx, key, commandId);
  const requestId = command === undefined ? run.cancelRequestId : command.cancelRequestId;
  const request = requestId === null ? undefined : await findCancelRequest(tx, { tenantId, requestId });
  if (request === undefined) throw new NoCancelRequested(`Nobody has asked to cancel ${commandId ?? runId}.`, { runId });
  if (CANCEL_STAGES.indexOf(request.stage) >= CANCEL_STAGES.indexOf(stage)) return { stage: request.stage };
  await writeCancelStage(tx, tenantId, [request.id], stage);
  // Who is stopping knows of it: a skipped word is told all the same, so that every story has each stage.
  const stages = stage === 'aborting' && request.stage === 'persisted' ? (['delivered', 'aborting'] as const) : [stage];
  const facts = { claimedBy: run.claimedBy, ...(command && { commandState: command.state }) };
  await appendServerEvents(
    tx,
    key,
    stages.map((each) => cancelStageEvent(request, each, facts)),
  );
  return { stage };
}
