import {
  contentHash,
  CreateRun,
  IdempotencyConflict,
  newId,
  normalizeJson,
  parseInput,
  partitionOf,
  REFERENCE_BYTES_MAX,
  requireIdentifier,
  RUN_ATTEMPTS_MAX_DEFAULT,
  type JsonObject,
  type JsonValue,
  type Run,
  type TenantSettings,
} from '@runplane/contracts';
import { newKeyOf, requireTenant, takingLock, type Tx } from '@runplane/database';
import {
  adoptBoundary,
  assertBoundary,
  assertStorageFree,
  ensureSession,
  resolveSessionRef,
  writeLastRun,
  type SessionRow,
} from '@runplane/sessions';
import type { z } from 'zod';
import { absentRun, requireLockedSession, requireRun } from './require';
import { appendServerEvents } from './run-event.sql';
import { searchTextOf, workspacePathOf } from './run-search';
import { findRunHash, insertRun, type NewRun } from './run.sql';
import { runCreatedEvent } from './server-events';

/**
 * Creates a run, and the session that it names if that is new. Event 1 of every run is `run-created`.
 *
 * Input     run: what to run, see CreateRun; runId: an identity reserved beforehand, which makes the call repeatable.
 * Returns   the run; `replayed: true` when it was there under the reserved identity with the same content.
 * Locks     new keys (session, reserved run id) → session.   Writes: sessions, runs, run_events, outbox.
 * Errors    InvalidRequest, InvalidJson, PayloadTooLarge, TenantNotFound, SessionBoundary, StorageEvicting, IdempotencyConflict (the id has other
 *           content), RunDeleted (retention has removed the run of this id).
 * Emits     run-created, once.
 * Repeat    safe with runId; without it every call makes a run.
 * Keeps     LOG-1, LOG-2, IDEM-1, TEN-1.   Source: the original's createRun.
 */
export async function createRun(
  tx: Tx,
  { tenantId, run: input, runId }: { tenantId: string; run: CreateRun; runId?: string | undefined },
): Promise<{ run: Run; replayed: boolean }> {
  const wanted = parseNewRun(input);
  const id = runId === undefined ? newId('run') : requireIdentifier(runId, 'the run id');
  const key = { tenantId, runId: id };
  if (runId !== undefined && (await isReplay(tx, key, inputHashOf(tenantId, wanted))))
    return { run: await requireRun(tx, key), replayed: true };

  const { settings } = await requireTenant(tx, tenantId);
  const session = await ensureSessionOfRun(tx, tenantId, wanted);
  const row = newRunRow({ tenantId, runId: id, wanted, session, settings });
  // A reserved id may be inserted by a twin too: before any row lock, as the session.
  if (runId !== undefined) takingLock(tx, 'newKey', newKeyOf.run(tenantId, id));
  if (!(await insertRun(tx, row))) {
    if (!(await isReplay(tx, key, row.inputHash))) throw new Error(`run ${id} is neither new nor there`);
    return { run: await requireRun(tx, key), replayed: true };
  }
  if (session !== undefined) {
    const locked = await requireLockedSession(tx, tenantId, session.sessionId); // its feed number orders its runs
    await adoptBoundary(tx, locked, wanted);
    assertStorageFree(locked);
  }
  await appendServerEvents(tx, key, [runCreatedEvent(row)]);
  if (session !== undefined) await writeLastRun(tx, { tenantId, sessionId: session.sessionId, runId: id });
  return { run: await requireRun(tx, key), replayed: false };
}

/** Where the creator names none. */
const PROVIDER_DEFAULT = 'default';

type ParsedRun = z.output<typeof CreateRun>;

