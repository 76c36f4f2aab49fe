import type { RunExplanation, TaskExplanation } from '@runplane/contracts';
import { isDomainError } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { explainRun } from '@runplane/runs';
import { findExplainedTask } from './explain-task.sql';
import { taskNotFound } from './require';
import { explainTaskFacts } from './task-explanation';
import type { TaskKey } from './task.sql';

/** Why the task is where it is: a cause, one sentence, and the facts it was found by; and why its run is where that is. No lock. Errors: TaskNotFound. */
export async function explainQueueTask(at: At, { tenantId, taskId }: TaskKey): Promise<TaskExplanation> {
  const task = await findExplainedTask(executorOf(at), { tenantId, taskId });
  if (task === undefined) throw taskNotFound(taskId);
  const why = explainTaskFacts(task);
  return {
    taskId,
    ...why,
    nextChangeInMs: why.nextChangeInMs === null ? null : Math.max(why.nextChangeInMs, 0),
    facts: Object.fromEntries(Object.entries(task).filter(([, value]) => value !== null)),
    run: why.cause === 'run-under-way' ? await runOf(at, { tenantId, runId: task.runId ?? '' }) : null,
  };
}

/** A run that retention has removed meanwhile explains nothing. */
export async function runOf(at: At, key: { tenantId: string; runId: string }): Promise<RunExplanation | null> {
  try {
    return await explainRun(at, key);
  } catch (error) {
    if (isDomainError(error) && (error.code === 'run_not_found' || error.code === 'run_deleted')) return null;
    throw error;
  }
}
