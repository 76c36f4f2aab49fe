import { z } from 'zod';
import { InvalidRequest } from './errors';
import { identifier } from './identifiers';
import { isPlainObject, type JsonObject, type JsonValue } from './json';
import { APPROVAL_TIMEOUT_SECONDS_MAX, CHANNEL_ADDRESS_BYTES_MAX, NOTE_PATH_BYTES_MAX, SESSION_EVENT_TYPE_CHARS_MAX } from './limits';
import { utf8Bytes } from './text';
import { Json, JsonRecord } from './wire-json';

/**
 * Events of a session's log. Any type of the pattern is stored; the types below are known: projections read them, and their data is checked
 * before the transaction. Data is stored as it was sent, unknown fields too; a known field of a wrong type is refused, nothing is converted.
 *
 * The spelling here is the canonical one. The other case style (`approvalId` for `approval_id`) is read as well, where the canonical key is
 * absent: a canonical key that is there, if only with null, hides the other.
 */
const TYPE = /^[a-z0-9-]+(\/[a-z0-9-]+)*$/;

export const SessionEventType = z
  .string()
  .max(SESSION_EVENT_TYPE_CHARS_MAX)
  .regex(TYPE, 'lower-case letters, digits and hyphens, in parts with / between')
  .meta({ description: 'Known types are listed in docs/sessions.md; any other is stored as well' });

const SPELLINGS = new Map<string, string>();

/** The other case style of a field's name: approval_id and approvalId; the name itself where it is one word. */
function otherSpelling(name: string): string {
  let other = SPELLINGS.get(name);
  if (other === undefined) {
    other = name.includes('_')
      ? name.replace(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase())
      : name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    SPELLINGS.set(name, other);
  }
  return other;
}

/** A field of an event's data by its canonical name, in whichever case style it was sent; undefined where it is absent. */
export function fieldOf(data: JsonObject, name: string): JsonValue | undefined {
  if (Object.hasOwn(data, name)) return data[name];
  const other = otherSpelling(name);
  return other !== name && Object.hasOwn(data, other) ? data[other] : undefined;
}

/** An object of these fields in either case style; whatever else it has is nobody's business here. */
function fields<Shape extends z.ZodRawShape>(shape: Shape) {
  const names = Object.keys(shape);
  return z.preprocess((data) => {
    if (!isPlainObject(data)) return data;
    const known: Record<string, unknown> = {};
    for (const name of names) {
      const value = fieldOf(data as JsonObject, name);
      if (value !== undefined) known[name] = value;
    }
    return known;
  }, z.object(shape));
}

const text = z.string();
const sequence = z.int().min(0);
/** Absent, null and '' say the same here: nothing. */
const idOrNothing = z.union([identifier, z.literal(''), z.null()]).optional();
/** Channels number their accounts, conversations and messages, or name them. 0 is no number of theirs, as '' is no name. */
const channelId = z.union([identifier, z.literal(''), z.number(), z.null()]).optional();
const address = { channel_id: channelId, account_id: channelId, conversation_id: channelId };
const addressed = <Shape extends z.ZodRawShape>(shape: Shape) =>
  fields({ ...address, ...shape }).refine((named) => {
    const { channel_id, account_id, conversation_id } = named as Record<string, unknown>;
    return utf8Bytes(JSON.stringify([channel_id, account_id, conversation_id])) <= CHANNEL_ADDRESS_BYTES_MAX;
  }, `channel, account and conversation together must have at most ${CHANNEL_ADDRESS_BYTES_MAX} bytes`);
const anything = fields({});

/** Who decided. */
export const Actor = z
  .looseObject({ type: z.enum(['user', 'service', 'system']), id: identifier, name: text.max(200).optional() })
  .meta({ id: 'Actor', description: 'Who decided' });
export type Actor = z.infer<typeof Actor>;

export const APPROVAL_RESOLUTIONS = ['approved', 'rejected', 'expired', 'cancelled'] as const;
export type ApprovalResolution = (typeof APPROVAL_RESOLUTIONS)[number];
export const INPUT_OUTCOMES = ['answered', 'declined', 'expired', 'cancelled'] as const;
export type InputOutcome = (typeof INPUT_OUTCOMES)[number];

/** Milliseconds up to the end of the year 9999, the last that RFC 3339 can write. */
const TIME_MS_MAX = 253_402_300_799_999;

/** Lower-case hex SHA-256. */
const argumentsDigest = text.regex(/^[0-9a-f]{64}$/, 'must be the lower-case hex SHA-256 of the arguments');

const subagentStatus = fields({ activity: text.nullish(), status: text.nullish() });
const delivery = fields({ delivery_id: z.union([identifier, z.literal('')]).optional() });
const leftInbox = fields({ input_id: z.union([identifier, z.literal('')]).optional() });
const notePath = text.refine((path) => utf8Bytes(path) <= NOTE_PATH_BYTES_MAX, `at most ${NOTE_PATH_BYTES_MAX} bytes of UTF-8`);
const note = fields({ path: notePath.optional(), text: text.optional() });
const spoken = fields({ message: Json.optional() });

