import {
  contentHash,
  defineCursor,
  identifier,
  ListPage,
  parseInput,
  type RecoveryCandidateList,
  type SessionSnapshot,
  type SessionSnapshotAnswer,
} from '@runplane/contracts';
import { executorOf, type At } from '@runplane/database';
import { encodeFeedCursor } from '@runplane/outbox';
import { z } from 'zod';
import { cutPage } from '../page.sql';
import { parseSnapshot } from '../projections/snapshot';
import type { SessionKey } from '../session.sql';
import { requireOpenLog } from './require-open-log';
import { findSnapshot, listRecoverySnapshots, type SnapshotRow } from './session-view.sql';

/**
 * What a session's log comes to for a cold start; null while it is empty.
 * Errors: SessionNotFound, SessionDeleted. Reads only.   Source: the original's read_snapshot.
 */
export async function readSnapshot(at: At, key: SessionKey): Promise<SessionSnapshotAnswer> {
  const on = executorOf(at);
  await requireOpenLog(on, key);
  const row = await findSnapshot(on, key);
  return { snapshot: row === undefined || row.lastSequence < 0 ? null : toSnapshot(row) };
}

const place = defineCursor('recovery-candidates', z.strictObject({ sessionId: identifier }));

/**
 * Sessions that a cold start has to look at: a turn is open, input waits with a wake-up, or a person was asked. By session id; a page with large inboxes is short.
 * Errors: InvalidCursor, InvalidRequest. Reads only.
 */
export async function listRecoveryCandidates(
  at: At,
  { tenantId, ...input }: { tenantId: string } & z.input<typeof ListPage>,
): Promise<RecoveryCandidateList> {
  const { cursor, limit } = parseInput(ListPage, input);
  const filterHash = contentHash({ tenantId }).hash;
  const after = cursor === undefined ? undefined : place.decode(cursor, filterHash).sessionId;
  const found = await listRecoverySnapshots(executorOf(at), { tenantId, after, limit: limit + 1 });
  const { shown, last } = cutPage(found, limit);
  return {
    candidates: shown.map((row) => ({ sessionId: row.sessionId, snapshot: toSnapshot(row) })),
    cursor: last === undefined ? null : place.encode({ sessionId: last.sessionId }, filterHash),
  };
}

function toSnapshot({ snapshot, windowId, lastSequence, type, tx, position, storeId }: SnapshotRow): SessionSnapshot {
  const { anomalyCount, anomalies, activeTurnId, activeStepId, driverState, inbox, ...rest } = parseSnapshot(snapshot);
  return {
    schemaVersion: 1,
    activeTurnId,
    activeStepId,
    driverState,
    inbox: { nextTurn: [...inbox.nextTurn], nextStep: [...inbox.nextStep] },
    hasInboxSplices: rest.hasInboxSplices,
    pendingApprovalIds: [...rest.pendingApprovalIds],
    pendingUserInputIds: [...rest.pendingUserInputIds],
    contextWindowId: windowId,
    sequence: lastSequence,
    durableCursor: tx === null || position === null ? null : encodeFeedCursor(storeId, { tx, position }),
    lastEventType: type ?? '',
    anomalyCount,
    anomalies: [...anomalies],
  };
}
