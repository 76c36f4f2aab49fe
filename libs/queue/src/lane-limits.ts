import {
  defineCursor,
  LIST_ROWS_DEFAULT,
  LIST_ROWS_MAX,
  parseInput,
  SetLaneLimit,
  type QueueLane,
  type QueueLaneList,
} from '@runplane/contracts';
import { executorOf, type At, type Tx } from '@runplane/database';
import { z } from 'zod';
import { listLanesPage, lockOrMakeLane, toLane, WHOLE_QUEUE, writeLaneLimit } from './lane.sql';
import { announceQueue } from './streams';

/**
 * Sets how many tasks of a lane, or of a queue as a whole, run at a time. Claims and starts keep to both limits.
 *
 * A limit holds for what is claimed from then on. What runs already counts, and is not stopped: under a limit that is lower than that nothing is claimed
 * until enough have ended.
 *
 * Input     lane: null for the queue as a whole; maxRunning: null for no limit.
 * Locks     the lane's row → its running tasks by id.   Writes: queue_lanes, queue_tasks (which counts they are part of).
 * Errors    InvalidRequest.   Repeat: safe.
 */
export async function setLaneLimit(tx: Tx, { tenantId, ...input }: { tenantId: string } & SetLaneLimit): Promise<QueueLane> {
  const { queue, lane, maxRunning } = parseInput(SetLaneLimit, input);
  const row = { tenantId, queue, lane: lane ?? WHOLE_QUEUE };
  await lockOrMakeLane(tx, row);
  await writeLaneLimit(tx, row, maxRunning);
  announceQueue(tx, tenantId, queue);
  const [written] = await listLanesPage(tx, { tenantId, queue, only: row.lane, after: undefined, limit: 1 });
  if (written === undefined) throw new Error(`lane ${row.lane} of queue ${queue} is gone`);
  return toLane(written);
}

const text = z
  .string()
  .max(200)
  .regex(/^[^\0]*$/);
const laneCursor = defineCursor('queue-lanes', z.strictObject({ queue: text, lane: text }));

/** A tenant's lanes with their limits, by queue and lane. Errors: InvalidCursor. */
export async function listQueueLanes(
  at: At,
  {
    tenantId,
    queue,
    cursor,
    limit = LIST_ROWS_DEFAULT,
  }: { tenantId: string; queue?: string | undefined; cursor?: string | undefined; limit?: number | undefined },
): Promise<QueueLaneList> {
  const rowsMax = Math.min(Math.max(limit, 1), LIST_ROWS_MAX);
  const after = cursor === undefined ? undefined : laneCursor.decode(cursor);
  const found = await listLanesPage(executorOf(at), { tenantId, queue, only: undefined, after, limit: rowsMax + 1 });
  const shown = found.slice(0, rowsMax);
  const last = shown.at(-1);
  return {
    lanes: shown.map(toLane),
    cursor: found.length <= rowsMax || last === undefined ? null : laneCursor.encode({ queue: last.queue, lane: last.lane }),
  };
}
