import { requireTenant, emptySql, sql, type Sql, type Tx } from '@runplane/database';
import { writeCommandsPending, type CommandRow } from './command.sql';
import { claimDeadlineSet, writeNewIntent } from './create-command';
import { cancelOpenIntents, findIntent, type IntentRow } from './dispatch-intent.sql';
import { appendServerEvents, phase, type ServerEvent } from './run-event.sql';
import type { RunKey, RunRow } from './run.sql';

/** The dispatch to repeat: of the first open command that had one. A run that was never dispatched waits for a runner of its own. */
export async function lastDispatched(tx: Tx, { tenantId }: RunKey, commands: readonly CommandRow[]): Promise<IntentRow | undefined> {
  for (const command of commands) {
    const intent = await findIntent(tx, { tenantId, commandId: command.id });
    if (intent !== undefined) return intent;
  }
  return undefined;
}

/**
 * Gives a run back to the dispatcher, or to the runners that come by themselves: its open commands wait again, the dispatch gets a next
 * intent. `set`: what else changes on the run's row, such as the epoch of a holder that is fenced by it.
 *
 * Locks     run, run lease (held) → commands → intents.   Writes: runs, commands, dispatch_intents, run_events, outbox.
 * Emits     run-requeued, behind `before`.
 */
export async function requeueRun(
  tx: Tx,
  run: RunRow,
  {
    dispatched,
    reason,
    attempts = run.attempts,
    before = [],
    set,
  }: {
    dispatched: IntentRow | undefined;
    reason: 'runner-lost' | 'launch-lost';
    attempts?: number;
    before?: readonly ServerEvent[];
    set: Sql;
  },
): Promise<void> {
  const key = { tenantId: run.tenantId, runId: run.id };
  await cancelOpenIntents(tx, key, { commandId: null, reason: 'run requeued' });
  const deadline = dispatched === undefined ? emptySql : claimDeadlineSet((await requireTenant(tx, run.tenantId)).settings.claimDeadlineMs);
  const requeued = phase('run-requeued', {
    commandId: dispatched?.commandId ?? null,
    attempts,
    maxAttempts: run.maxAttempts,
    reason,
  });
  await appendServerEvents(tx, key, [...before, requeued], sql`${set}, launched_at = NULL, updated_at = runplane.app_now()${deadline}`);
  await writeCommandsPending(tx, key);
  if (dispatched === undefined) return;
  const { commandId, kind, input, inputHash } = dispatched;
  await writeNewIntent(tx, { ...key, commandId }, { kind, input, inputHash });
}
