import { QUEUED_TURN_KIND, SUBMISSION_ATTEMPTS_MAX, type SubmissionCause } from '@runplane/contracts';
import { isLive } from '@runplane/database';
import type { ExplainedSubmission } from './explain-submission.sql';
import { AHEAD_MAX } from './explain-task.sql';
import { inWords, WORKER_PATIENCE_MS } from './task-explanation';

// Why a submission is where it is, in one sentence. Pure: the predicates are those by which claims and sweeps decide.

export interface WhySubmission {
  readonly cause: SubmissionCause;
  readonly isMoving: boolean;
  readonly sentence: string;
  readonly nextChangeInMs: number | null;
}

/** Says why. A state that no rule knows is a defect and throws: it must not read as "waiting". */
export function explainSubmissionFacts(operationId: string, facts: ExplainedSubmission): WhySubmission {
  const { state, lastError, runId, headOperationId, ahead } = facts;
  switch (state) {
    case 'completed':
      return moving('ended', `The submission is completed${runId === null ? '' : ` as run ${runId}`}; nothing will move it.`);
    case 'failed':
      return stuck(
        'can-be-requeued',
        `The submission has failed (${lastError ?? 'without a reason'}); only somebody who queues it again moves it.`,
      );
    case 'pending':
      break;
    default:
      throw new Error(`no explanation knows the submission state ${String(state satisfies never)}`);
  }
  if (headOperationId === null) throw new Error(`submission ${operationId} waits in a queue without a head`);
  const head = explainHead(facts);
  if (headOperationId === operationId) return head;
  const many = ahead === AHEAD_MAX ? `${AHEAD_MAX} or more` : String(ahead);
  const before = ahead === 1 ? `1 submission of its session comes before it` : `${many} submissions of its session come before it`;
  return { ...head, cause: 'behind-others', sentence: `${before}, first ${headOperationId}: ${head.sentence}` };
}

/** Of the submission at the head of a queue: the only one that can move. */
function explainHead(facts: ExplainedSubmission): WhySubmission {
  switch (facts.headState) {
    case 'claimed':
      return explainClaimed(facts);
    case 'waiting':
      return explainWaiting(facts);
    case null:
      throw new Error('the head of a queue has no state');
    default:
      throw new Error(`no explanation knows the state ${String(facts.headState satisfies never)} of a queue's head`);
  }
}

function explainClaimed({ holder, claimInMs, headTries }: ExplainedSubmission): WhySubmission {
  const tries = headTries ?? 0;
  if (isLive(claimInMs)) {
    const left = inWords(claimInMs ?? 0);
    return moving(
      'worked-on',
      `The worker ${holder ?? ''} holds the submission for another ${left} (try ${tries} of ${SUBMISSION_ATTEMPTS_MAX}).`,
      claimInMs,
    );
  }
  const then = tries >= SUBMISSION_ATTEMPTS_MAX ? 'the next sweep fails it: that was the last try' : 'the next worker that asks gets it';
  return stuck('worker-lost', `The worker ${holder ?? ''} stopped renewing its claim ${inWords(-(claimInMs ?? 0))} ago; ${then}.`, 0);
}

function explainWaiting({ headKind, readyInMs, headTries, headError, activeRunId, isKindServed }: ExplainedSubmission): WhySubmission {
  const tries = headTries ?? 0;
  const readyMs = readyInMs ?? 0;
  const isTurn = headKind === QUEUED_TURN_KIND;
  if (tries >= SUBMISSION_ATTEMPTS_MAX)
    return stuck(
      'tries-used-up',
      `The last of ${SUBMISSION_ATTEMPTS_MAX} tries has failed (${headError ?? ''}); the next sweep fails the submission.`,
      0,
    );
  if (isTurn && activeRunId !== null)
    return moving('waits-for-turn', `The session has an open turn, of run ${activeRunId}; the queued one is called when that ends.`);
  if (readyMs > 0)
    return tries > 0
      ? moving(
          'backs-off',
          `Try ${tries} of ${SUBMISSION_ATTEMPTS_MAX} failed (${headError ?? ''}); it comes again in ${inWords(readyMs)}.`,
          readyMs,
        )
      : moving('waits-for-its-time', `The submission was put off: it can be claimed in ${inWords(readyMs)}.`, readyMs);
  const kind = headKind ?? '';
  if (!isKindServed && -readyMs > WORKER_PATIENCE_MS) {
    const whom = isTurn ? 'no process starts queued turns' : `no worker claims submissions of kind ${kind}`;
    return stuck('no-worker', `The submission has been ready for ${inWords(-readyMs)}, and nobody works on any of its kind: ${whom}.`);
  }
  return moving(
    'waits-for-worker',
    isTurn
      ? 'The session is free; the next look at queued turns starts it.'
      : `The submission waits for a worker that claims kind ${kind}.`,
  );
}

const moving = (cause: SubmissionCause, sentence: string, nextChangeInMs: number | null = null): WhySubmission => ({
  cause,
  isMoving: true,
  sentence,
  nextChangeInMs,
});
const stuck = (cause: SubmissionCause, sentence: string, nextChangeInMs: number | null = null): WhySubmission => ({
  cause,
  isMoving: false,
  sentence,
  nextChangeInMs,
});
