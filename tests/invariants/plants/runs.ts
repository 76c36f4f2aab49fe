import { changeEvent, on, plantCommand, plantEvent, query, tenantId, world, type Plant } from '../world';

// Runs, their commands, events, claims and places; what they tell the feed.

export const OF_RUNS: readonly Plant[] = [
  {
    invariant: 'LOG-1',
    says: /counts \d+ events/,
    plant: () => on.query(`UPDATE runplane.runs SET last_event_seq = last_event_seq + 1 WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'LOG-1',
    says: /its pruned log has 0/,
    also: ['LOG-2'],
    plant: () => on.query(`DELETE FROM runplane.run_events WHERE run_id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-1',
    says: /and no row/,
    plant: async () => {
      await plantEvent(world.open, 'assistant_message', {});
      await on.query(`UPDATE runplane.runs SET last_event_seq = last_event_seq - 1 WHERE id = $1`, [world.open]);
      await changeEvent(
        `e.seq = (SELECT max(seq) FROM runplane.run_events WHERE run_id = '${world.open}') AND e.run_id = '${world.open}'`,
        `run_id = 'ghost'`,
      );
      await on.query(`UPDATE runplane.outbox_events SET stream_id = 'ghost' WHERE run_id = 'ghost'`);
    },
  },
  {
    invariant: 'LOG-1',
    says: /counts \d+ commands/,
    plant: () => on.query(`UPDATE runplane.runs SET last_command_seq = last_command_seq + 1 WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'LOG-2',
    says: /outbox disagree/,
    plant: () => on.query(`DELETE FROM runplane.outbox_events WHERE stream_id = $1 AND sequence = 2`, [world.open]),
  },
  {
    invariant: 'LOG-2',
    says: /was removed at event \d+, the outbox has/,
    plant: () => on.query(`DELETE FROM runplane.outbox_events WHERE stream_id = $1 AND sequence = 2`, [world.gone]),
  },
  {
    invariant: 'LOG-2',
    says: /was removed, and there is a row of it/,
    plant: () =>
      on.query(
        `INSERT INTO runplane.run_tombstones (tenant_id, run_id, last_event_seq, finished_at)
         SELECT tenant_id, id, last_event_seq, now() FROM runplane.runs WHERE id = $1`,
        [world.open],
      ),
  },
  {
    invariant: 'LOG-2',
    says: /its log ends otherwise/,
    also: ['VIEW-1'],
    plant: () => on.query(`UPDATE runplane.runs SET status = 'failed', failure_kind = 'x' WHERE id = $1`, [world.done]),
  },
  {
    invariant: 'LOG-2',
    says: /its run tells otherwise/,
    plant: () => on.query(`UPDATE runplane.commands SET state = 'failed', failure_kind = 'x' WHERE id = $1`, [world.doneCommand]),
  },
  {
    invariant: 'LOG-2',
    says: /acknowledged and its run does not tell it/,
    plant: () =>
      on.query(`UPDATE runplane.commands SET state = 'acknowledged', acknowledged_at = now() WHERE id = $1`, [world.pendingCommand]),
  },
  {
    invariant: 'LOG-2',
    says: /its run tells steer-missed/,
    plant: () => on.query(`UPDATE runplane.commands SET failure_kind = 'x' WHERE type = 'steer'`),
  },
  {
    invariant: 'LOG-2',
    says: /stands at delivered, its run tells cancel-persisted/,
    plant: () => on.query(`UPDATE runplane.cancel_requests SET stage = 'delivered' WHERE run_id = $1`, [world.cancelling]),
  },
  {
    invariant: 'LOG-2',
    says: /another project, session/,
    plant: () => on.query(`UPDATE runplane.outbox_events SET session_id = 'x' WHERE stream_id = $1 AND sequence = 2`, [world.open]),
  },
  {
    invariant: 'LOG-3',
    says: /assistant_message  behind its terminal_status/,
    plant: () => plantEvent(world.done, 'assistant_message', {}),
  },
  { invariant: 'OWN-1', says: /lease disagree/, plant: () => on.query(`DELETE FROM runplane.run_leases WHERE run_id = $1`, [world.open]) },
  {
    invariant: 'OWN-1',
    says: /under epoch 1 after epoch 5/,
    plant: async () => {
      await plantEvent(world.open, 'assistant_message', {}, { epoch: 5 });
      await plantEvent(world.open, 'assistant_message', {}, { epoch: 1 });
    },
  },
  {
    invariant: 'OWN-1',
    says: /held under epoch 7, its last claim was told under 1/,
    plant: async () => {
      await on.query(`UPDATE runplane.runs SET claim_epoch = 7 WHERE id = $1`, [world.open]);
      await on.query(`UPDATE runplane.run_leases SET epoch = 7 WHERE run_id = $1`, [world.open]);
    },
  },
  {
    invariant: 'OWN-1',
    says: /held by nobody until never/,
    plant: async () => {
      await on.query('ALTER TABLE runplane.dispatch_intents DROP CONSTRAINT dispatch_intents_holder_matches_state');
      await on.query(`UPDATE runplane.dispatch_intents SET state = 'dispatching' WHERE run_id = $1`, [world.pending]);
    },
  },
  {
    invariant: 'OWN-1',
    says: /storage of session s-open is being deleted by gc/,
    plant: query(
      `UPDATE runplane.sessions SET storage_lease_owner = 'gc', storage_lease_expires_at = now() WHERE session_id IN ('s-open', 's-done')`,
    ),
  },
  {
    invariant: 'TURN-1',
    says: /has 2 open turns/,
    plant: async () => {
      await on.query('DROP INDEX runplane.commands_open_turn_per_session');
      await plantCommand(world.pending, { type: 'turn', key: 'another' });
    },
  },
  {
    invariant: 'TURN-1',
    says: /held by nobody/,
    plant: query(
      `UPDATE runplane.sessions SET execution_state = 'idle', active_run_id = NULL, active_command_id = NULL WHERE session_id = 's-pending'`,
    ),
  },
  {
    invariant: 'END-1',
    says: /finished_at null/,
    plant: async () => {
      await on.query('ALTER TABLE runplane.runs DISABLE TRIGGER runs_rules');
      await on.query(`UPDATE runplane.runs SET finished_at = NULL WHERE id = $1`, [world.done]);
    },
  },
  {
    invariant: 'END-1',
    says: /open intent/,
    plant: () => on.query(`UPDATE runplane.dispatch_intents SET state = 'pending', finished_at = NULL WHERE run_id = $1`, [world.done]),
  },
  {
    invariant: 'END-1',
    says: /its command .* has ended/,
    plant: () => on.query(`UPDATE runplane.dispatch_intents SET state = 'pending', finished_at = NULL WHERE run_id = $1`, [world.half]),
  },
  {
    invariant: 'END-1',
    says: /ended 2 times/,
    plant: () =>
      plantEvent(
        world.half,
        'backend_status',
        { phase: 'command-terminal', commandId: world.halfCommand, state: 'completed' },
        { commandId: world.halfCommand },
      ),
  },
  {
    invariant: 'END-1',
    says: /approval waits is open and its command .* has ended/,
    plant: () => on.query(`UPDATE runplane.approvals SET command_id = $1 WHERE approval_id = 'waits'`, [world.doneCommand]),
  },
  {
    invariant: 'END-1',
    says: /steer cmd-planted is open/,
    plant: () => plantCommand(world.half, { type: 'steer', key: 'steer', target: world.halfCommand }),
  },
  {
    invariant: 'OWN-1',
    says: /is held under epoch 0/,
    plant: query(
      `INSERT INTO runplane.reservations (kind, key, slot, tenant_id, owner, epoch, expires_at) VALUES ('runner-create', '["acme","k"]', 1, 'acme', 'o', 0, now())`,
    ),
  },
  {
    invariant: 'OWN-1',
    says: /o holds 2 places of/,
    plant: query(
      `INSERT INTO runplane.reservations (kind, key, slot, tenant_id, owner, epoch, expires_at)
         SELECT 'runner-create', '["acme","k"]', n, 'acme', 'o', 1, now() + interval '1 minute' FROM generate_series(1, 2) n`,
    ),
  },
  {
    invariant: 'TEN-1',
    says: /place 1 of .* belongs to tenant acme/,
    plant: query(`INSERT INTO runplane.reservations (kind, key, slot, tenant_id) VALUES ('runner-create', '["other","k"]', 1, 'acme')`),
  },
  {
    invariant: 'FEED-1',
    says: /stands at \(/,
    plant: () => on.query(`UPDATE runplane.outbox_events SET tx = tx + 1000000 WHERE stream_id = $1 AND sequence = 2`, [world.open]),
  },
  {
    invariant: 'FEED-1',
    says: /remembers feed number 0/,
    plant: () => on.query(`UPDATE runplane.runs SET last_tx = 0 WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'FEED-1',
    says: /the next run/,
    plant: async () => {
      await on.query(`UPDATE runplane.runs SET created_at = created_at + interval '1 s' WHERE id = $1`, [world.second]);
      await on.query(`UPDATE runplane.outbox_events SET tx = 1 WHERE stream_id = $1`, [world.second]);
    },
  },
  {
    invariant: 'IDEM-1',
    says: /of session s-two has 2 commands/,
    plant: async () => {
      await on.query('DROP INDEX runplane.commands_session_idempotency_key');
      await on.query(`UPDATE runplane.commands SET idempotency_key = 'same' WHERE session_id = 's-two'`);
    },
  },
  {
    invariant: 'IDEM-1',
    says: /of run .* has 2 commands/,
    plant: async () => {
      await on.query('DROP INDEX runplane.commands_run_idempotency_key');
      await on.query(`UPDATE runplane.commands SET idempotency_key = 'same' WHERE run_id = $1 AND type = 'note'`, [world.open]);
    },
  },
  {
    invariant: 'TEN-1',
    says: /stands in session x/,
    plant: () => on.query(`UPDATE runplane.commands SET session_id = 'x' WHERE id = $1`, [world.doneCommand]),
  },
  {
    invariant: 'TEN-1',
    says: /is for cmd_.*, which is no turn of its run/,
    plant: () => on.query(`UPDATE runplane.commands SET target_command_id = $1 WHERE type = 'steer'`, [world.openCommand]),
  },
  {
    invariant: 'TEN-1',
    says: /writes to partition/,
    also: ['LOG-2'],
    plant: () => on.query(`UPDATE runplane.runs SET partition_key = 'x' WHERE id = $1`, [world.open]),
  },
  {
    invariant: 'TEN-1',
    says: /not its own/,
    plant: () => changeEvent(`e.run_id = '${world.open}' AND e.type = 'assistant_message'`, `command_id = '${world.doneCommand}'`),
  },
  {
    invariant: 'VIEW-1',
    says: /shows cancelled/,
    plant: query(`UPDATE runplane.sessions SET terminal_status = 'cancelled' WHERE session_id = 's-done'`),
  },
  {
    invariant: 'VIEW-1',
    says: /shows run .* of session s-open/,
    plant: () => on.query(`UPDATE runplane.sessions SET last_run_id = $1 WHERE session_id = 's-done'`, [world.open]),
  },
  {
    invariant: 'VIEW-1',
    says: /counts 9 runs claimed/,
    plant: () => on.query(`INSERT INTO runplane.run_status_counts (tenant_id, status, n) VALUES ($1, 'claimed', 7)`, [tenantId]),
  },
];

// The one branch that looks at five kinds of things under an ended run.
export const UNDER_AN_ENDED_RUN: readonly Plant[] = [
  {
    invariant: 'END-1',
    says: /has ended with open command/,
    also: ['LOG-2', 'TURN-1'],
    plant: () => on.query(`UPDATE runplane.commands SET state = 'pending', finished_at = NULL WHERE id = $1`, [world.doneCommand]),
  },
  {
    invariant: 'END-1',
    says: /has ended with open lease/,
    also: ['OWN-1'],
    plant: () =>
      on.query(
        `INSERT INTO runplane.run_leases (tenant_id, run_id, runner_id, epoch, expires_at, heartbeat_at) VALUES ($1, $2, 'r', 1, now(), now())`,
        [tenantId, world.done],
      ),
  },
  {
    invariant: 'END-1',
    says: /has ended with open tool call/,
    plant: () => changeEvent(`e.run_id = '${world.done}' AND e.type = 'tool_result'`, `type = 'reasoning'`),
  },
  {
    invariant: 'END-1',
    says: /has ended with open approval waits/,
    also: ['VIEW-1'],
    plant: () => on.query(`UPDATE runplane.approvals SET run_id = $1 WHERE approval_id = 'waits'`, [world.done]),
  },
  {
    invariant: 'END-1',
    says: /has ended with open cancel request/,
    also: ['LOG-2'],
    plant: () => on.query(`UPDATE runplane.cancel_requests SET stage = 'persisted' WHERE run_id = $1`, [world.done]),
  },
];

/** Retention weakens no check: what a run told before its events were removed still counts, and nothing else is let through. */
export const OF_A_PRUNED_RUN: readonly Plant[] = [
  {
    invariant: 'LOG-1',
    says: /its pruned log has 1 from/,
    plant: () => on.query(`UPDATE runplane.runs SET last_event_seq = last_event_seq + 1 WHERE id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-1',
    says: /counts \d+ events, its log has 1/,
    also: ['LOG-2'],
    plant: () => on.query(`UPDATE runplane.runs SET events_pruned_at = NULL WHERE id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-2',
    says: /is failed and its log ends otherwise/,
    plant: () => on.query(`UPDATE runplane.runs SET status = 'failed', failure_kind = 'x' WHERE id = $1`, [world.pruned]),
  },
  {
    invariant: 'LOG-2',
    says: /its run tells otherwise/,
    plant: () => on.query(`UPDATE runplane.commands SET state = 'failed', failure_kind = 'x' WHERE id = $1`, [world.prunedCommand]),
  },
  {
    invariant: 'LOG-3',
    says: /assistant_message  behind its terminal_status/,
    plant: () => plantEvent(world.pruned, 'assistant_message', {}),
  },
];
