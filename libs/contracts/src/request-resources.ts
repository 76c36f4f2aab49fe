import { z } from 'zod';
import { identifier } from './identifiers';
import {
  ARGUMENTS_SUMMARY_BYTES_MAX,
  COUNTER_MAX,
  INPUT_SCHEMA_BYTES_MAX,
  INPUT_VALUE_BYTES_MAX,
  LIST_ROWS_MAX,
  PROMPT_CODE_POINTS_MAX,
  REASON_CODE_POINTS_MAX,
  REQUEST_TIMEOUT_SECONDS_DEFAULT,
  REQUEST_TIMEOUT_SECONDS_MAX,
} from './limits';
import { Actor, INPUT_OUTCOMES } from './session-events';
import { APPROVAL_STATES } from './states';
import { Json, JsonRecord } from './wire-json';

// What is asked of people: approvals of tool calls, and requests for input. The answers have the names of the original's public objects.

const time = z.iso.datetime();
const reason = z.string().max(REASON_CODE_POINTS_MAX * 4);
const epoch = z.int().min(1).max(COUNTER_MAX);
const place = { turnId: identifier.optional(), stepId: identifier.optional() };
const timeoutSeconds = z
  .int()
  .min(1)
  .max(REQUEST_TIMEOUT_SECONDS_MAX)
  .default(REQUEST_TIMEOUT_SECONDS_DEFAULT)
  .meta({ description: 'How long the answer is waited for' });

const approvalFields = {
  approvalId: identifier.optional().meta({ description: 'Made when absent; with an id of your own a repeated call asks once' }),
  toolName: z.string().min(1).max(200),
  arguments: Json.optional().meta({
    description: 'Of the call; they are hashed, not stored. The approval is good for these arguments and no others',
  }),
  argumentsDigest: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional()
    .meta({ description: 'Instead of the arguments: the SHA-256 of their canonical JSON, lower-case hex' }),
  argumentsSummary: Json.optional().meta({
    description: `What the approver is shown, at most ${ARGUMENTS_SUMMARY_BYTES_MAX / 1024} KiB; absent: the arguments`,
  }),
  reason: reason.min(1).optional(),
  timeoutSeconds,
  callId: identifier.optional().meta({ description: 'Of the tool call' }),
  operationId: identifier.optional(),
  ...place,
};

const inputFields = {
  requestId: identifier.optional().meta({ description: 'Made when absent; with an id of your own a repeated call asks once' }),
  prompt: z
    .string()
    .min(1)
    .max(PROMPT_CODE_POINTS_MAX * 2),
  inputSchema: JsonRecord.default({}).meta({
    description: `JSON Schema (2020-12) of the answer, at most ${INPUT_SCHEMA_BYTES_MAX / 1024} KiB, without references out of itself; \`format\` says, but is not checked`,
  }),
  timeoutSeconds,
  turnId: place.turnId,
};

const ofOneSource = {
  check: ({ arguments: args, argumentsDigest }: { arguments?: unknown; argumentsDigest?: string | undefined }) =>
    (args === undefined) !== (argumentsDigest === undefined),
  error: { path: ['arguments'], error: 'give the arguments, or their digest' },
};

/** By the holder of the session's lease, or by the runner of the session's open turn: `epoch` is the lease's or the claim's. */
export const RequestApproval = z
  .strictObject({ epoch, ...approvalFields })
  .refine(ofOneSource.check, ofOneSource.error)
  .meta({ id: 'RequestApproval' });
export type RequestApproval = z.input<typeof RequestApproval>;

export const RequestInput = z.strictObject({ epoch, ...inputFields }).meta({ id: 'RequestInput' });
export type RequestInput = z.input<typeof RequestInput>;

/** `outcome` tells how it stands; `pending` with `expiresInMs` 0 cannot be decided any more, and is about to be `expired`. */
export const Approval = z
  .object({
    approvalId: z.string(),
    sessionId: z.string(),
    runId: z.string().nullable(),
    commandId: z.string().nullable(),
    turnId: z.string(),
    stepId: z.string(),
    callId: z.string(),
    operationId: z.string(),
    toolName: z.string(),
    argumentsSummary: Json,
    argumentsDigest: z.string().nullable().meta({ description: 'Null: the approval is bound to no arguments, and good for none' }),
    reason: z.string(),
    outcome: z.enum(APPROVAL_STATES),
    revision: z.int(),
    expiresAt: time,
    expiresInMs: z.int().nullable().meta({ description: 'Null once it is resolved' }),
    createdAt: time,
    resolvedAt: time.nullable(),
    actor: JsonRecord.meta({ description: 'Who resolved it; {} while nobody has' }),
    resolutionReason: z.string().nullable(),
  })
  .meta({ id: 'Approval' });
