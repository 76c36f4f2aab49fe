import {
  APPEND_BYTES_MAX,
  checkSessionEvent,
  EVENT_BYTES_MAX,
  InvalidRequest,
  normalizeJson,
  PayloadTooLarge,
  utf8Bytes,
  type JsonObject,
  type NewSessionEvent,
} from '@runplane/contracts';
import type { UnplacedEvent } from './projections/projection';

/** An event that has passed the door: its data as it is stored, parsed and as text, and whatever of its place the caller has named. */
export interface StorableSessionEvent extends UnplacedEvent {
  readonly dataText: string;
  /** Milliseconds since 1970; null: when it is appended. */
  readonly time: number | null;
  /** Where the caller says that it must stand; null: behind the one before it. */
  readonly sequence: number | null;
}

/** Whom the events are about, stamped by the server. */
export interface StampedBy {
  readonly runId: string | null;
  readonly commandId: string | null;
}

export const NO_RUN: StampedBy = { runId: null, commandId: null };

/**
 * Makes events storable: the JSON rule, the schema of known types, the bytes of one event and of all together. Pure.
 * Errors: InvalidRequest, InvalidJson, PayloadTooLarge.
 */
export function storableSessionEvents(events: readonly NewSessionEvent[], by: StampedBy = NO_RUN): StorableSessionEvent[] {
  let bytes = 0;
  return events.map((event) => {
    const { value, text } = normalizeJson<JsonObject>(event.data, { bytesMax: EVENT_BYTES_MAX });
    checkSessionEvent(event.type, event.data); // as it was sent: an identifier is refused, and not repaired
    bytes += utf8Bytes(text);
    if (bytes > APPEND_BYTES_MAX) {
      throw new PayloadTooLarge(`The events of one call have more than ${APPEND_BYTES_MAX} bytes: send them in several calls.`, {
        bytesMax: APPEND_BYTES_MAX,
      });
    }
    return {
      type: event.type,
      data: value,
      dataText: text,
      time: event.time === undefined ? null : Date.parse(event.time),
      turnId: event.turnId ?? event.turn_id ?? null,
      stepId: event.stepId ?? event.step_id ?? null,
      sequence: event.sequence ?? null,
      runId: by.runId,
      commandId: by.commandId,
    };
  });
}

/** The sequence that the first event must have by what the call and its events say; undefined: at the end. Errors: InvalidRequest. */
export function wantedSequence(events: readonly StorableSessionEvent[], expectedSequence: number | undefined): number | undefined {
  let wanted = expectedSequence;
  for (const [i, { sequence }] of events.entries()) {
    if (sequence === null) continue;
    wanted ??= sequence - i;
    if (sequence === wanted + i) continue;
    const message = 'does not follow the events before it, or the expected sequence';
    throw new InvalidRequest(`The input is not valid: events.${i}.sequence: ${message}.`, {
      issues: [{ path: `events.${i}.sequence`, message }],
    });
  }
  return wanted;
}
