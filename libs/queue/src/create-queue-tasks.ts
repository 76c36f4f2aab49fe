import {
  contentHash,
  CreateQueueTask,
  CreateQueueTasks,
  cutText,
  IdempotencyConflict,
  identifier,
  InvalidRequest,
  newId,
  normalizeJson,
  parseInput,
  PayloadTooLarge,
  QUEUE_ATTEMPTS_MAX_DEFAULT,
  QUEUE_BATCH_BYTES_MAX,
  QUEUE_TASK_PAYLOAD_BYTES_MAX,
  QUEUE_TITLE_CODE_POINTS_MAX,
  REFERENCE_BYTES_MAX,
  repairText,
  TenantNotFound,
  type CreatedQueueTask,
  type CreatedQueueTasks,
  type JsonObject,
  type JsonValue,
} from '@runplane/contracts';
import {
  coalescedBounds,
  coalescerOf,
  executorOf,
  inTransaction,
  isTx,
  newKeyOf,
  takingLock,
  type At,
  type Coalescer,
  type Db,
  type Tx,
  type Verdict,
} from '@runplane/database';
import { ALWAYS_TOGETHER } from './always-together';
import { findTasksByKey, insertTasks, type NewTask, type TaskWork } from './new-task.sql';
import { requireTask } from './require';
import { announceQueue } from './streams';
import { toTask } from './task.sql';

/**
 * Makes a queue task, `pending`.
 *
 * Input     task: see CreateQueueTask; payload up to 1 MiB; idempotencyKey: per tenant and project.
 * Returns   the task; `replayed: true` when the key was used before with the same work: the task as it is now. Title, priority, metadata, runAt and
 *           maxAttempts may differ in a repeat and stay as they were.
 * Locks     new key (task key).   Writes: queue_tasks, and queue_lanes where the lane is new. One statement, shared
 *           by tasks without a key that arrive together (docs/adr/0019).
 * Errors    InvalidRequest, InvalidJson, PayloadTooLarge, TenantNotFound, IdempotencyConflict (the key, with other work).
 * Repeat    safe with the key.
 * Keeps     IDEM-1, TEN-1.   Source: the original's createQueueTask, which answered twins with a raw unique violation.
 */
export async function createQueueTask(
  at: At,
  { tenantId, task, idempotencyKey }: { tenantId: string; task: CreateQueueTask; idempotencyKey?: string | undefined },
): Promise<CreatedQueueTask> {
  const wanted = newTask(tenantId, parseInput(CreateQueueTask, task), idempotencyKey);
  const made = await insertOne(at, wanted);
  return { task: toTask(await requireTask(executorOf(at), { tenantId, taskId: made.taskId })), replayed: made.replayed };
}

/**
 * Makes up to 100 tasks: all of them, or none.
 *
 * Returns   their ids in the order of the call, and which of them were there by their keys.
 * Errors    as createQueueTask; InvalidRequest when a key stands twice in one call; PayloadTooLarge for more than 4 MiB of payloads together.
 * Locks, repeat, keeps: as createQueueTask.
 */
export async function createQueueTasks(
  at: At,
  { tenantId, ...input }: { tenantId: string } & CreateQueueTasks,
): Promise<CreatedQueueTasks> {
  const { tasks } = parseInput(CreateQueueTasks, input);
  const wanted = tasks.map((task) => newTask(tenantId, task, task.idempotencyKey));
  if (wanted.reduce((bytes, { payload }) => bytes + Buffer.byteLength(payload), 0) > QUEUE_BATCH_BYTES_MAX)
    throw new PayloadTooLarge(`The payloads of one call are larger than ${QUEUE_BATCH_BYTES_MAX} bytes together.`, {
      bytesMax: QUEUE_BATCH_BYTES_MAX,
    });
  const keys = keysOf(wanted).map(({ projectId, idempotencyKey }) => JSON.stringify([projectId, idempotencyKey]));
  if (new Set(keys).size < keys.length) {
    const message = 'an idempotency key stands twice in one call';
    throw new InvalidRequest(`The input is not valid: tasks: ${message}.`, { issues: [{ path: 'tasks', message }] });
  }
  const [only] = wanted;
  if (wanted.length === 1 && only !== undefined) return { tasks: [await insertOne(at, only)] };
  // Without keys one statement is all there is; with keys, a conflict of one must take back the others.
  const made =
    isTx(at) || keys.length === 0
      ? await insertAll(at, tenantId, wanted)
      : await inTransaction(at, (tx) => insertAll(tx, tenantId, wanted));
  return { tasks: made };
}

