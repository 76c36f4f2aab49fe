import { hash } from 'node:crypto';
import { z } from 'zod';
import { identifier } from './identifiers';
import type { JsonObject } from './json';
import {
  APPEND_EVENTS_MAX,
  COUNTER_MAX,
  EVENT_LIST_ROWS_DEFAULT,
  EVENT_LIST_ROWS_MAX,
  SESSION_LEASE_MS_DEFAULT,
  SESSION_LEASE_MS_MAX,
  SESSION_LEASE_MS_MIN,
} from './limits';
import { SessionEventType } from './session-events';
import { JsonRecord } from './wire-json';

// The log of a session as it crosses the wire: header, events, appends, the right to write.

const time = z.iso.datetime();
const sequence = z.int().min(0);
const epoch = z.int().min(1).max(COUNTER_MAX);

/** What a session is created with; further fields are kept as they are. */
export const SessionHeader = JsonRecord.superRefine((header, ctx) => {
  const parsed = HeaderFields.safeParse(header);
  for (const { path, message } of parsed.error?.issues ?? []) ctx.addIssue({ code: 'custom', path, message });
  if (Object.hasOwn(header, 'type'))
    ctx.addIssue({ code: 'custom', path: ['type'], message: 'a header has no type: it is what marks it in an export' });
}).meta({ id: 'SessionHeader', description: 'id, and optionally parent_session_id, projectId, backendProfile; more fields are kept' });
export type SessionHeader = JsonObject & { readonly id: string };
const HeaderFields = z.looseObject({
  id: identifier,
  parent_session_id: identifier.nullish(),
  projectId: identifier.optional(),
  backendProfile: identifier.optional(),
});

export const CreateSession = z.strictObject({ header: SessionHeader }).meta({ id: 'CreateSession' });
export type CreateSession = z.input<typeof CreateSession>;

const incarnation = z
  .string()
  .meta({ description: 'Of this life of the id: made again after a deletion, a session has another, and counts anew' });

/** The log of a session without its events. */
export const SessionLog = z
  .object({
    sessionId: z.string(),
    incarnation,
    header: JsonRecord,
    lastSequence: z.int().meta({ description: 'Of the newest event; −1 while there is none' }),
    createdAt: time,
    updatedAt: time,
  })
  .meta({ id: 'SessionLog' });
export type SessionLog = z.infer<typeof SessionLog>;

export const CreatedSession = z
  .object({ log: SessionLog, replayed: z.boolean().meta({ description: 'It was there, with the same header' }) })
  .meta({ id: 'CreatedSession' });
export type CreatedSession = z.infer<typeof CreatedSession>;

export const SessionLogList = z.object({ sessions: z.array(SessionLog), cursor: z.string().nullable() }).meta({ id: 'SessionLogList' });
export type SessionLogList = z.infer<typeof SessionLogList>;

/** An event on its way into a session's log. */
export const NewSessionEvent = z
  .strictObject({
    type: SessionEventType,
    data: JsonRecord.meta({ description: 'Stored as it was sent' }),
    time: time.optional().meta({ description: "At most 5 minutes off the database's time, which it is when left out" }),
    turnId: identifier.nullish(),
    turn_id: identifier.nullish(),
    stepId: identifier.nullish(),
    step_id: identifier.nullish(),
    sequence: sequence.optional().meta({ description: 'Allotted when left out; must fit when it is there' }),
  })
  .meta({ id: 'NewSessionEvent' });
export type NewSessionEvent = z.input<typeof NewSessionEvent>;

export const AppendSessionEvents = z
  .strictObject({
    events: z.array(NewSessionEvent).max(APPEND_EVENTS_MAX).meta({ description: 'None: only the checks, of lease and sequence' }),
    epoch: epoch.optional().meta({ description: 'Of the session lease; without it only some event types may be appended' }),
    expectedSequence: sequence.optional().meta({ description: 'That the first event will have; left out: at the end' }),
    appendId: identifier.optional().meta({ description: 'Of this append in its session: a repeat returns the first answer' }),
  })
  .meta({ id: 'AppendSessionEvents' });
export type AppendSessionEvents = z.input<typeof AppendSessionEvents>;

/** By the runner of a session's open turn, under the claim of its run. */
export const AppendRunSessionEvents = AppendSessionEvents.omit({ expectedSequence: true })
  .extend({ epoch: epoch.meta({ description: 'Of the claim of the run' }) })
  .meta({ id: 'AppendRunSessionEvents' });
export type AppendRunSessionEvents = z.input<typeof AppendRunSessionEvents>;

export const AppendedSessionEvent = z
  .object({
    sequence,
    eventId: z.string().meta({ description: '32 hexadecimal digits' }),
    time,
    cursor: z.string().nullable().meta({ description: 'Its place in the feed; null for copied events, which the feed does not have' }),
  })
  .meta({ id: 'AppendedSessionEvent' });
export type AppendedSessionEvent = z.infer<typeof AppendedSessionEvent>;
export const AppendedSessionEvents = z
  .object({
    events: z.array(AppendedSessionEvent),
    lastSequence: z.int().meta({ description: 'Of the log behind this append; −1 for an empty log' }),
    replayed: z.boolean().meta({ description: 'It was appended before: this is the first answer' }),
  })
  .meta({ id: 'AppendedSessionEvents' });
export type AppendedSessionEvents = z.infer<typeof AppendedSessionEvents>;