/** The known types with what projections read of their data. */
export const SESSION_EVENTS = {
  'submission/accepted': fields({
    operation_id: identifier,
    submission_id: identifier,
    kind: identifier,
    payload: Json.optional(),
    source: Json.optional(),
    expected_revision: z.int().min(-1).nullish(),
  }),
  'submission/requeued': fields({ operation_id: identifier }),
  'submission/completed': fields({ operation_id: identifier, run_id: identifier.nullish() }),
  'submission/failed': fields({ operation_id: identifier, error: text.nullish() }),

  'subagent/descriptor': anything,
  'subagent/activation-started': subagentStatus,
  'subagent/activation-ended': subagentStatus,
  'subagent/settled': subagentStatus,
  'subagent/ended': subagentStatus,
  'subagent/failed': subagentStatus,

  'channel/bound': addressed({}),
  'channel/unbound': addressed({}),
  'channel/inbound': addressed({ message_id: channelId }),
  'channel/delivery/queued': delivery,
  'channel/delivery/succeeded': delivery,
  'channel/delivery/failed': fields({ delivery_id: z.union([identifier, z.literal('')]).optional(), error: Json.optional() }),

  'input/enqueued': fields({
    target: text.optional(),
    input_id: z.union([identifier, z.literal('')]).optional(),
    wakeup: z.boolean().optional(),
    message_source: addressed({}).nullish(),
  }),
  'input/entered': leftInbox,
  'input/discarded': leftInbox,
  'agent/inbox/spliced': fields({
    target: text.optional(),
    index: z.int().optional(),
    delete_count: z.int().optional(),
    inserted: z.array(fields({ input_id: idOrNothing, wakeup: z.boolean().optional() })).optional(),
  }),

  'context/window-started': fields({
    windowId: identifier.optional(),
    previousWindowId: identifier.nullish(),
    startedSequence: sequence.optional(),
    trigger: text.max(200).optional(),
  }),
  // Elements that are no integers are passed over, as they always were.
  'compaction/checkpoint': fields({ windowId: identifier.optional(), carriedEventSequences: z.array(Json).optional() }),
  'context/note-written': note,
  'context/note-appended': note,

  'user/message': anything,
  'assistant/message': spoken,
  'tool/call': fields({ name: text.optional(), arguments: Json.optional() }),
  'tool/result': spoken,

  'user-input/requested': fields({
    request_id: identifier,
    turn_id: idOrNothing,
    prompt: text.optional(),
    input_schema: JsonRecord.optional(),
    expires_at_ms: z.int().min(0).max(TIME_MS_MAX),
  }),
  'user-input/resolved': fields({
    request_id: identifier,
    expected_revision: z.int().min(0).optional(),
    outcome: z.enum(INPUT_OUTCOMES),
    value: Json.optional(),
    actor: Actor.optional(),
    reason: text.nullish(),
  }),
  'approval/requested': fields({
    approval_id: identifier,
    turn_id: idOrNothing,
    step_id: idOrNothing,
    tool_call_id: text.optional(),
    operation_id: text.optional(),
    tool_name: text.optional(),
    arguments_summary: Json.optional(),
    reason: text.nullish(),
    /** Below 0 counts as 0. */
    timeout_seconds: z.number().max(APPROVAL_TIMEOUT_SECONDS_MAX).optional(),
    /** Of the arguments (digestOf): what is approved is this call and no other. */
    arguments_digest: argumentsDigest.nullish(),
  }),
  'approval/resolved': fields({
    approval_id: identifier,
    expected_revision: z.int().min(0).optional(),
    resolution: z.enum(APPROVAL_RESOLUTIONS).optional(),
    actor: Actor.optional(),
    reason: text.nullish(),
  }),

  'turn/start': anything,
  'turn/end': anything,
  'step/start': anything,
  'step/end': anything,
  'request/context': anything,
  'execution/recovery': fields({ attention_required: z.boolean().nullish() }),
} as const satisfies Record<string, z.ZodType>;

export type KnownSessionEventType = keyof typeof SESSION_EVENTS;
export const SESSION_EVENT_TYPES = Object.keys(SESSION_EVENTS) as KnownSessionEventType[];

/**
 * Refuses data of a known type that does not fit its schema; data of any other type is free. To be given the data as it was sent, before
 * normalizeJson: an identifier is refused, not repaired. Errors: InvalidRequest, whose issues name the fields in canonical spelling.
 */
export function checkSessionEvent(type: string, data: JsonObject): void {
  if (!Object.hasOwn(SESSION_EVENTS, type)) return;
  const checked = SESSION_EVENTS[type as KnownSessionEventType].safeParse(data);
  if (checked.success) return;
  const issues = checked.error.issues.map(({ path, message }) => ({ path: ['data', ...path].map(String).join('.'), message }));
  throw new InvalidRequest(`The data does not fit the event type ${type}: ${issues[0]?.path}: ${issues[0]?.message}.`, { issues });
}
