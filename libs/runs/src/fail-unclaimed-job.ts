import { freeText } from '@runplane/contracts';
import { sql, type Tx } from '@runplane/database';
import { closeRun } from './close-run';
import { lockOpenCommands } from './command.sql';
import { listLaunches, lockOpenIntents } from './dispatch-intent.sql';
import { lastDispatched, requeueRun } from './requeue-run';
import { phase } from './run-event.sql';
import { decideLostLaunch } from './run-decisions';
import { lockRunLease } from './run-lease.sql';
import { lockRun, type RunKey } from './run.sql';
import { writeRunnerJobLost } from './runner-job.sql';

/**
 * What was launched for a run has ended, and never claimed it: by the run's policy it is dispatched again, within its attempts, or fails
 * now instead of at its claim deadline. A launcher says this of a process or a Job that it knows to be gone for good. Whatever else has
 * become of the run meanwhile (claimed, requeued, ended, another launch under way) is left alone; the job is marked as lost all the same.
 *
 * Input     jobId: the runner job's; reason: what the outside says, for people; failureKind: of a run that fails, `runner-lost` unless the
 *           outside itself has failed.
 * Returns   what became of the run.
 * Locks     run → run lease → commands → intents → runner job → session (closeRun).   Writes: the same, run_events, outbox.
 * Emits     runner-dispatch-lost, then run-requeued or the run's ending.
 * Repeat    safe: a requeued run has another job.
 */
export async function failUnclaimedJob(
  tx: Tx,
  {
    tenantId,
    runId,
    jobId,
    reason,
    failureKind = 'runner-lost',
  }: RunKey & { jobId: string; reason: string; failureKind?: 'runner-lost' | 'infra-failed' | undefined },
): Promise<{ outcome: 'kept' | 'requeued' | 'failed' }> {
  const key = { tenantId, runId };
  const run = await lockRun(tx, key);
  if (run === undefined) return { outcome: 'kept' };
  await lockRunLease(tx, key);
  const commands = await lockOpenCommands(tx, key);
  await lockOpenIntents(tx, key);
  await writeRunnerJobLost(tx, { tenantId, jobId, reason: freeText(reason) });
  const launches = await listLaunches(tx, key);
  const decision = decideLostLaunch(run, launches, jobId);
  if (decision.kind === 'keep') return { outcome: 'kept' };

  const { commandId, intentId } = decision.launch;
  const attempts = run.attempts + 1; // counted by a claim otherwise, which this launch never came to
  const message = freeText(reason);
  const told = phase('runner-dispatch-lost', { commandId, dispatchIntentId: intentId, runnerJobId: jobId, attempts, message });
  if (decision.kind === 'requeue') {
    const dispatched = await lastDispatched(tx, key, commands);
    await requeueRun(tx, run, { dispatched, reason: 'launch-lost', attempts, before: [told], set: sql`, attempts = ${attempts}::int` });
    return { outcome: 'requeued' };
  }
  await closeRun(tx, run, {
    status: 'failed',
    failureKind,
    failureMessage: `the launched runner ended before it claimed the run: ${message}`,
    reason: 'launch-lost',
    before: [told],
    set: sql`, attempts = ${attempts}::int`,
  });
  return { outcome: 'failed' };
}