/** Checks and normalizes what the caller asks for. */
export function parseNewRun(input: CreateRun): ParsedRun {
  const parsed = parseInput(CreateRun, input);
  const small = <T extends JsonValue>(value: T): T => normalizeJson(value, { bytesMax: REFERENCE_BYTES_MAX }).value;
  return {
    ...parsed,
    ...(parsed.workspaceRef === undefined ? {} : { workspaceRef: small(parsed.workspaceRef) }),
    ...(parsed.executionPolicy === undefined ? {} : { executionPolicy: small(parsed.executionPolicy) }),
    ...(parsed.resourceBundleRef == null ? {} : { resourceBundleRef: small(parsed.resourceBundleRef) }),
    ...(parsed.traceSink == null ? {} : { traceSink: small(parsed.traceSink) }),
    ...(parsed.sessionRef?.metadata === undefined
      ? {}
      : { sessionRef: { ...parsed.sessionRef, metadata: small(parsed.sessionRef.metadata) } }),
  };
}

/** The session that a new run names, made if it is new, and of the same project and backend profile, which never change. */
async function ensureSessionOfRun(tx: Tx, tenantId: string, wanted: ParsedRun): Promise<SessionRow | undefined> {
  const ref = wanted.sessionRef;
  if (ref == null) return undefined;
  const session = await ensureSession(tx, tenantId, ref, wanted);
  assertBoundary(session, wanted);
  return session;
}

/** What a run is compared by when its creation is repeated: what the caller said, not what the server resolved (a thread id) or filled in. */
export function inputHashOf(tenantId: string, wanted: ParsedRun): string {
  const { projectId, workspaceRef, providerId, backendProfile, executionPolicy, sessionRef, resourceBundleRef, traceSink } = wanted;
  const content: JsonObject = {
    tenantId,
    projectId,
    workspaceRef: workspaceRef ?? null,
    providerId: providerId ?? null,
    backendProfile,
    executionPolicy: executionPolicy ?? null,
    sessionId: sessionRef?.sessionId ?? null,
    resourceBundleRef: resourceBundleRef ?? null,
    traceSink: traceSink ?? null,
  };
  return contentHash(content).hash;
}

export function newRunRow({
  tenantId,
  runId,
  wanted,
  session,
  settings,
}: {
  tenantId: string;
  runId: string;
  wanted: ParsedRun;
  session: SessionRow | undefined;
  settings: TenantSettings;
}): NewRun {
  const sessionId = session?.sessionId ?? null;
  const run = {
    tenantId,
    runId,
    ...partitionOf(tenantId, sessionId ?? runId),
    projectId: wanted.projectId,
    sessionId,
    sessionRef: session === undefined || wanted.sessionRef == null ? null : resolveSessionRef(session, wanted.sessionRef),
    workspaceRef: wanted.workspaceRef ?? {},
    resourceBundleRef: wanted.resourceBundleRef ?? null,
    providerId: wanted.providerId ?? PROVIDER_DEFAULT,
    backendProfile: wanted.backendProfile,
    executionPolicy: wanted.executionPolicy ?? {},
    traceSink: wanted.traceSink ?? null,
    inputHash: inputHashOf(tenantId, wanted),
    hashVersion: contentHash(null).version,
    onRunnerLost: wanted.onRunnerLost ?? settings.onRunnerLost,
    maxAttempts: wanted.maxAttempts ?? settings.maxAttempts ?? RUN_ATTEMPTS_MAX_DEFAULT,
    maxDurationMs: wanted.maxDurationMs ?? settings.maxDurationMs ?? null,
  };
  return { ...run, workspacePath: workspacePathOf(run.workspaceRef), searchText: searchTextOf(run) };
}

/** True when the run is there with this content. Errors: IdempotencyConflict when it has other content; RunDeleted. */
async function isReplay(tx: Tx, key: { tenantId: string; runId: string }, inputHash: string): Promise<boolean> {
  const stored = await findRunHash(tx, key);
  if (stored === undefined) return false;
  if (stored.inputHash === null) throw await absentRun(tx, key);
  assertSameContent('run', key.runId, stored.inputHash, inputHash);
  return true;
}

/** Errors: IdempotencyConflict when a key or reserved id comes back with other content. */
export function assertSameContent(resource: string, id: string, stored: string, wanted: string): void {
  if (stored === wanted) return;
  throw new IdempotencyConflict(
    `The same key or id was used before for another ${resource} (${id}): use a new one, or repeat the same content.`,
    { resource, id },
  );
}
