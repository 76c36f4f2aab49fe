import { on, query, tenantId, type Plant } from '../world';

// Logs of sessions and their views.

export const OF_SESSION_LOGS: readonly Plant[] = [
  {
    invariant: 'LOG-1',
    says: /session s-log stands at 3/,
    plant: query(`UPDATE runplane.session_heads SET last_sequence = 3 WHERE session_id = 's-log'`),
  },
  {
    invariant: 'LOG-1',
    says: /s-log has events and no head/,
    plant: query(`DELETE FROM runplane.session_heads WHERE session_id = 's-log'`),
  },
  {
    invariant: 'LOG-1',
    says: /s-done has no log/,
    plant: query(`DELETE FROM runplane.session_heads WHERE session_id = 's-done'`),
  },
  {
    invariant: 'LOG-1',
    says: /append a of session s-log has 4 events/,
    plant: query(`UPDATE runplane.session_events SET append_count = 4 WHERE append_id = 'a'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d of session s-log is in 0 rows of the outbox/,
    plant: query(`DELETE FROM runplane.outbox_events WHERE stream_id = 's-log'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d of session s-log is in the outbox as another/,
    plant: query(`UPDATE runplane.outbox_events SET type = 'x' WHERE stream_id = 's-log'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d+ of session s-log is in the outbox alone/,
    plant: query(
      `UPDATE runplane.outbox_events SET events = events + 1 WHERE stream_id = 's-log' AND sequence = (SELECT max(sequence) FROM runplane.outbox_events WHERE stream_id = 's-log')`,
    ),
  },
  {
    invariant: 'LOG-2',
    says: /tells its deletion at \d+ without what must outlive its log/,
    plant: query(`UPDATE runplane.outbox_events SET data = NULL WHERE stream_id = 's-deleted' AND type = 'session/deleted'`),
  },
  {
    invariant: 'LOG-2',
    says: /event \d of session s-log left under/,
    plant: query(`UPDATE runplane.outbox_events SET shard = (shard + 1) % 32 WHERE stream_id = 's-log'`),
  },
  {
    invariant: 'LOG-2',
    says: /session s-log and the head of its log disagree/,
    plant: query(`UPDATE runplane.session_heads SET project_id = 'x' WHERE session_id = 's-log'`),
  },
  {
    invariant: 'OWN-1',
    says: /session s-log is held by nobody under epoch 0 until 2/,
    plant: query(`UPDATE runplane.session_heads SET lease_expires_at = now() WHERE session_id = 's-log'`),
  },
  {
    invariant: 'FEED-1',
    says: /session s-log remembers feed number/,
    plant: query(`UPDATE runplane.session_heads SET event_position = event_position - 1 WHERE session_id = 's-log'`),
  },
  {
    invariant: 'FEED-1',
    says: /s-done has version 7 of change 0/,
    plant: query(`UPDATE runplane.sessions SET version = 7, changed_tx = 0 WHERE session_id = 's-done'`),
  },
  {
    invariant: 'VIEW-1',
    says: /1 rows of context_notes were built for session s-done, and no rebuild/,
    plant: query(
      `INSERT INTO runplane.context_notes (tenant_id, session_id, path, content, updated_sequence) SELECT chr(1) || tenant_id, session_id, 'n', '', 0 FROM runplane.sessions WHERE session_id = 's-done'`,
    ),
  },
  {
    invariant: 'VIEW-1',
    says: /approval waits of session s-open is rejected, asked at \d+ and resolved as nothing/,
    plant: query(
      `UPDATE runplane.approvals SET state = 'rejected', resolved_at = now(), resolved_sequence = 0 WHERE approval_id = 'waits'`,
    ),
  },
  {
    invariant: 'VIEW-1',
    says: /reader ann has read version 99 of session s-done/,
    plant: () =>
      on.query(
        `INSERT INTO runplane.session_read_cursors (tenant_id, session_id, reader_id, session_version) VALUES ($1, 's-done', 'ann', 99)`,
        [tenantId],
      ),
  },
  {
    invariant: 'END-1',
    says: /session s-deleted was deleted at .*, its control record says nothing/,
    plant: query(`UPDATE runplane.sessions SET deleted_at = NULL WHERE session_id = 's-deleted'`),
  },
  {
    invariant: 'END-1',
    says: /session s-deleted was erased, and there is a head/,
    plant:
      query(`INSERT INTO runplane.session_tombstones (tenant_id, session_id, incarnation, last_sequence, lease_epoch, claim_epoch, copied_through, last_tx, deleted_at)
      SELECT tenant_id, session_id, incarnation, last_sequence, lease_epoch, claim_epoch, -1, last_tx, deleted_at FROM runplane.session_heads WHERE session_id = 's-deleted'`),
  },
];

/** The one branch that compares what is asked of people with the log. */
export const ASKED_OF_PEOPLE: readonly Plant[] = [
  {
    invariant: 'VIEW-1',
    says: /approval decided of session s-open is rejected, asked at \d+ and resolved as approved/,
    plant: query(`UPDATE runplane.approvals SET state = 'rejected' WHERE approval_id = 'decided'`),
  },
  {
    invariant: 'VIEW-1',
    says: /approval waits of session s-open is nowhere/,
    plant: query(`DELETE FROM runplane.approvals WHERE approval_id = 'waits'`),
  },
];
