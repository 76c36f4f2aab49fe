import {
  ARGUMENTS_SUMMARY_BYTES_MAX,
  digestOf,
  freeText,
  newId,
  normalizeJson,
  PayloadTooLarge,
  repairText,
  utf8Bytes,
  type InputRequest,
  type JsonObject,
  type JsonValue,
  type RequestApproval,
  type RequestInput,
} from '@runplane/contracts';
import type { z } from 'zod';
import type { OpenRequestRow } from './requests.sql';

// What is told in the log of what is asked of people, and of its end. Pure.

/** An event as an append takes it. */
export interface RequestEvent {
  readonly type: string;
  readonly data: JsonObject;
  readonly time?: string | undefined;
  readonly turnId?: string | undefined;
  readonly stepId?: string | undefined;
}

export type AskApproval = Omit<z.output<typeof RequestApproval>, 'epoch'>;
export type AskInput = Omit<z.output<typeof RequestInput>, 'epoch'>;

/** What is shown of a call where nobody says so: the call, if it is small enough for that. Errors: InvalidJson, PayloadTooLarge. */
function summaryOf({ argumentsSummary, arguments: args }: AskApproval): JsonValue {
  const shown = argumentsSummary ?? args ?? {};
  const { value, text } = normalizeJson(shown, { strict: argumentsSummary === undefined });
  if (utf8Bytes(text) <= ARGUMENTS_SUMMARY_BYTES_MAX) return value;
  const bytesMax = ARGUMENTS_SUMMARY_BYTES_MAX;
  throw new PayloadTooLarge(`What an approver is shown has at most ${bytesMax} bytes: give a summary of these arguments.`, { bytesMax });
}

/**
 * The event that asks for an approval. The arguments themselves stay out of it: it has what the approver is shown, and the digest that binds
 * the approval to them. Errors: InvalidJson for arguments that would have to be repaired, PayloadTooLarge.
 */
export function approvalRequested(ask: AskApproval): { approvalId: string; event: RequestEvent } {
  const { approvalId = newId('apr'), toolName, arguments: args, reason, timeoutSeconds, callId, operationId, turnId, stepId } = ask;
  const argumentsDigest = ask.argumentsDigest ?? digestOf(args ?? null);
  const data: JsonObject = {
    approval_id: approvalId,
    tool_name: repairText(toolName),
    ...(callId === undefined ? {} : { tool_call_id: callId }),
    ...(operationId === undefined ? {} : { operation_id: operationId }),
    arguments_summary: summaryOf(ask),
    arguments_digest: argumentsDigest,
    ...(reason === undefined ? {} : { reason: freeText(reason) }),
    timeout_seconds: timeoutSeconds,
  };
  return { approvalId, event: { type: 'approval/requested', data, turnId, stepId } };
}

/**
 * The event that asks for input. Its end is a time, so that a repeat of the call must find the end of the first one: `first` is the request
 * that is there, and the event is what this call would have told then.
 */
export function inputRequested(
  { requestId = newId('inp'), prompt, inputSchema, timeoutSeconds, turnId }: AskInput,
  { nowMs, first }: { nowMs: number; first: Pick<InputRequest, 'createdAt'> | undefined },
): { requestId: string; event: RequestEvent } {
  const askedMs = first === undefined ? nowMs : Date.parse(first.createdAt);
  const data: JsonObject = {
    request_id: requestId,
    prompt: repairText(prompt),
    input_schema: inputSchema,
    expires_at_ms: askedMs + timeoutSeconds * 1000,
  };
  const time = first === undefined ? new Date(nowMs).toISOString() : undefined;
  return { requestId, event: { type: 'user-input/requested', data, time, turnId } };
}

/** Who decides where nobody else does. */
const SERVER = { type: 'system', id: 'runplane' };

/** The event by which the server ends a pending request: what was over in time is expired, whatever else ends it. */
export function requestEnded({ kind, id, revision, isDue }: OpenRequestRow, reason: string): RequestEvent {
  const end = isDue ? 'expired' : 'cancelled';
  const facts = { expected_revision: revision, actor: SERVER, reason: isDue ? 'nobody decided in time' : freeText(reason) };
  return kind === 'approval'
    ? { type: 'approval/resolved', data: { approval_id: id, ...facts, resolution: end } }
    : { type: 'user-input/resolved', data: { request_id: id, ...facts, outcome: end } };
}

/** The runs and commands behind requests, each with its requests: events are stamped with whom they are for. */
export function byStamp(open: readonly OpenRequestRow[]): { runId: string | null; commandId: string | null; requests: OpenRequestRow[] }[] {
  const groups = new Map<string, { runId: string | null; commandId: string | null; requests: OpenRequestRow[] }>();
  for (const request of open) {
    const { runId, commandId } = request;
    const key = JSON.stringify([runId, commandId]);
    const group = groups.get(key) ?? { runId, commandId, requests: [] };
    group.requests.push(request);
    groups.set(key, group);
  }
  return [...groups.values()];
}
