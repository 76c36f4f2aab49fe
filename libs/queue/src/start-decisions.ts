import { isDomainError } from '@runplane/contracts';

/**
 * What becomes of a queued turn that could not be started. Pure.
 *
 * `gone`      the claim was over, or the session; nothing was written, and nothing is to be.
 * `put-off`   nobody has looked at the turn: the database did not answer, conflicted or was slow, or this process had no room. The try does not count.
 * `refused`   the turn can never be admitted: it fails with the reason.
 * `failed`    admitting it went wrong, by a refusal that may pass or by a defect: the try counts, so that one that always goes wrong comes to an end.
 */
export type StartFailure = 'gone' | 'put-off' | 'refused' | 'failed';

const GONE: ReadonlySet<string> = new Set([
  'claim_lost',
  'submission_closed',
  'submission_not_found',
  'session_deleted',
  'session_not_found',
]);

/** Whatever the call was, it would have come to this: nobody has said anything of the turn. */
const INFRASTRUCTURE: ReadonlySet<string> = new Set([
  'lock_timeout',
  'pool_timeout',
  'transaction_conflict',
  'database_unavailable',
  'outcome_unknown',
  'overloaded',
  'backlog_full',
  'shutting_down',
]);

export function decideStartFailure(error: unknown): StartFailure {
  if (!isDomainError(error)) return 'failed';
  if (GONE.has(error.code)) return 'gone';
  if (INFRASTRUCTURE.has(error.code)) return 'put-off';
  return error.retryable ? 'failed' : 'refused';
}
