import { COPY_ABANDONED_MS, ERASURE_DELAY_MS, ERASURE_SESSIONS_DEFAULT, isDomainError, RETENTION_CHUNK_EVENTS } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { eraseSessionRows, listErasable, scrubSession, type ErasurePlace, type SessionKey } from '@runplane/sessions';
import { removeRun, type Removal } from './remove-run';
import { listEndedRunsOfSession } from './session-runs.sql';

export interface EraseDeleted {
  /** How long a session must have been deleted; one hour unless told otherwise. */
  readonly delayMs?: number | undefined;
  /** Sessions of one pass. */
  readonly limit?: number | undefined;
  readonly chunkRows?: number | undefined;
  /** Where a pass goes on that has left some behind: the `next` of the last one. */
  readonly after?: ErasurePlace | null | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Called while work goes on. */
  readonly onAlive?: (() => void) | undefined;
}

export interface ErasureReport {
  /** Sessions whose rows are gone. */
  readonly changed: number;
  readonly failed: number;
  /** Their storage has not been collected, or a run of theirs must wait: a later pass looks again. */
  readonly kept: number;
  readonly next: ErasurePlace | null;
}

const RUNS_OF_A_PASS = 100;

/**
 * One bounded pass over deleted sessions, the longest deleted first, and over copies whose maker has died: empties their texts, removes their runs
 * (without a copy), then their rows in parts, then themselves.
 *
 * Returns   what was done; `next`: where to go on, null when all have been looked at.
 * Locks     per part: session → session head; per run: as removeRun.   Writes: every table that has rows of a session.
 * Repeat    safe, also by several processes at once.   Source: docs/adr/0022-deleted-sessions.md.
 */
export async function eraseDeletedOnce(db: Db, pass: EraseDeleted = {}): Promise<ErasureReport> {
  const { delayMs = ERASURE_DELAY_MS, limit = ERASURE_SESSIONS_DEFAULT, after = null, signal } = pass;
  const due = await listErasable(db.sql, { delayMs, copyingMs: COPY_ABANDONED_MS, after, limit });
  const report = { changed: 0, failed: 0, kept: 0 };
  for (const { deletedAt: _, incarnation, copying: __, ...key } of due) {
    if (signal?.aborted === true) break;
    try {
      const result = await eraseOne(db, key, incarnation, pass);
      if (result === 'erased') report.changed += 1;
      else if (result === 'kept') report.kept += 1;
    } catch (error) {
      if (isDomainError(error) && error.retryable) report.kept += 1;
      else {
        report.failed += 1;
        db.options.onError(error instanceof Error ? error : new Error(String(error)), `the erasure of session ${key.sessionId}`);
      }
    }
  }
  const last = due.at(-1);
  const next =
    due.length < limit || last === undefined ? null : { tenantId: last.tenantId, sessionId: last.sessionId, deletedAt: last.deletedAt };
  return { ...report, next };
}

async function eraseOne(
  db: Db,
  key: SessionKey,
  incarnation: string,
  { chunkRows, signal, onAlive }: EraseDeleted,
): Promise<'erased' | 'kept' | 'gone'> {
  const erasure = { db, incarnation, chunkRows, signal };
  if (!(await scrubSession(erasure, key))) return 'gone';
  const removal: Removal = { db, archive: undefined, days: 0, signal, onAlive, chunkEvents: RETENTION_CHUNK_EVENTS };
  for (const runId of await listEndedRunsOfSession(db.sql, key, RUNS_OF_A_PASS)) {
    signal?.throwIfAborted();
    await removeRun(removal, { tenantId: key.tenantId, runId });
  }
  return eraseSessionRows(erasure, key);
}
