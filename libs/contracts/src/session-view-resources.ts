import { z } from 'zod';
import { identifier } from './identifiers';
import { IDENTIFIER_BYTES_MAX, LIST_ROWS_DEFAULT, LIST_ROWS_MAX, NOTE_PATH_BYTES_MAX, SEARCH_CODE_POINTS_MAX } from './limits';
import { DELIVERY_STATES, DRIVER_STATES } from './states';
import { isStorableText } from './text';
import { JsonRecord } from './wire-json';

// Views of a session's log as they cross the wire. Names and shapes are those of the store that this one replaces.

const time = z.iso.datetime();
const sequence = z.int().min(0);
const cursor = z.string().nullable().meta({ description: 'Of the next page; null at the end. A page of large rows is short' });

const InboxEntry = z.object({ inputId: z.string(), wakeup: z.boolean() });

/** What cold starts look at; see docs/state-machines.md for the driver's states. */
export const SessionSnapshot = z
  .object({
    schemaVersion: z.literal(1),
    activeTurnId: z.string().nullable(),
    activeStepId: z.string().nullable(),
    driverState: z.enum(DRIVER_STATES),
    inbox: z.object({ nextTurn: z.array(InboxEntry), nextStep: z.array(InboxEntry) }),
    hasInboxSplices: z.boolean().meta({ description: 'Splices are the only word on the inbox from then on' }),
    pendingApprovalIds: z.array(z.string()),
    pendingUserInputIds: z.array(z.string()),
    contextWindowId: z.string().nullable(),
    sequence: sequence.meta({ description: 'Of the newest event' }),
    durableCursor: z.string().nullable().meta({ description: 'Where the feed has that event; null for one that was copied' }),
    lastEventType: z.string(),
    anomalyCount: z.int().meta({ description: 'Events that did not fit what was before them' }),
    anomalies: z.array(z.object({ sequence, type: z.string(), what: z.string() })).meta({ description: 'The last of them' }),
  })
  .meta({ id: 'SessionSnapshot' });
export type SessionSnapshot = z.infer<typeof SessionSnapshot>;

export const SessionSnapshotAnswer = z
  .object({ snapshot: SessionSnapshot.nullable().meta({ description: 'Null while the log is empty' }) })
  .meta({ id: 'SessionSnapshotAnswer' });
export type SessionSnapshotAnswer = z.infer<typeof SessionSnapshotAnswer>;

export const RecoveryCandidateList = z
  .object({ candidates: z.array(z.object({ sessionId: z.string(), snapshot: SessionSnapshot })), cursor })
  .meta({ id: 'RecoveryCandidateList' });
export type RecoveryCandidateList = z.infer<typeof RecoveryCandidateList>;

/** A projection's value for one session. */
export const ProjectedValue = z
  .object({
    sessionId: z.string(),
    key: z.string(),
    sequence: z.int().meta({ description: 'Of the event that last changed it; −1: none' }),
    value: JsonRecord,
    version: z.int(),
    appliedSequence: z.int().meta({ description: 'Of the last event that it knows' }),
    staleReason: z.string().nullable().meta({ description: 'Why it is not kept up until it is rebuilt; null while it is' }),
  })
  .meta({ id: 'ProjectedValue' });
export type ProjectedValue = z.infer<typeof ProjectedValue>;

export const ProjectedValueList = z.object({ projections: z.array(ProjectedValue), cursor }).meta({ id: 'ProjectedValueList' });
export type ProjectedValueList = z.infer<typeof ProjectedValueList>;

/** Of each part of a session's channel state the newest so many, and up to the one that passes so many bytes; the lists have all of them. */
export const CHANNEL_STATE_ROWS_MAX = 200;
export const CHANNEL_STATE_BYTES_MAX = 1024 * 1024;

export const ChannelBinding = z
  .object({ address: z.string(), sequence, data: JsonRecord })
  .meta({ id: 'ChannelBinding', description: 'An address is the JSON array of channel, account and conversation' });
export type ChannelBinding = z.infer<typeof ChannelBinding>;
export const ChannelBindingList = z.object({ bindings: z.array(ChannelBinding), cursor }).meta({ id: 'ChannelBindingList' });
export type ChannelBindingList = z.infer<typeof ChannelBindingList>;

export const ChannelDelivery = z
  .object({
    deliveryId: z.string(),
    state: z.enum(DELIVERY_STATES),
    data: JsonRecord.nullable().meta({ description: 'Of the event that queued it; null where only its end was told' }),
    error: z.string().nullable(),
    queuedSequence: sequence.nullable(),
    completedSequence: sequence.nullable(),
    updatedAt: time,
  })
  .meta({ id: 'ChannelDelivery' });