export type Approval = z.infer<typeof Approval>;

export const InputRequest = z
  .object({
    requestId: z.string(),
    sessionId: z.string(),
    runId: z.string().nullable(),
    commandId: z.string().nullable(),
    turnId: z.string(),
    prompt: z.string(),
    inputSchema: Json,
    status: z.enum(['pending', 'resolved']),
    outcome: z.enum(INPUT_OUTCOMES).nullable().meta({ description: 'Null while it is pending' }),
    value: Json.nullable().meta({ description: 'The answer' }),
    actor: JsonRecord.meta({ description: 'Who resolved it; {} while nobody has' }),
    reason: z.string().nullable(),
    revision: z.int(),
    expiresAtMs: z.int(),
    expiresInMs: z.int().nullable().meta({ description: 'Null once it is resolved' }),
    createdAt: time,
    resolvedAt: time.nullable(),
  })
  .meta({ id: 'InputRequest' });
export type InputRequest = z.infer<typeof InputRequest>;

export const RequestedApproval = z.object({ approval: Approval, replayed: z.boolean() }).meta({ id: 'RequestedApproval' });
export type RequestedApproval = z.infer<typeof RequestedApproval>;
export const RequestedInput = z.object({ request: InputRequest, replayed: z.boolean() }).meta({ id: 'RequestedInput' });
export type RequestedInput = z.infer<typeof RequestedInput>;

/** Who decides, as the caller knows them. What the server itself decides has the type `system`. */
export const DecidingActor = z.strictObject({ ...Actor.shape, type: z.enum(['user', 'service']) }).meta({ id: 'DecidingActor' });
export type DecidingActor = z.infer<typeof DecidingActor>;

const decision = {
  revision: z.int().min(0).max(COUNTER_MAX).default(0).meta({ description: 'Of what was looked at; 0 while it is pending' }),
  actor: DecidingActor.optional().meta({ description: 'Absent: the API key, as a service' }),
  reason: reason.optional(),
};

export const ResolveApproval = z
  .strictObject({ resolution: z.enum(['approved', 'rejected']), ...decision })
  .meta({ id: 'ResolveApproval' });
export type ResolveApproval = z.input<typeof ResolveApproval>;

export const ResolveInput = z
  .strictObject({
    outcome: z.enum(['answered', 'declined']),
    value: Json.optional().meta({
      description: `The answer, at most ${INPUT_VALUE_BYTES_MAX / 1024} KiB; only with \`answered\`, where its absence stands for null`,
    }),
    ...decision,
  })
  .refine(({ outcome, value }) => outcome === 'answered' || value === undefined, {
    path: ['value'],
    error: 'only an answer has a value',
  })
  .meta({ id: 'ResolveInput' });
export type ResolveInput = z.input<typeof ResolveInput>;

export const ResolvedApproval = z
  .object({ approval: Approval, replayed: z.boolean().meta({ description: 'The same decision had been made before' }) })
  .meta({ id: 'ResolvedApproval' });
export type ResolvedApproval = z.infer<typeof ResolvedApproval>;
export const ResolvedInput = z
  .object({ request: InputRequest, replayed: z.boolean().meta({ description: 'The same decision had been made before' }) })
  .meta({ id: 'ResolvedInput' });
export type ResolvedInput = z.infer<typeof ResolvedInput>;

export const ApprovalList = z
  .object({ approvals: z.array(Approval).max(LIST_ROWS_MAX), cursor: z.string().nullable() })
  .meta({ id: 'ApprovalList' });
export type ApprovalList = z.infer<typeof ApprovalList>;
export const InputRequestList = z
  .object({ requests: z.array(InputRequest).max(LIST_ROWS_MAX), cursor: z.string().nullable() })
  .meta({ id: 'InputRequestList' });
export type InputRequestList = z.infer<typeof InputRequestList>;
