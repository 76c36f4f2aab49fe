import { AppendConflict, type AppendedSessionEvents, type NewSessionEvent } from '@runplane/contracts';
import type { SqlExecutor } from '@runplane/database';
import { encodeFeedCursor } from '@runplane/outbox';
import { assertOpen } from './judge-append';
import { storableSessionEvents, type StorableSessionEvent } from './session-event-input';
import { listAppended, type AppendedRow } from './session-event.sql';
import { readHead, type HeadRow } from './session-head.sql';
import type { SessionKey } from './session.sql';

/** The first answer of an append whose id is known. Errors: AppendConflict, when it was for other events. */
export async function replayAppend(
  on: SqlExecutor,
  head: HeadRow,
  { appendId, appendedAt, events }: { appendId: string; appendedAt: number; events: readonly StorableSessionEvent[] },
): Promise<AppendedSessionEvents> {
  const stored = await listAppended(on, head, appendedAt);
  if (stored.length !== events.length || !stored.every((row, i) => says(row, events[i]))) {
    throw new AppendConflict(`The append ${appendId} of session ${head.sessionId} has other events.`, {
      sessionId: head.sessionId,
      appendId,
    });
  }
  return replayOf(head, stored);
}

/** The first answer of an append, if it is known. Errors: SessionDeleted, AppendConflict, InvalidRequest, InvalidJson, PayloadTooLarge. */
export async function findAppend(
  on: SqlExecutor,
  key: SessionKey,
  { events, appendId }: { events: readonly NewSessionEvent[]; appendId: string },
): Promise<AppendedSessionEvents | undefined> {
  const found = await readHead(on, key, { appendId });
  if (found?.appendedAt == null) return undefined;
  assertOpen(found.head);
  return replayAppend(on, found.head, { appendId, appendedAt: found.appendedAt, events: storableSessionEvents(events) });
}

/** The event that an event of its own repeats. */
export async function replayEvent(on: SqlExecutor, head: HeadRow, sequence: number): Promise<AppendedSessionEvents> {
  return replayOf(head, await listAppended(on, head, sequence, 1));
}

function replayOf({ storeId }: HeadRow, stored: readonly AppendedRow[]): AppendedSessionEvents {
  const last = stored.at(-1);
  if (last === undefined) throw new Error('an append that is known has no events');
  return {
    events: stored.map(({ sequence, eventId, time, tx, position }) => ({
      sequence,
      eventId,
      time,
      cursor: tx === null || position === null ? null : encodeFeedCursor(storeId, { tx, position }),
    })),
    lastSequence: last.sequence,
    replayed: true,
  };
}

/** What the caller said, not what was filled in: an event without a time got one. */
const says = (row: AppendedRow, event: StorableSessionEvent | undefined): boolean =>
  event !== undefined &&
  row.type === event.type &&
  row.dataText === event.dataText &&
  row.turnId === event.turnId &&
  row.stepId === event.stepId &&
  (event.time === null || Date.parse(row.time) === event.time) &&
  (event.sequence === null || row.sequence === event.sequence);