export type ChannelDelivery = z.infer<typeof ChannelDelivery>;
export const ChannelDeliveryList = z.object({ deliveries: z.array(ChannelDelivery), cursor }).meta({ id: 'ChannelDeliveryList' });
export type ChannelDeliveryList = z.infer<typeof ChannelDeliveryList>;

export const SessionContextWindow = z
  .object({
    windowId: z.string(),
    previousWindowId: z.string().nullable(),
    startedSequence: z.int(),
    trigger: z.string(),
    isCurrent: z.boolean(),
  })
  .meta({ id: 'SessionContextWindow' });
export type SessionContextWindow = z.infer<typeof SessionContextWindow>;
export const SessionContextWindowList = z
  .object({ windows: z.array(SessionContextWindow), cursor })
  .meta({ id: 'SessionContextWindowList' });
export type SessionContextWindowList = z.infer<typeof SessionContextWindowList>;

export const ContextNote = z.object({ path: z.string(), content: z.string(), updatedSequence: sequence }).meta({ id: 'ContextNote' });
export type ContextNote = z.infer<typeof ContextNote>;
export const ContextNoteList = z
  .object({ notes: z.array(z.object({ path: z.string(), bytes: z.int(), updatedSequence: sequence })), cursor })
  .meta({ id: 'ContextNoteList', description: 'Without their content' });
export type ContextNoteList = z.infer<typeof ContextNoteList>;

export const CONTEXT_ROLES = ['user', 'assistant', 'tool'] as const;
export type ContextRole = (typeof CONTEXT_ROLES)[number];

const item = {
  itemId: z.string().meta({ description: '`item-` and the sequence' }),
  sequence,
  windowId: z.string(),
  role: z.enum(CONTEXT_ROLES),
  toolName: z.string().nullable(),
};
export const ContextItem = z.object({ ...item, content: z.string() }).meta({ id: 'ContextItem' });
export type ContextItem = z.infer<typeof ContextItem>;
export const ContextItemList = z.object({ items: z.array(ContextItem), cursor }).meta({ id: 'ContextItemList' });
export type ContextItemList = z.infer<typeof ContextItemList>;

export const ContextMatch = z
  .object({ ...item, excerpt: z.string().meta({ description: 'Around the first place that matches' }) })
  .meta({ id: 'ContextMatch' });
export type ContextMatch = z.infer<typeof ContextMatch>;
export const ContextMatchList = z.object({ matches: z.array(ContextMatch), cursor }).meta({ id: 'ContextMatchList' });
export type ContextMatchList = z.infer<typeof ContextMatchList>;

export const SEARCH_MODES = ['literal', 'words'] as const;
export type SearchMode = (typeof SEARCH_MODES)[number];

// Inputs.

const limit = z.int().min(1).max(LIST_ROWS_MAX).default(LIST_ROWS_DEFAULT);
const page = {
  cursor: z.string().optional().meta({ description: 'Of the page before; it belongs to the filter it was made with' }),
  limit,
};

/** The window of a session before its first one is named after the session, and so a little longer than an identifier. */
const windowId = z
  .string()
  .min(1)
  .max(IDENTIFIER_BYTES_MAX + 'legacy-'.length)
  .refine(isStorableText, 'must have no NUL character and no lone surrogate');

export const ListPage = z.strictObject(page);
export const ListDeliveries = z.strictObject({ ...page, state: z.enum(DELIVERY_STATES).optional() });
export const ListContextHistory = z.strictObject({
  ...page,
  windowId: windowId.optional().meta({ description: 'The current one when left out' }),
  role: z.enum(CONTEXT_ROLES).optional(),
});
export type ListContextHistory = z.input<typeof ListContextHistory>;
export const SearchContextHistory = z.strictObject({
  ...page,
  query: z
    .string()
    .refine((text) => [...text].length <= SEARCH_CODE_POINTS_MAX, `at most ${SEARCH_CODE_POINTS_MAX} characters`)
    .refine(isStorableText, 'must have no NUL character and no lone surrogate'),
  mode: z.enum(SEARCH_MODES).default('literal').meta({
    description: '`literal`: the text as it is, case and all, and the empty one everywhere; `words`: words, "phrases", or, -not',
  }),
  windowId: windowId.optional().meta({ description: 'All of them when left out' }),
  role: z.enum(CONTEXT_ROLES).optional(),
});
export type SearchContextHistory = z.input<typeof SearchContextHistory>;
export const NotePath = z.string().max(NOTE_PATH_BYTES_MAX).refine(isStorableText, 'must have no NUL character and no lone surrogate');
export const ProjectionKey = identifier;
