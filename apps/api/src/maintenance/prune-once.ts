import type { RetentionKind } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { pruneQueueTasksOnce } from '@runplane/queue';
import { PRUNE_ONCE as PRUNE_RUNS_ONCE, type RetentionPass, type RetentionReport } from '@runplane/runs';

/** The pass of each kind, over all libraries. */
export const PRUNE_ONCE: Readonly<Record<RetentionKind, (db: Db, pass?: RetentionPass) => Promise<RetentionReport>>> = {
  ...PRUNE_RUNS_ONCE,
  'queue-tasks': pruneQueueTasksOnce,
};