type MadeTask = CreatedQueueTasks['tasks'][number];

/** A task without a key, which waits for no twin, shares its statement with others that arrive together. */
function insertOne(at: At, task: NewTask): Promise<MadeTask> {
  if (isTx(at) || !at.options.coalesce || task.idempotencyKey !== null) return insertAll(at, task.tenantId, [task]).then(theOne);
  return creationCoalescer(at).run(task);
}

const creationCoalescer = (db: Db): Coalescer<NewTask, MadeTask> =>
  coalescerOf(db, 'queue-create', () => ({
    describe: (task) => ({ lane: task.id, single: undefined, last: false, rows: 1, bytes: bytesOf(task) }),
    together: (tasks) => insertTogether(db, tasks),
    alone: (task) => insertAll(db, task.tenantId, [task]).then(theOne),
    isRepeatable: () => false,
    ...coalescedBounds(db),
    sideBySideMax: ALWAYS_TOGETHER,
  }));

/** All of what a client may make large. */
const bytesOf = ({ payload, references, metadata, workspaceRef, sessionRef, executionPolicy, resourceBundleRef }: NewTask): number =>
  [workspaceRef, sessionRef, executionPolicy, resourceBundleRef].reduce(
    (bytes, ref) => bytes + (ref === null ? 0 : JSON.stringify(ref).length),
    payload.length + references.length + metadata.length,
  );

async function insertTogether(db: Db, tasks: readonly NewTask[]): Promise<Verdict<MadeTask>[]> {
  const { tenants, made } = await insertTasks(db.sql, tasks);
  announceReady(db, tasks, made);
  return tasks.map(({ id, tenantId }) =>
    tenants.has(tenantId) ? { kind: 'answer', answer: newlyMade(id) } : { kind: 'refused', refusal: noTenant(tenantId) },
  );
}

const newlyMade = (taskId: string): MadeTask => ({ taskId, state: 'pending', version: 1, replayed: false });
const noTenant = (tenantId: string): TenantNotFound => new TenantNotFound(`There is no tenant ${tenantId}.`, { tenantId });

function theOne([made]: readonly MadeTask[]): MadeTask {
  if (made === undefined) throw new Error('a task was neither made nor found');
  return made;
}

type ParsedTask = ReturnType<typeof CreateQueueTask.parse>;

/** A task as it is stored. Errors: InvalidJson, PayloadTooLarge, InvalidRequest. */
function newTask(tenantId: string, task: ParsedTask, key: string | null | undefined): NewTask {
  const payload = normalizeJson(task.payload, { bytesMax: QUEUE_TASK_PAYLOAD_BYTES_MAX });
  const references = normalizeJson(task.references, SMALL);
  const workspaceRef = smallOf(task.workspaceRef);
  const sessionRef = smallOf(task.sessionRef as JsonObject | null | undefined);
  const executionPolicy = smallOf(task.executionPolicy);
  const resourceBundleRef = smallOf(task.resourceBundleRef);
  const { projectId, queue, lane, backendProfile = null, providerId = null } = task;
  const { hash, version } = workHash({
    tenantId,
    projectId,
    queue,
    lane,
    backendProfile,
    providerId,
    workspaceRef,
    sessionRef,
    executionPolicy,
    resourceBundleRef,
    payload: payload.value,
    references: references.value,
  });
  return {
    tenantId,
    id: newId('qt'),
    projectId,
    queue,
    lane,
    title: cutText(repairText(task.title), QUEUE_TITLE_CODE_POINTS_MAX),
    priority: task.priority,
    backendProfile,
    providerId,
    workspaceRef,
    sessionRef,
    sessionId: task.sessionRef?.sessionId ?? null,
    executionPolicy,
    resourceBundleRef,
    payload: payload.text,
    payloadHash: hash,
    hashVersion: version,
    references: references.text,
    metadata: normalizeJson(task.metadata, SMALL).text,
    idempotencyKey: key == null ? null : parseInput(identifier, key),
    runAt: task.runAt == null ? null : new Date(task.runAt).toISOString(),
    maxAttempts: task.maxAttempts ?? QUEUE_ATTEMPTS_MAX_DEFAULT,
  };
}

