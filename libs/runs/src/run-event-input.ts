import {
  APPEND_BYTES_MAX, CUSTOM_EVENT, EVENT_BYTES_MAX, InvalidRequest, isReservedPhase, newId, normalizeJson, parseInput, PayloadTooLarge, redactJson,
  ReservedEventType, RUNNER_EVENTS, utf8Bytes, type JsonObject, type NewRunEvent,
} from '@runplane/contracts';
import type { StorableEvent } from './run-event.sql';

/**
 * Makes a runner's event storable: its type is one that runners may write, its payload fits that type's schema, JSON rules are kept,
 * secrets are masked. Pure. Errors: InvalidRequest, ReservedEventType, InvalidJson, PayloadTooLarge.
 */
export function storableRunnerEvent({ type, payload }: NewRunEvent): StorableEvent {
  const normalized = normalizeJson(payload, { bytesMax: EVENT_BYTES_MAX }).value;
  const checked = checkPayload(type, normalized);
  const { commandId, callId } = checked;
  return {
    id: newId('evt'),
    type,
    payloadText: JSON.stringify(redactJson(checked)),
    commandId: typeof commandId === 'string' ? commandId : null,
    toolCallId: (type === 'tool_call' || type === 'tool_result') && typeof callId === 'string' ? callId : null,
  };
}

/** The same for a batch, whose texts together stay below the limit of a call. */
export function storableRunnerEvents(events: readonly NewRunEvent[]): StorableEvent[] {
  const batch = events.map(storableRunnerEvent);
  const bytes = batch.reduce((sum, event) => sum + utf8Bytes(event.payloadText), 0);
  if (bytes > APPEND_BYTES_MAX) {
    throw new PayloadTooLarge(`The events of one call have ${bytes} bytes: send them in several calls.`, { bytesMax: APPEND_BYTES_MAX });
  }
  return batch;
}

function checkPayload(type: string, payload: JsonObject): JsonObject {
  if (type === 'user_message' || type === 'terminal_status') throw reserved(type);
  if (CUSTOM_EVENT.test(type)) return payload;
  const schema = Object.hasOwn(RUNNER_EVENTS, type) ? RUNNER_EVENTS[type as keyof typeof RUNNER_EVENTS] : undefined;
  if (schema === undefined) {
    throw new InvalidRequest(`There is no event type of this name: use a known type or custom/<name>.`, { issues: [{ path: 'type', message: 'unknown event type' }] });
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
