import type { RetentionKind } from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { pruneCancelRequestsOnce, pruneIntentsOnce, pruneReadersOnce, pruneRunnersOnce } from './prune-finished';
import { pruneParkedEventsOnce } from './prune-parked-events';
import { pruneRunEventsOnce, pruneRunsOnce } from './prune-runs';
import type { RetentionPass, RetentionReport } from './retention-pass';

/** The pass of each kind of this library. Whole runs come first: what is under them goes with them, into the same archive. */
export const PRUNE_ONCE: Readonly<
  Record<Exclude<RetentionKind, 'queue-tasks'>, (db: Db, pass?: RetentionPass) => Promise<RetentionReport>>
> = {
  runs: pruneRunsOnce,
  'run-events': pruneRunEventsOnce,
  intents: pruneIntentsOnce,
  'cancel-requests': pruneCancelRequestsOnce,
  runners: pruneRunnersOnce,
  readers: pruneReadersOnce,
  'parked-events': pruneParkedEventsOnce,
};
