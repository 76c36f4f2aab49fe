import type { Command } from '@runplane/contracts';

// What runs and commands show alike of their end and of a cancel that was asked for.

export function toFailure({
  failureKind,
  failureMessage,
}: {
  failureKind: string | null;
  failureMessage: string | null;
}): Command['failure'] {
  return failureKind === null ? null : { kind: failureKind, message: failureMessage };
}

export function toCancel(row: {
  cancelEpoch: number;
  cancelRequestId: string | null;
  cancelRequestedAt: string | null;
  cancelReason: string | null;
  cancelDeadlineAt: string | null;
}): Command['cancel'] {
  const {
    cancelEpoch: epoch,
    cancelRequestId: requestId,
    cancelRequestedAt: requestedAt,
    cancelReason: reason,
    cancelDeadlineAt: deadlineAt,
  } = row;
  if (requestId === null || requestedAt === null || reason === null) return null;
  return { requestId, epoch, reason, requestedAt, deadlineAt };
}