/** An event of a session's log. */
export const SessionEvent = z
  .object({
    sequence,
    type: z.string(),
    time,
    turnId: z.string().nullable(),
    stepId: z.string().nullable(),
    data: JsonRecord,
    eventId: z.string(),
    runId: z.string().nullable().meta({ description: 'Of the run that asked for it, stamped by the server' }),
    commandId: z.string().nullable(),
  })
  .meta({ id: 'SessionEvent' });
export type SessionEvent = z.infer<typeof SessionEvent>;

export const SessionEventPage = z
  .object({
    events: z.array(SessionEvent).meta({ description: 'Ascending; fewer than asked for where their data is large' }),
    lastSequence: z.int().meta({ description: 'Of the log; −1 while it is empty' }),
    incarnation,
  })
  .meta({ id: 'SessionEventPage' });
export type SessionEventPage = z.infer<typeof SessionEventPage>;

const limit = z.int().min(1).max(EVENT_LIST_ROWS_MAX).default(EVENT_LIST_ROWS_DEFAULT);
/** At most one of the three: `from` a sequence on, `after` one, or the last ones `before` one. None: from the start. */
export const ReadSessionEvents = z
  .strictObject({
    from: sequence.optional(),
    after: z.int().min(-1).optional(),
    before: sequence.optional(),
    limit,
    incarnation: identifier.optional(),
  })
  .refine(({ from, after, before }) => [from, after, before].filter((place) => place !== undefined).length <= 1, {
    error: 'name one of from, after and before',
  });
export type ReadSessionEvents = z.input<typeof ReadSessionEvents>;

export const AcquireSessionLease = z
  .strictObject({
    owner: identifier.meta({ description: 'One incarnation of a process: another start of it is another owner' }),
    leaseMs: z.int().min(SESSION_LEASE_MS_MIN).max(SESSION_LEASE_MS_MAX).default(SESSION_LEASE_MS_DEFAULT),
  })
  .meta({ id: 'AcquireSessionLease' });
export type AcquireSessionLease = z.input<typeof AcquireSessionLease>;
export const RenewSessionLease = AcquireSessionLease.extend({ epoch }).meta({ id: 'RenewSessionLease' });
export type RenewSessionLease = z.input<typeof RenewSessionLease>;
export const ReleaseSessionLease = RenewSessionLease.omit({ leaseMs: true }).meta({ id: 'ReleaseSessionLease' });
export type ReleaseSessionLease = z.input<typeof ReleaseSessionLease>;

/** The right to append to a session's log for a time. */
export const SessionLease = z
  .object({
    sessionId: z.string(),
    owner: z.string(),
    epoch: z.int().meta({ description: 'Name it with each append; it grows with every grant, so that former holders are refused' }),
    expiresAt: time,
    remainingMs: z.int(),
  })
  .meta({ id: 'SessionLease' });
export type SessionLease = z.infer<typeof SessionLease>;

export const ReleasedSessionLease = z.object({ released: z.boolean() }).meta({ id: 'ReleasedSessionLease' });
export type ReleasedSessionLease = z.infer<typeof ReleasedSessionLease>;
export const RevokedSessionLease = z.object({ revoked: z.boolean() }).meta({ id: 'RevokedSessionLease' });
export type RevokedSessionLease = z.infer<typeof RevokedSessionLease>;

const URL_NAMESPACE = Buffer.from('6ba7b8119dad11d180b400c04fd430c8', 'hex');

/** A UUID of version 5 without its dashes. By hand, since every event needs one: the uuid package takes four times as long (6 µs). */
function hexId(name: string): string {
  const digits = hash('sha1', Buffer.concat([URL_NAMESPACE, Buffer.from(name)]));
  const variant = '89ab'[parseInt(digits.charAt(16), 16) & 3];
  return `${digits.slice(0, 12)}5${digits.slice(13, 16)}${variant}${digits.slice(17, 32)}`;
}

/** The id that the originals gave an event: of the session's id and the sequence alone. Imported events keep it. */
export const importedEventId = (sessionId: string, at: number): string => hexId(`qi-pi:${sessionId}:${at}`);

/**
 * An event's id, 32 hexadecimal digits: of the store, the tenant, this life of the session and the sequence, so that a session that is made
 * again, or one of another tenant with the same id, has other ids and no consumer drops its events. (Of a life's own id and a store's the
 * characters are fixed: no two names are alike.)
 */
export const sessionEventId = (storeId: string, life: { tenantId: string; incarnation: string }, at: number): string =>
  hexId(`runplane:${storeId}:${life.incarnation}:${life.tenantId}:${at}`);

/** An event of a session's log as folds see it. `sequence` counts 0, 1, 2 … in its session; `time` in milliseconds since 1970, UTC. */
export interface SessionLogEvent {
  readonly sequence: number;
  readonly type: string;
  readonly time: number;
  readonly turnId: string | null;
  readonly stepId: string | null;
  readonly data: JsonObject;
  /** Of the run that stands behind it, stamped by the server; null for events that no run asked for. */
  readonly runId: string | null;
  readonly commandId: string | null;
}

/**
 * A view of a session's log that a team registers: `openDb({ projections: [...] })`. Pure: the same events give the same value, in every
 * process. The value is kept per session under `key` with the version; raise the version with every change of the rules, and rebuild.
 *
 * An `apply` that throws does not refuse the event: the view of that session is stale from there on, and says why, until it is rebuilt.
 */
export interface SessionProjection<Value extends JsonObject = JsonObject> {
  /** An identifier; those of the built-in projections are taken. */
  readonly key: string;
  readonly version: number;
  /** Whether events of this type can change the value; of others `apply` is not called. */
  touches(type: string): boolean;
  initial(sessionId: string): Value;
  apply(value: Value, event: SessionLogEvent): Value;
}
