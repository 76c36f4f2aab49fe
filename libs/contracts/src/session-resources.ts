import { z } from 'zod';
import { identifier } from './identifiers';
import { LIST_ROWS_MAX, REASON_CODE_POINTS_MAX, TITLE_CODE_POINTS_MAX } from './limits';
import { Run, Session, SessionRef } from './resources';
import { STORAGE_KINDS } from './states';
import { JsonRecord } from './wire-json';

// Control of sessions as it crosses the wire: their creation by hand, lists, read marks and storage.

const time = z.iso.datetime();

/** A path of plain names below a root that its reader knows: it cannot leave that root, and hides nothing from a listing. */
const storagePath = z
  .string()
  .max(253)
  .regex(/^[A-Za-z0-9_][A-Za-z0-9._-]*(\/[A-Za-z0-9_][A-Za-z0-9._-]*)*$/, 'names of letters, digits, `.`, `_` and `-`, joined by `/`');

/** What is left out stays as it is; null clears. */
export const UpsertSession = z
  .strictObject({
    projectId: identifier,
    backendProfile: identifier,
    conversationId: SessionRef.shape.conversationId,
    threadId: SessionRef.shape.threadId,
    metadata: SessionRef.shape.metadata,
    summary: JsonRecord.optional().meta({ description: 'A few facts that lists show, at most 8 KiB' }),
    expiresAt: SessionRef.shape.expiresAt,
    ttlSeconds: SessionRef.shape.ttlSeconds.meta({
      description: 'Instead of expiresAt: the session lives on so long from its last activity',
    }),
    rolloutSubdir: storagePath.optional(),
  })
  .refine(({ expiresAt, ttlSeconds }) => expiresAt == null || ttlSeconds == null, {
    path: ['ttlSeconds'],
    error: 'a session has a fixed end or a time to live, not both',
  })
  .meta({ id: 'UpsertSession' });
export type UpsertSession = z.input<typeof UpsertSession>;

export const UpsertedSession = z.object({ session: Session, created: z.boolean(), changed: z.boolean() }).meta({ id: 'UpsertedSession' });
export type UpsertedSession = z.infer<typeof UpsertedSession>;

export const RenameSession = z.strictObject({ title: z.string().max(TITLE_CODE_POINTS_MAX * 4) }).meta({ id: 'RenameSession' });
export const ChangedSession = z.object({ session: Session, changed: z.boolean() }).meta({ id: 'ChangedSession' });
export type ChangedSession = z.infer<typeof ChangedSession>;

/** A session as lists show it. */
export const SessionSummary = Session.pick({
  sessionId: true,
  projectId: true,
  backendProfile: true,
  conversationId: true,
  threadId: true,
  title: true,
  summary: true,
  executionState: true,
  activeRunId: true,
  activeCommandId: true,
  lastRunId: true,
  lastCommandId: true,
  terminalStatus: true,
  failureKind: true,
  version: true,
  createdAt: true,
  updatedAt: true,
  lastActivityAt: true,
  expiresAt: true,
})
  .extend({
    storageKind: z.enum(STORAGE_KINDS),
    deletedAt: time.nullable().meta({ description: 'Only the list of changes shows deleted sessions, until they are erased' }),
    reader: z
      .object({
        readerId: z.string(),
        unread: z.boolean().meta({ description: 'The session has changed since this reader marked it read' }),
        readVersion: z.int().nullable().meta({ description: 'The version that this reader has read; null: none' }),
      })
      .nullable()
      .meta({ description: 'Where the call names a reader' }),
  })
  .meta({ id: 'SessionSummary' });
export type SessionSummary = z.infer<typeof SessionSummary>;

/** Which sessions a list shows; `default` leaves out those that never had a run, and those whose storage is evicted. */
export const SESSION_LIST_STATES = ['default', 'running', 'unread', 'terminal', 'idle', 'all'] as const;
export type SessionListState = (typeof SESSION_LIST_STATES)[number];

/** Whether a list of this state shows the session. Whoever follows changes keeps a list with it; the list itself says the same in SQL. */
export function matchesListState(
  session: Pick<SessionSummary, 'executionState' | 'lastRunId' | 'storageKind' | 'reader' | 'deletedAt'>,
  state: SessionListState,
): boolean {
  if (session.deletedAt !== null) return false;
  switch (state) {
    case 'all':
      return true;
    case 'default':
      return session.lastRunId !== null && session.storageKind !== 'evicted';
    case 'unread':
      return session.reader?.unread === true;
    default:
      return session.executionState === state;
  }
}

export const SessionList = z
  .object({
    sessions: z.array(SessionSummary),
    cursor: z.string().nullable().meta({ description: 'Of the next page; null at the end. A page may be short, even empty, and have one' }),
  })
  .meta({ id: 'SessionList' });
export type SessionList = z.infer<typeof SessionList>;

export const SessionChanges = z
  .object({
    sessions: z.array(SessionSummary).meta({ description: 'In the order of their changes; each as it is now' }),
    cursor: z.string().meta({ description: 'Give it back as `after`' }),
    more: z.boolean(),
  })
  .meta({ id: 'SessionChanges' });
export type SessionChanges = z.infer<typeof SessionChanges>;

