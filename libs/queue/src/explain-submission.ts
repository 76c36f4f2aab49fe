import type { SubmissionExplanation } from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { getSubmission, type SubmissionKey } from '@runplane/sessions';
import { runOf } from './explain-queue-task';
import { findExplainedSubmission, type ExplainedSubmission } from './explain-submission.sql';
import { explainSubmissionFacts } from './submission-explanation';

/**
 * Why a submission is where it is: a cause, one sentence, and the facts it was found by; and why the run of the open turn that it waits for is where that
 * is. No lock. Errors: SubmissionNotFound, SessionNotFound, SessionDeleted.
 */
export async function explainSubmission(at: At, { tenantId, sessionId, operationId }: SubmissionKey): Promise<SubmissionExplanation> {
  const key = { tenantId, sessionId, operationId };
  const facts = (await findExplainedSubmission(executorOf(at), key)) ?? (await explainMissing(at, key));
  const why = explainSubmissionFacts(operationId, facts);
  const openRunId = why.cause === 'waits-for-turn' ? facts.activeRunId : null;
  return {
    sessionId,
    operationId,
    ...why,
    nextChangeInMs: why.nextChangeInMs === null ? null : Math.max(why.nextChangeInMs, 0),
    facts: Object.fromEntries(Object.entries(facts).filter(([, value]) => value !== null)),
    run: openRunId === null ? null : await runOf(at, { tenantId, runId: openRunId }),
  };
}

/** Says in the words of a read what is not there. */
async function explainMissing(at: At, key: SubmissionKey): Promise<ExplainedSubmission> {
  await getSubmission(at, key);
  const again = await findExplainedSubmission(executorOf(at), key); // it has just been made
  if (again === undefined) throw new Error(`submission ${key.operationId} is there and is not`);
  return again;
}
