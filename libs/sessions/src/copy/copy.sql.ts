import { column, maybeRow, oneRow, sql, takingLock, type Tx } from '@runplane/database';
import { feedTx } from '@runplane/outbox';
import { z } from 'zod';
import type { SessionKey } from '../session.sql';

/** An event on its way into a copied log. */
export interface CopiedEvent {
  readonly sequence: number;
  readonly eventId: string;
  readonly type: string;
  /** RFC 3339. */
  readonly time: string;
  readonly turnId: string | null;
  readonly stepId: string | null;
  readonly dataText: string;
  /** As it was given; null: made of the columns. */
  readonly line: string | null;
}

const done = z.object({ done: column.int });

/**
 * Puts the next events into a log that is being copied, and says that its maker lives. They are no news: the feed does not have them, and no view
 * is made of them here. False: the copy has been given up meanwhile. Locks: session → session head.
 */
export async function insertCopied(tx: Tx, key: SessionKey, incarnation: string, events: readonly CopiedEvent[]): Promise<boolean> {
  const id = `${key.tenantId}/${key.sessionId}`;
  takingLock(tx, 'session', id);
  takingLock(tx, 'sessionHead', id);
  const [first] = events;
  const written = await maybeRow(
    tx,
    done,
    sql`WITH s AS (
          UPDATE runplane.sessions SET deleted_at = runplane.app_now() WHERE tenant_id = ${key.tenantId}::text AND session_id = ${key.sessionId}::text AND copying
          RETURNING tenant_id, session_id, deleted_at
        ), h AS (
          UPDATE runplane.session_heads h SET last_sequence = h.last_sequence + ${events.length}::int, imported_through = h.last_sequence + ${events.length}::int,
            deleted_at = s.deleted_at
          FROM s
          WHERE h.tenant_id = s.tenant_id AND h.session_id = s.session_id AND h.copying AND h.incarnation = ${incarnation}::text
            AND h.last_sequence = ${String((first?.sequence ?? 0) - 1)}::bigint
          RETURNING h.tenant_id, h.session_id
        ), e AS (
          INSERT INTO runplane.session_events (tenant_id, session_id, sequence, event_id, type, time, turn_id, step_id, data, line)
          SELECT h.tenant_id, h.session_id, e.sequence::bigint, e.event_id::uuid, e.type, e.time::timestamptz, e.turn_id, e.step_id, e.data::json, e.line
          FROM h, unnest(${events.map((e) => String(e.sequence))}::text[], ${events.map((e) => e.eventId)}::text[], ${events.map((e) => e.type)}::text[],
            ${events.map((e) => e.time)}::text[], ${events.map((e) => e.turnId)}::text[], ${events.map((e) => e.stepId)}::text[],
            ${events.map((e) => e.dataText)}::text[], ${events.map((e) => e.line)}::text[]) AS e (sequence, event_id, type, time, turn_id, step_id, data, line)
        )
        SELECT 1 AS "done" FROM h`,
  );
  return written !== undefined;
}

/** Shows a copied session, whose rows this transaction has locked. */
export async function writeCopied(tx: Tx, { tenantId, sessionId }: SessionKey): Promise<number> {
  const { lastSequence } = await oneRow(
    tx,
    z.object({ lastSequence: column.int8 }),
    sql`WITH s AS (
          UPDATE runplane.sessions SET copying = false, deleted_at = NULL, changed_tx = greatest(changed_tx, ${feedTx}), last_tx = greatest(last_tx, ${feedTx}),
            last_activity_at = runplane.app_now()
          WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND copying
        )
        UPDATE runplane.session_heads SET copying = false, deleted_at = NULL, updated_at = runplane.app_now()
        WHERE tenant_id = ${tenantId}::text AND session_id = ${sessionId}::text AND copying RETURNING last_sequence::text AS "lastSequence"`,
  );
  return lastSequence;
}
