import { on, world, type Plant } from '../world';

// Queue tasks, their attempts and lanes.

export const OF_QUEUE_TASKS: readonly Plant[] = [
  {
    invariant: 'OWN-1',
    says: /is running and names qa_\S+, active are none/,
    also: ['LOG-1'],
    plant: () => on.query(`UPDATE runplane.queue_tasks SET attempt_since = NULL WHERE id = $1`, [world.heldTask]),
  },
  {
    invariant: 'OWN-1',
    says: /is held by w2 under epoch 1, its attempt says w and 1/,
    plant: () =>
      on.query(
        `WITH t AS (UPDATE runplane.queue_tasks SET owner = 'w2', attempt_since = NULL WHERE id = $1 RETURNING *)
         INSERT INTO runplane.queue_attempts (tenant_id, task_id, attempt_id, retry_index, state, payload_hash, owner, epoch)
         SELECT tenant_id, id, attempt_id, last_retry_index, 'running', payload_hash, 'w', epoch FROM t`,
        [world.heldTask],
      ),
  },
  {
    invariant: 'OWN-1',
    says: /counts 2 tasks that run, it has 1/,
    plant: () => on.query(`UPDATE runplane.queue_lanes SET running = 2 WHERE queue = 'held' AND lane = 'default'`),
  },
  {
    invariant: 'END-1',
    says: /is completed and is counted among those that run/,
    also: ['OWN-1'],
    plant: () => on.query(`UPDATE runplane.queue_tasks SET places = 1 WHERE id = $1`, [world.doneTask]),
  },
  {
    invariant: 'END-1',
    says: /is blocked, its attempt qa_\S+ ended failed/,
    plant: () => on.query(`UPDATE runplane.queue_tasks SET state = 'blocked' WHERE id = $1`, [world.failedTask]),
  },
  {
    invariant: 'LOG-1',
    says: /counts attempts up to 0, it has 0 up to -1 under 0 ids/,
    also: ['END-1'],
    plant: () => on.query(`UPDATE runplane.queue_tasks SET attempt_since = NULL, attempt_owner = NULL WHERE id = $1`, [world.doneTask]),
  },
  {
    invariant: 'LOG-1',
    says: /is completed, held by nobody, its attempt stands in it and was made by its holder/,
    plant: () => on.query(`UPDATE runplane.queue_tasks SET attempt_owner = NULL WHERE id = $1`, [world.doneTask]),
  },
  {
    invariant: 'TEN-1',
    says: /is at no queue task of its tenant/,
    plant: () => on.query(`DELETE FROM runplane.queue_tasks WHERE id = $1`, [world.failedTask]),
  },
  {
    invariant: 'VIEW-1',
    says: /reader ann has read version 99 of queue task/,
    plant: () => on.query(`UPDATE runplane.queue_task_read_cursors SET task_version = 99`),
  },
  {
    invariant: 'FEED-1',
    says: /no place in the list of changes/,
    plant: () => on.query(`UPDATE runplane.queue_tasks SET changed_tx = 0 WHERE id = $1`, [world.doneTask]),
  },
];