const SMALL = { bytesMax: REFERENCE_BYTES_MAX } as const;
const smallOf = <T extends JsonValue>(value: T | null | undefined): T | null => (value == null ? null : normalizeJson(value, SMALL).value);

/** What defines the work of a task: by it a repeat is told from a conflict, and a retry finds out that the stored task is still the one it was. */
export function workHash(work: TaskWork): ReturnType<typeof contentHash> {
  // In the order of their names, which spares the sorting.
  return contentHash({
    backendProfile: work.backendProfile,
    executionPolicy: work.executionPolicy,
    lane: work.lane,
    payload: work.payload,
    projectId: work.projectId,
    providerId: work.providerId,
    queue: work.queue,
    references: work.references,
    resourceBundleRef: work.resourceBundleRef,
    sessionRef: work.sessionRef,
    tenantId: work.tenantId,
    workspaceRef: work.workspaceRef,
  });
}

const keysOf = (tasks: readonly NewTask[]): (NewTask & { idempotencyKey: string })[] =>
  tasks.filter((task): task is NewTask & { idempotencyKey: string } => task.idempotencyKey !== null);

async function insertAll(at: At, tenantId: string, tasks: readonly NewTask[]): Promise<MadeTask[]> {
  const on = executorOf(at);
  const keyed = keysOf(tasks);
  if (isTx(at)) takingKeys(at, tenantId, keyed);
  const { tenants, made } = await insertTasks(on, tasks);
  if (!tenants.has(tenantId)) throw noTenant(tenantId);
  const there = keyed.filter(({ id }) => !made.has(id));
  const known = there.length === 0 ? [] : await findTasksByKey(on, tenantId, there);
  const answers = tasks.map((task) => {
    if (made.has(task.id)) return newlyMade(task.id);
    const found = known.find(({ projectId, idempotencyKey }) => projectId === task.projectId && idempotencyKey === task.idempotencyKey);
    if (found === undefined) throw new Error(`the task of key ${String(task.idempotencyKey)} is neither new nor there`);
    if (found.payloadHash !== task.payloadHash) throw otherWork(found.id);
    return { taskId: found.id, state: found.state, version: found.version, replayed: true };
  });
  announceReady(at, tasks, made);
  return answers;
}

/** A task whose time has not come by the clock of this process, but has by the database's, is found by the next poll. */
function announceReady(at: At, tasks: readonly NewTask[], made: ReadonlySet<string>): void {
  const ready = tasks.filter(({ id, runAt }) => made.has(id) && (runAt === null || Date.parse(runAt) <= Date.now()));
  for (const { tenantId, queue } of new Map(ready.map((task) => [`${task.tenantId}/${task.queue}`, task])).values())
    announceQueue(at, tenantId, queue);
}

function takingKeys(tx: Tx, tenantId: string, keyed: readonly { projectId: string; idempotencyKey: string }[]): void {
  const ids = keyed.map(({ projectId, idempotencyKey }) => newKeyOf.queueTask(tenantId, projectId, idempotencyKey));
  takingLock(tx, 'newKey', ...ids.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
}

const otherWork = (id: string): IdempotencyConflict =>
  new IdempotencyConflict(`The same key was used before for another queue task (${id}): use a new one, or repeat the same content.`, {
    resource: 'queue task',
    id,
  });
