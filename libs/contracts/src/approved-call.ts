import { ApprovalMismatch, NotApproved } from './errors';
import { canonicalJson, sha256Hex } from './hash';
import { normalizeJson, type JsonValue } from './json';
import type { Approval } from './request-resources';

/**
 * What an approval is bound to: the SHA-256 of the canonical JSON of a call's arguments, lower-case hex. Strict: arguments that would have
 * to be repaired to be stored are refused, so that what is approved is what is run. Errors: InvalidJson, PayloadTooLarge (1 MiB).
 */
export function digestOf(callArguments: JsonValue): string {
  return sha256Hex(canonicalJson(normalizeJson(callArguments, { strict: true }).value));
}

/**
 * Returns when the approval allows a call with exactly these arguments: to be asked right before the call, with what is about to be run.
 * Errors: NotApproved; ApprovalMismatch, also for an approval that is bound to no arguments.
 */
export function requireApproved(
  { sessionId, approvalId, outcome, argumentsDigest }: Pick<Approval, 'sessionId' | 'approvalId' | 'outcome' | 'argumentsDigest'>,
  callArguments: JsonValue,
): void {
  if (outcome !== 'approved') {
    throw new NotApproved(`Approval ${approvalId} is ${outcome}: the call may not be made.`, { sessionId, approvalId, state: outcome });
  }
  if (argumentsDigest !== digestOf(callArguments)) {
    throw new ApprovalMismatch(`Approval ${approvalId} is for other arguments: ask for an approval of this call.`, {
      sessionId,
      approvalId,
    });
  }
}
