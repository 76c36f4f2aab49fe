import { z } from 'zod';
import { InvalidRequest, ReservedEventType } from './errors';
import { identifier } from './identifiers';
import type { JsonObject } from './json';
import { FAILURE_MESSAGE_CODE_POINTS_MAX } from './limits';
import { parseInput } from './parse-input';
import { TERMINAL_STATUSES } from './states';
import { Json, JsonRecord } from './wire-json';

/**
 * Run events. One schema per type; the payload's field names are those of the wire. A runner may append the types of RUNNER_EVENTS;
 * user_message, terminal_status and backend_status with a reserved phase are written by the server alone, so that facts cannot be forged.
 */
export const failureKind = z
  .string()
  .regex(/^[a-z0-9-]{1,64}$/, 'lower-case letters, digits and hyphens, at most 64')
  .meta({ description: 'Machine-readable cause, e.g. backend-failed, timeout, runner-lost' });

const about = { commandId: identifier.optional(), extra: JsonRecord.optional() };

export const RUNNER_EVENTS = {
  assistant_message: z.strictObject({ text: z.string(), final: z.boolean().default(false), ...about }),
  reasoning: z.strictObject({ text: z.string(), ...about }),
  tool_call: z.strictObject({ callId: identifier, name: z.string().min(1).max(200), arguments: Json, ...about }),
  tool_result: z.strictObject({ callId: identifier, status: z.enum(['ok', 'error', 'cancelled', 'lost']), output: Json, ...about }),
  command_output: z.strictObject({ stream: z.enum(['stdout', 'stderr']), text: z.string(), time: z.iso.datetime().optional(), ...about }),
  file_change: z.strictObject({
    path: z.string().min(1).max(4096),
    change: z.enum(['created', 'modified', 'deleted']),
    bytes: z.int().min(0).optional(),
    sha256: z
      .string()
      .regex(/^[0-9a-f]{64}$/)
      .optional(),
    ...about,
  }),
  usage: z.strictObject({
    model: z.string().max(200),
    inputTokens: z.int().min(0),
    outputTokens: z.int().min(0),
    costMicros: z.int().min(0).optional(),
    currency: z
      .string()
      .regex(/^[A-Z]{3}$/)
      .optional(),
    ...about,
  }),
  error: z.strictObject({ message: z.string().max(FAILURE_MESSAGE_CODE_POINTS_MAX * 2), failureKind: failureKind.optional(), ...about }),
  backend_status: z.strictObject({ phase: z.string().regex(/^[a-z0-9-]{1,64}$/), ...about }),
} as const;

export const CUSTOM_EVENT = /^custom\/[a-z0-9][a-z0-9._-]{0,63}$/;

/** Phases of backend_status that only the server writes; a trailing hyphen reserves the whole family. */
export const RESERVED_PHASES = [
  'run-created',
  'command-created',
  'command-acknowledged',
  'command-terminal',
  'run-claimed',
  'run-requeued',
  'claim-lost',
  'session-updated',
  'late-write-rejected',
  'stale-writer-refused',
  'runner-dispatch-',
  'cancel-',
  'session-turn-admission-',
  'steer-',
  'retention-',
] as const;

export function isReservedPhase(phase: string): boolean {
  return RESERVED_PHASES.some((reserved) => (reserved.endsWith('-') ? phase.startsWith(reserved) : phase === reserved));
}

export const RUN_EVENT_TYPES = [
  ...(Object.keys(RUNNER_EVENTS) as (keyof typeof RUNNER_EVENTS)[]),
  'user_message',
  'terminal_status',
] as const;

/** Events that a reader of "what was said" wants; stored as a column, filtered in SQL. */
const OUTPUT_EVENT_TYPES: readonly string[] = ['user_message', 'assistant_message', 'command_output', 'error', 'terminal_status'];
export const isOutputEvent = (type: string): boolean => OUTPUT_EVENT_TYPES.includes(type);

/**
 * What a runner wants to append, checked: a type that runners may write, with the payload of that type, defaults filled in.
 * Errors: ReservedEventType, InvalidRequest.
 */
export function checkRunnerEvent(type: string, payload: JsonObject): JsonObject {
  if (type === 'user_message' || type === 'terminal_status') throw reserved(type);
  if (CUSTOM_EVENT.test(type)) return payload;
  const schema = Object.hasOwn(RUNNER_EVENTS, type) ? RUNNER_EVENTS[type as keyof typeof RUNNER_EVENTS] : undefined;
  if (schema === undefined) {
    throw new InvalidRequest('There is no event type of this name: use a known type or custom/<name>.', {
      issues: [{ path: 'type', message: 'unknown event type' }],
    });
  }
  const checked = parseInput(schema, payload) as JsonObject;
  const phase = checked['phase'];
  if (type === 'backend_status' && typeof phase === 'string' && isReservedPhase(phase)) throw reserved(type, phase);
  return checked;
}

function reserved(type: string, phase?: string): ReservedEventType {
  const what = phase === undefined ? `type ${type}` : `phase ${phase}`;
  return new ReservedEventType(`Only the server writes events of ${what}.`, phase === undefined ? { type } : { type, phase });
}

/** One event as a runner sends it. */
export const NewRunEvent = z.object({ type: z.string().max(96), payload: JsonRecord }).meta({ id: 'NewRunEvent' });
export type NewRunEvent = z.infer<typeof NewRunEvent>;

/** One event as everybody reads it. `seq` counts 1, 2, 3 … in its run. */
export const RunEvent = z
  .object({
    id: z.string(),
    runId: z.string(),
    seq: z.int(),
    type: z.string(),
    payload: JsonRecord,
    commandId: z.string().nullable(),
    createdAt: z.iso.datetime(),
  })
  .meta({ id: 'RunEvent' });
export type RunEvent = z.infer<typeof RunEvent>;

/** How a run or command ended. `failed` and `blocked` name a failure kind, `completed` has none. */
export const Outcome = z
  .strictObject({
    terminalStatus: z.enum(TERMINAL_STATUSES),
    failureKind: failureKind.nullish(),
    failureMessage: z
      .string()
      .max(FAILURE_MESSAGE_CODE_POINTS_MAX * 4)
      .nullish(),
    threadId: identifier.nullish(),
    turnId: identifier.nullish(),
  })
  .refine(
    (o) =>
      (o.terminalStatus === 'failed' || o.terminalStatus === 'blocked') === (o.failureKind != null) || o.terminalStatus === 'cancelled',
    {
      path: ['failureKind'],
      message: 'failed and blocked need a failureKind, completed must not have one',
    },
  )
  .meta({ id: 'Outcome' });
export type Outcome = z.infer<typeof Outcome>;
