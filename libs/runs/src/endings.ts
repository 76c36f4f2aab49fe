import type { Command } from '@runplane/contracts';
import { column, sql, type Sql } from '@runplane/database';

// What runs and commands have, and show, alike of their end and of a cancel that was asked for.

export const ENDING_SHAPE = {
  failureKind: column.text.nullable(),
  failureMessage: column.text.nullable(),
  cancelEpoch: column.int,
  cancelRequestId: column.text.nullable(),
  cancelRequestedAt: column.time.nullable(),
  cancelReason: column.text.nullable(),
  cancelDeadlineAt: column.time.nullable(),
  cancelDeadlineInMs: column.int.nullable(),
};

/** Its columns; `of`: `r.` where the statement calls the row `r`. */
export const endingColumns = (of: Sql): Sql => sql`
  ${of}failure_kind AS "failureKind", ${of}failure_message AS "failureMessage", ${of}cancel_epoch AS "cancelEpoch",
  ${of}cancel_request_id AS "cancelRequestId", runplane.wire_time(${of}cancel_requested_at) AS "cancelRequestedAt", ${of}cancel_reason AS "cancelReason",
  runplane.wire_time(${of}cancel_deadline_at) AS "cancelDeadlineAt", runplane.ms_until(${of}cancel_deadline_at, runplane.app_now()) AS "cancelDeadlineInMs"`;

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
