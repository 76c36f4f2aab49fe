// Queue tasks: limits, epochs and leases, keys, ends, changes.
const QUEUE = 'libs/queue/src';
const claims = (name) => ({ file: `${QUEUE}/claims.int.spec.ts`, name });
const limits = (name) => ({ file: `${QUEUE}/lane-limits.int.spec.ts`, name });
const taskRuns = (name) => ({ file: `${QUEUE}/task-runs.int.spec.ts`, name });
const shared = (name) => ({ file: `${QUEUE}/coalesced-tasks.int.spec.ts`, name });
const pruning = (name) => ({ file: `${QUEUE}/prune-queue-tasks.int.spec.ts`, name });
const reads = (name) => ({ file: `${QUEUE}/reads.int.spec.ts`, name });

export const queueGuards = [
  {
    name: 'a claim counts rivals that have not committed',
    file: `${QUEUE}/claim.sql.ts`,
    text: 'ORDER BY l.tenant_id COLLATE "C", l.lane COLLATE "C" FOR NO KEY UPDATE OF l',
    replacement: 'ORDER BY l.tenant_id COLLATE "C", l.lane COLLATE "C"',
    test: limits('a claimer waits for a rival that has not committed, and counts it'),
  },
  {
    name: 'a place in a lane is given back by a cancel',
    file: `${QUEUE}/cancel-queue-task.ts`,
    text: 'await writePlaces(tx, task, -1);',
    replacement: '',
    test: limits('every way in which a task stops running gives its place back'),
  },
  {
    name: 'a start as a run keeps to the limits',
    file: `${QUEUE}/run-queue-task.ts`,
    text: 'assertRoom(task, limits);',
    replacement: '',
    test: limits('a start as a run keeps to the limit too'),
  },
  {
    name: 'tenants take turns',
    file: `${QUEUE}/claim.sql.ts`,
    text: 'all ? handOn(claim.queue) : emptySql',
    replacement: 'emptySql',
    test: claims('with 10,000 ready tasks of one tenant and one of another, the other’s is among the next four'),
  },
  {
    name: 'a claim is ended by its epoch alone',
    file: `${QUEUE}/settle.sql.ts`,
    text: 'AND t.owner IS NOT NULL AND t.epoch = t.epoch_given AND ${isCurrent}',
    replacement: 'AND t.owner IS NOT NULL AND ${isCurrent}',
    test: claims('in batches: a verdict for each, in the order of the call'),
  },
  {
    name: 'a claim whose lease has ended is not ended by its holder',
    file: `${QUEUE}/settle.sql.ts`,
    text: '{ wait, isCurrent: sql`t.expires_at > t.now` }',
    replacement: '{ wait, isCurrent: sql`true` }',
    test: claims('with its lease: nobody prolongs or ends it any more'),
  },
  {
    name: 'of a shared statement a task that somebody holds is told alone',
    file: `${QUEUE}/settle-queue-tasks.ts`,
    text: "if (row.isBusy) return { kind: 'busy' };",
    replacement: '',
    test: shared('one that somebody holds delays nobody else'),
  },
  {
    name: 'a lane that cannot be had fails the ends of its own tasks alone',
    file: `${QUEUE}/settle-queue-tasks.ts`,
    text: 'passOverUntil = performance.now() + PASS_OVER_LANES_MS;',
    replacement: 'throw error;',
    test: shared('a lane that somebody holds for long is to the harm of nobody'),
  },
  {
    name: 'a claim that waits for a lane does not keep the others waiting',
    file: `${QUEUE}/claim-coalescer.ts`,
    text: 'slow.count < slow.max ? atMost(SLOW_MS, all) : all',
    replacement: 'all',
    test: shared('a claim that waits for a lane which somebody holds keeps no other waiting'),
  },
  {
    name: 'of a claim in two parts the first is told when the second fails',
    file: `${QUEUE}/claim-queue-tasks.ts`,
    text: 'if (first.length === 0) throw error;',
    replacement: 'throw error;',
    test: shared('a claim that has got something tells it'),
  },
  {
    name: 'claims share a statement within their tenant',
    file: `${QUEUE}/claim-coalescer.ts`,
    text: 'JSON.stringify([scoped.tenantId, queue, lane])',
    replacement: 'JSON.stringify([queue, lane])',
    test: shared('claims share a statement when tenant, queue and lane are the same'),
  },
  {
    name: 'a task of no tenant is refused, also among others',
    file: `${QUEUE}/create-queue-tasks.ts`,
    text: 'tenants.has(tenantId) ?',
    replacement: 'tenants.size > 0 ?',
    test: shared('one of no tenant is refused by itself'),
  },
  {
    name: 'the last try fails its task',
    file: `${QUEUE}/settle.sql.ts`,
    text: "t.outcome = 'released' AND NOT (t.failure_kind IS NOT NULL AND t.attempts >= t.max_attempts) AS comes_again",
    replacement: "t.outcome = 'released' AS comes_again",
    test: claims('with its lease: nobody prolongs or ends it any more'),
  },
  {
    name: 'a claim whose lease has ended is not prolonged',
    file: `${QUEUE}/settle.sql.ts`,
    text: 'AND j.epoch = g.epoch AND j.expires_at > j.now',
    replacement: 'AND j.epoch = g.epoch',
    test: claims('with its lease: nobody prolongs or ends it any more, and a sweep takes it back until its tries are used up'),
  },
  {
    name: 'a task that is given back fences its holder',
    file: `${QUEUE}/settle.sql.ts`,
    text: 'epoch = t.epoch + h.comes_again::int,',
    replacement: '',
    test: claims('given back without a failure: claimable at once, the try does not count, the old epoch is fenced'),
  },
  {
    name: 'a key with other work is a conflict',
    file: `${QUEUE}/create-queue-tasks.ts`,
    text: 'if (found.payloadHash !== task.payloadHash) throw otherWork(found.id);',
    replacement: '',
    test: claims('a key gives the same task again, whatever does not define its work, and refuses other work'),
  },
  {
    name: 'a task that is refused leaves no lane behind',
    file: `${QUEUE}/task.sql.ts`,
    text: 'g.lane FROM given g JOIN made ON made.id = g.id',
    replacement: 'g.lane FROM given g',
    test: claims('a key gives the same task again'),
  },
  {
    name: 'a report names the version that was read',
    file: `${QUEUE}/update-queue-attempt.ts`,
    text: 'if (version !== expectedVersion)',
    replacement: 'if (false)',
    test: taskRuns('begins, moves and ends an attempt; of two that saw the same version one does'),
  },
  {
    name: 'a reservation ends with its time',
    file: `${QUEUE}/queue-retries.ts`,
    text: 'if (isReservationOver(attempt)) throw',
    replacement: 'if (false) throw',
    test: taskRuns('that was not activated in its time gives way to another key, or is taken up again by its own'),
  },
  {
    name: 'a cancel reaches the run',
    file: `${QUEUE}/cancel-queue-task.ts`,
    text: 'active?.runId == null ? undefined : await stopRun',
    replacement: 'active?.runId !== null ? undefined : await stopRun',
    test: taskRuns('of a task whose run waits ends both at once'),
  },
  {
    name: 'a task that is not what was archived stays',
    file: `${QUEUE}/prune-task.sql.ts`,
    text: 'WHERE ${STAMP} = g.stamp AND ${mayGo(days)}',
    replacement: 'WHERE t.ended_at IS NOT NULL AND g.stamp IS NOT NULL',
    test: pruning('a task that changes after its copy was made stays, and one that somebody holds is passed over'),
  },
  {
    name: 'without an archive no task goes whose tenant wants copies',
    file: `${QUEUE}/prune-queue-tasks.ts`,
    text: 'if (policy.archive && archive === undefined) return { archiveMissing: true };',
    replacement: '',
    test: pruning('a copy is written and read back first; without an archive, or with a copy that is not what was written, the task stays'),
  },
  {
    name: 'a task that somebody holds is not waited for by retention',
    file: `${QUEUE}/prune-task.sql.ts`,
    text: 'FOR UPDATE OF t SKIP LOCKED',
    replacement: '',
    test: pruning('a task that changes after its copy was made stays, and one that somebody holds is passed over'),
  },
  {
    name: 'changes of tasks stay below the horizon',
    file: `${QUEUE}/task-list.sql.ts`,
    text: 'AND t.changed_tx < (SELECT horizon FROM h) ${range}',
    replacement: '${range}',
    test: reads('a reader of changes sees a late commit behind what it has read, and each task as it is now'),
  },
];
