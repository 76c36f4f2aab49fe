import { DomainError } from '../domain-error';

// Sessions, the lease of their logs, and appends.

/** Only the server writes events of this type or phase. */
export class ReservedEventType extends DomainError<'reserved_event_type', { type: string; phase?: string }> {
  readonly code = 'reserved_event_type';
}

/** No such session for this tenant. */
export class SessionNotFound extends DomainError<'session_not_found', { sessionId: string }> {
  readonly code = 'session_not_found';
}

/** The session has no note at this path. */
export class NoteNotFound extends DomainError<'note_not_found', { sessionId: string }> {
  readonly code = 'note_not_found';
}

/** The session has an open turn. */
export class SessionBusy extends DomainError<
  'session_busy',
  { sessionId: string; runId: string; commandId: string; holder: string | null; leaseRemainingMs: number | null; staleInMs: number | null }
> {
  readonly code = 'session_busy';
  override readonly retryable = true;
}

/** The session belongs to another project or backend profile. */
export class SessionBoundary extends DomainError<'session_boundary', { sessionId: string; field: string }> {
  readonly code = 'session_boundary';
}

/** The session was deleted: its log takes and shows nothing any more. */
export class SessionDeleted extends DomainError<'session_deleted', { sessionId: string; deletedAt: string }> {
  readonly code = 'session_deleted';
}

/** The place is of an earlier life of the session's id; it was deleted and made again, and counts anew. Read this one from its start. */
export class OtherIncarnation extends DomainError<'other_incarnation', { sessionId: string; incarnation: string }> {
  readonly code = 'other_incarnation';
}

/** A session of this id is there, with another header. */
export class SessionExists extends DomainError<'session_exists', { sessionId: string }> {
  readonly code = 'session_exists';
}

/** A message that has come in already is among events that are new: append it alone, or leave it out. */
export class DuplicateInbound extends DomainError<'duplicate_inbound', { sequence: number }> {
  readonly code = 'duplicate_inbound';
}

/** The log goes on at another sequence: read what is new, and decide again. */
export class SequenceConflict extends DomainError<
  'sequence_conflict',
  { sessionId: string; expectedSequence: number; actualSequence: number }
> {
  readonly code = 'sequence_conflict';
}

/** The append id was used before for other events. */
export class AppendConflict extends DomainError<'append_conflict', { sessionId: string; appendId: string }> {
  readonly code = 'append_conflict';
}

/** An event's time is more than five minutes off the database's: leave it out, or set the clock. */
export class ClockSkew extends DomainError<'clock_skew', { databaseTime: string; skewMsMax: number }> {
  readonly code = 'clock_skew';
}

/** Events of this type are appended with the epoch of the session lease: acquire it first. */
export class LeaseRequired extends DomainError<'lease_required', { sessionId: string; type: string }> {
  readonly code = 'lease_required';
}

/** Another owner holds the session lease: wait for its end, or for its release. */
export class SessionLeased extends DomainError<'session_leased', { sessionId: string; owner: string; leaseRemainingMs: number }> {
  readonly code = 'session_leased';
  override readonly failureKind = 'runner-lease-conflict';
  override readonly retryable = true;
}

/** The session lease of this epoch is no longer in force (`reason`: none held, other epoch, expired or released). Stop writing. */
export class SessionLeaseLost extends DomainError<
  'session_lease_lost',
  { sessionId: string; epoch: number; currentEpoch: number; reason: 'none' | 'other' | 'expired' }
> {
  readonly code = 'session_lease_lost';
  override readonly failureKind = 'runner-lease-conflict';
}

/** The session's storage is being deleted: start the turn when that is over. */
export class StorageEvicting extends DomainError<'storage_evicting', { sessionId: string; leaseRemainingMs: number }> {
  readonly code = 'storage_evicting';
  override readonly retryable = true;
}

/** The session's storage is not, or no longer, what the call names: read the session, and decide again. */
export class StorageChanged extends DomainError<
  'storage_changed',
  { sessionId: string; storageKind: string; storageName: string | null; storageVersion: number }
> {
  readonly code = 'storage_changed';
}

/** The session's active pair does not fit its run and command: tell the operator. */
export class SessionProjectionBroken extends DomainError<'session_projection_broken', { sessionId: string }> {
  readonly code = 'session_projection_broken';
  override readonly failureKind = 'infra-failed';
}

/** Somebody works in the session (`why`: turn-open, run-open, leased): end that first. `remainingMs`: of the lease. */
export class SessionInUse extends DomainError<
  'session_in_use',
  { sessionId: string; why: 'turn-open' | 'run-open' | 'leased'; holder: string | null; remainingMs: number | null }
> {
  readonly code = 'session_in_use';
  override readonly retryable = true;
}

/** As many inputs wait in the session's inbox as may: repeat the call when some have been taken. */
export class InboxFull extends DomainError<'inbox_full', { sessionId: string; entriesMax: number }> {
  readonly code = 'inbox_full';
  override readonly retryable = true;
}

/** A file does not hold a session: `line` says where, from 1. */
export class InvalidImport extends DomainError<'invalid_import', { line: number; reason: string }> {
  readonly code = 'invalid_import';
}

/** Somebody else is rebuilding the views of the session, or has taken it over: wait for it, GET …/rebuild tells how far it is. */
export class RebuildRunning extends DomainError<'rebuild_running', { sessionId: string }> {
  readonly code = 'rebuild_running';
  override readonly retryable = true;
}

export type SessionError =
  | ReservedEventType
  | SessionNotFound
  | NoteNotFound
  | SessionBusy
  | SessionBoundary
  | SessionDeleted
  | OtherIncarnation
  | SessionExists
  | DuplicateInbound
  | SequenceConflict
  | AppendConflict
  | ClockSkew
  | LeaseRequired
  | SessionLeased
  | SessionLeaseLost
  | StorageEvicting
  | StorageChanged
  | SessionProjectionBroken
  | SessionInUse
  | InboxFull
  | InvalidImport
  | RebuildRunning;