export const MarkSessionRead = z.strictObject({ readerId: identifier }).meta({ id: 'MarkSessionRead' });
export const MarkSessionsRead = z
  .strictObject({
    readerId: identifier,
    sessionIds: z.array(identifier).min(1).max(LIST_ROWS_MAX).optional(),
    all: z.literal(true).optional().meta({ description: 'Instead of sessionIds: every session as it is now' }),
  })
  .refine(({ sessionIds, all }) => (sessionIds === undefined) !== (all === undefined), {
    path: ['sessionIds'],
    error: 'name sessions, or all of them',
  })
  .meta({ id: 'MarkSessionsRead' });
export type MarkSessionsRead = z.infer<typeof MarkSessionsRead>;

export const SessionReadCursor = z
  .object({ sessionId: z.string(), readerId: z.string(), sessionVersion: z.int(), readAt: time })
  .meta({ id: 'SessionReadCursor' });
export type SessionReadCursor = z.infer<typeof SessionReadCursor>;
export const MarkedSessions = z
  .object({
    cursors: z.array(SessionReadCursor).meta({ description: 'Of the sessions named; none where all are marked' }),
    unknown: z.array(z.string()).meta({ description: 'Ids that are no sessions of the tenant' }),
    readAt: time.nullable(),
  })
  .meta({ id: 'MarkedSessions' });
export type MarkedSessions = z.infer<typeof MarkedSessions>;

const count = z.int().min(0).nullish();
/** All of it is replaced: what is left out becomes null, but for rolloutSubdir. */
export const RefreshSessionStorage = z
  .strictObject({
    kind: z.enum(['none', 'pvc', 'folder']),
    name: storagePath.nullish().meta({ description: 'Of the volume claim; of a folder its path below the storage root' }),
    namespace: identifier.nullish(),
    phase: identifier.nullish(),
    sizeBytes: count,
    filesCount: z.int().min(0).max(2_147_483_647).nullish(),
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/)
      .nullish(),
    rolloutSubdir: storagePath.optional(),
  })
  .refine(({ kind, name }) => (kind === 'none') === (name == null), {
    path: ['name'],
    error: 'kinds pvc and folder have a name, none has no name',
  })
  .meta({ id: 'RefreshSessionStorage' });
export type RefreshSessionStorage = z.input<typeof RefreshSessionStorage>;

export const MarkStorageEvicted = z
  .strictObject({ name: storagePath, storageVersion: z.int().min(0).max(2_147_483_647) })
  .meta({ id: 'MarkStorageEvicted' });
export type MarkStorageEvicted = z.input<typeof MarkStorageEvicted>;

/** Storage that may be deleted, unless its session is busy. */
export const ExpiredStorage = z
  .object({
    sessionId: z.string(),
    kind: z.enum(['pvc', 'folder']),
    name: z.string(),
    namespace: z.string().nullable(),
    storageVersion: z.int().meta({ description: 'Name it in the report that the storage is gone' }),
    expiresAt: time,
    attempts: z.int(),
    lastError: z.string().nullable(),
    isBusy: z.boolean().meta({ description: 'The session has an open turn' }),
  })
  .meta({ id: 'ExpiredStorage' });
export const ExpiredStorageList = z
  .object({ storages: z.array(ExpiredStorage), cursor: z.string().nullable() })
  .meta({ id: 'ExpiredStorageList' });
export type ExpiredStorageList = z.infer<typeof ExpiredStorageList>;

export const SessionResourceRun = z.object({ run: Run.nullable() }).meta({ id: 'SessionResourceRun' });
export type SessionResourceRun = z.infer<typeof SessionResourceRun>;

export const DeleteSession = z
  .strictObject({
    reason: z
      .string()
      .max(REASON_CODE_POINTS_MAX * 4)
      .nullish()
      .meta({ description: 'Told in the tombstone' }),
  })
  .meta({ id: 'DeleteSession' });
export const DeletedSession = z
  .object({ sessionId: z.string(), deletedAt: time, changed: z.boolean().meta({ description: 'False: it was deleted before' }) })
  .meta({ id: 'DeletedSession' });
export type DeletedSession = z.infer<typeof DeletedSession>;

export const DeletedRun = z
  .object({ runId: z.string(), deletedAt: time, changed: z.boolean().meta({ description: 'False: it was removed before' }) })
  .meta({ id: 'DeletedRun' });
export type DeletedRun = z.infer<typeof DeletedRun>;

export const ForkSession = z
  .strictObject({
    newSessionId: identifier.meta({ description: 'Of the fork: an id that is not in use' }),
    throughSequence: z.int().min(-1).optional().meta({ description: 'The last event that is copied; left out: all there are; -1: none' }),
  })
  .meta({ id: 'ForkSession' });
export type ForkSession = z.input<typeof ForkSession>;

export const CopiedSession = z
  .object({
    sessionId: z.string(),
    copiedThrough: z.int().meta({ description: 'The last event that was copied; −1: none' }),
    lastSequence: z.int().meta({ description: 'Of the new log, with the events that closed what was open in it' }),
    closed: z.int().meta({ description: 'Submissions, approvals and input requests that were open in the copy, and were closed' }),
  })
  .meta({ id: 'CopiedSession' });
export type CopiedSession = z.infer<typeof CopiedSession>;
