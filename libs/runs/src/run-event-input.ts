import {
  APPEND_BYTES_MAX,
  checkRunnerEvent,
  EVENT_BYTES_MAX,
  newId,
  normalizeJson,
  PayloadTooLarge,
  redactJson,
  utf8Bytes,
  type NewRunEvent,
} from '@runplane/contracts';
import type { StorableEvent } from './run-event.sql';

/**
 * Makes a runner's event storable: its type is one that runners may write, its payload fits that type's schema, JSON rules are kept,
 * secrets are masked. Pure. Errors: InvalidRequest, ReservedEventType, InvalidJson, PayloadTooLarge.
 */
export function storableRunnerEvent({ type, payload }: NewRunEvent): StorableEvent {
  const normalized = normalizeJson(payload, { bytesMax: EVENT_BYTES_MAX }).value;
  const checked = checkRunnerEvent(type, normalized);
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
export function storableRunnerEvents(events: readonly NewRunEvent[]): { events: StorableEvent[]; bytes: number } {
  const batch = events.map(storableRunnerEvent);
  const bytes = batch.reduce((sum, event) => sum + utf8Bytes(event.payloadText), 0);
  if (bytes > APPEND_BYTES_MAX) {
    throw new PayloadTooLarge(`The events of one call have ${bytes} bytes: send them in several calls.`, { bytesMax: APPEND_BYTES_MAX });
  }
  return { events: batch, bytes };
}
