import { setTimeout as sleep } from 'node:timers/promises';
import {
  ERASURE_SESSIONS_DEFAULT,
  OUTBOX_PRUNE_PASS_ROWS,
  REBUILD_SESSIONS_DEFAULT,
  RETENTION_KINDS,
  RETENTION_ROWS_DEFAULT,
  type RetentionKind,
} from '@runplane/contracts';
import type { Db, Stream } from '@runplane/database';
import { getFeedStatus, pruneOutboxOnce, pruneWebhookDeliveriesOnce, type PruneOutbox } from '@runplane/outbox';
import {
  expireReservationsOnce,
  failExhaustedSubmissionsOnce,
  readyDueTasksOnce,
  settleAttemptsOnce,
  startQueuedTurnsOnce,
  sweepQueueLeasesOnce,
} from '@runplane/queue';
import {
  cancelOverdueRunsOnce,
  collectStorageOnce,
  compactRunCountsOnce,
  dispatchOnce,
  eraseDeletedOnce,
  failExhaustedIntentsOnce,
  failUnclaimedRunsOnce,
  foldSessionActivityOnce,
  pruneReservationsOnce,
  reconcileRunnerJobsOnce,
  RUN_ENDED,
  sweepCancelDeadlinesOnce,
  sweepLostRunnersOnce,
  type ArchiveSink,
  type ErasureReport,
  type Launcher,
  type RetentionPlaces,
  type StorageCollector,
} from '@runplane/runs';
import {
  expireRequestsOnce,
  getRebuildStatus,
  pruneChannelsOnce,
  rebuildStaleOnce,
  TURN_QUEUED,
  type StalePlaces,
} from '@runplane/sessions';
import { pruneRunTokensOnce } from '../access/api-keys';
import { PRUNE_ONCE } from './prune-once';
import type { Credentials } from '../access/credentials';
import { runEvery, type Loop } from './run-every';

export interface LoopsOf {
  readonly db: Db;
  readonly credentials: Credentials;
  /** Without one this process dispatches nothing. */
  readonly launcher: Launcher | undefined;
  /** Without one this process deletes no expired storage of sessions. */
  readonly collector?: StorageCollector | undefined;
  /** `off`: this process removes nothing by age. */
  readonly retention?: { readonly archive: ArchiveSink | undefined; readonly outbox?: OutboxAges | undefined } | 'off' | undefined;
  /** This start of this process; another start is another owner, whatever the host is called. */
  readonly owner: string;
  readonly onError: (error: unknown, loop: string) => void;
  /** Told of what somebody may have to look at, though nothing has failed. */
  readonly onAlert?: ((facts: Readonly<Record<string, string>>, what: string) => void) | undefined;
}

/** How long events stay in the outbox, and for how long a silent consumer is waited for. */
export type OutboxAges = Pick<PruneOutbox, 'keepMs' | 'silentMs'>;

const DISPATCH_BATCH = 10;
const SETTLE_BATCH = 100;
const START_BATCH = 10;

/** The background work of one process. Any number of processes may do it at the same time. */
export function startLoops({ db, credentials, launcher, collector, retention = 'off', owner, onError, onAlert }: LoopsOf): Loop[] {
  const every = (name: string, intervalMs: number, pass: () => Promise<{ changed: number; failed?: number }>): Loop =>
    runEvery({ name, intervalMs, pass, onError });
  return [
    ...(launcher === undefined ? [] : [dispatcher(db, launcher, owner, onError)]),
    ...(launcher === undefined ? [] : [every('reconcileRunnerJobs', 15_000, () => reconcileRunnerJobsOnce(db, { launcher }))]),
    ...(collector === undefined ? [] : [every('collectStorage', 30_000, () => collectStorageOnce(db, { collector, owner }))]),
    every('foldSessionActivity', 5_000, () => foldSessionActivityOnce(db)),
    every('sweepLostRunners', 2_000, () => sweepLostRunnersOnce(db, {})),
    every('sweepCancelDeadlines', 1_000, () => sweepCancelDeadlinesOnce(db)),
    every('cancelOverdueRuns', 1_000, () => cancelOverdueRunsOnce(db)),
    every('expireRequests', 1_000, () => expireRequestsOnce(db)),
    every('failUnclaimedRuns', 5_000, () => failUnclaimedRunsOnce(db)),
    every('failExhaustedIntents', 5_000, () => failExhaustedIntentsOnce(db)),
    settler(db, onError),
    turnStarter(db, owner, onError),
    every('readyDueTasks', 1_000, () => readyDueTasksOnce(db)),
    every('sweepQueueLeases', 1_000, () => sweepQueueLeasesOnce(db)),
    every('failExhaustedSubmissions', 1_000, () =>
      failExhaustedSubmissionsOnce(db, {
        onError: (error) => {
          onError(error, 'failExhaustedSubmissions');
        },
      }),
    ),
    every('expireReservations', 10_000, () => expireReservationsOnce(db)),
    every('compactRunCounts', 10_000, () => compactRunCountsOnce(db)),
    every('pruneWebhookDeliveries', 60_000, () => pruneWebhookDeliveriesOnce(db)),
    every('pruneReservations', 60_000, () => pruneReservationsOnce(db)),
    eraser(db, onError),
    ...(retention === 'off' ? [] : RETENTION_KINDS.map((kind) => pruner(db, kind, retention.archive, onError, onAlert))),
    ...(retention === 'off' ? [] : [every('pruneChannels', 60_000, () => pruneChannelsOnce(db))]),
    ...(retention === 'off' ? [] : [outboxPruner(db, retention.outbox, onError)]),
    feedWatcher(db, retention === 'off' ? undefined : retention.outbox?.silentMs, onError),
    rebuilder(db, owner, onError),
    every('flushLastUsed', 10_000, () => credentials.flushLastUsedOnce()),
    every('pruneRunTokens', 60_000, () => pruneRunTokensOnce(db)),
  ];
}

/** Erases deleted sessions; what must wait for its storage is passed over until all have been looked at. */
function eraser(db: Db, onError: LoopsOf['onError']): Loop {
  let after: ErasureReport['next'] = null;
  return runEvery({
    name: 'eraseDeleted',
    intervalMs: 60_000,
    fullPass: ERASURE_SESSIONS_DEFAULT,
    pass: async (signal, beat) => {
      const { changed, failed, next } = await eraseDeletedOnce(db, { after, signal, onAlive: beat });
      after = next;
      return { changed, failed };
    },
    onError,
  });
}

/** Removes one kind of things by the age that tenants have set; what it could not, an archive that is missing included, shows as failed. */
function pruner(
  db: Db,
  kind: RetentionKind,
  archive: ArchiveSink | undefined,
  onError: LoopsOf['onError'],
  onAlert: LoopsOf['onAlert'],
): Loop {
  let after: RetentionPlaces = new Map();
  const onRemoved = ({ tenantId, id }: { tenantId: string; id: string }): void => {
    if (kind === 'parked-events') onAlert?.({ tenantId, event: id }, 'an event was given up that its sink has not taken');
  };
  return runEvery({
    name: PRUNE_ONCE[kind].name.replace(/Once$/, ''),
    intervalMs: 60_000,
    fullPass: RETENTION_ROWS_DEFAULT,
    pass: async (signal, beat) => {
      const { changed, failed, tenants, next } = await PRUNE_ONCE[kind](db, { archive, after, signal, onAlive: beat, onRemoved });
      after = next; // where all has been looked at, the next pass begins anew
      return { changed, failed: failed + tenants.filter(({ archiveMissing }) => archiveMissing).length };
    },
    onError,
  });
}

/** Builds views anew that older rules have made, or that somebody has asked for: a few sessions a pass, one after the other. */
function rebuilder(db: Db, owner: string, onError: LoopsOf['onError']): Loop {
  let after: StalePlaces = {};
  let found: Readonly<Record<string, number>> = {};
  const loop = runEvery({
    name: 'rebuildStale',
    intervalMs: 5_000,
    fullPass: REBUILD_SESSIONS_DEFAULT,
    pass: async (signal, beat) => {
      const onFailed = (_session: unknown, error: unknown): void => {
        onError(error, 'rebuildStale');
      };
      const { changed, failed, next } = await rebuildStaleOnce(db, { owner, after, signal, onProgress: beat, onFailed });
      after = next;
      const { staleCount, waitingCount, failingCount, givenUpCount } = await getRebuildStatus(db);
      found = { stale: staleCount, waiting: waitingCount, failing: failingCount, givenUp: givenUpCount };
      return { changed, failed };
    },
    onError,
  });
  return withFindings(loop, () => found);
}

function withFindings(loop: Loop, found: () => Readonly<Record<string, number>>): Loop {
  return {
    name: loop.name,
    intervalMs: loop.intervalMs,
    get stats() {
      return loop.stats;
    },
    found,
    stop: () => loop.stop(),
  };
}

/** Removes events that are old and that no registered reader needs. */
function outboxPruner(db: Db, ages: OutboxAges | undefined, onError: LoopsOf['onError']): Loop {
  return runEvery({
    name: 'pruneOutbox',
    intervalMs: 60_000,
    fullPass: OUTBOX_PRUNE_PASS_ROWS,
    pass: (signal, beat) => pruneOutboxOnce(db, { ...ages, signal, onAlive: beat }),
    onError,
  });
}

/** Looks how the feed is doing, for the metrics; it changes nothing. */
function feedWatcher(db: Db, silentMs: number | undefined, onError: LoopsOf['onError']): Loop {
  let found: Readonly<Record<string, number>> = {};
  const loop = runEvery({
    name: 'watchFeed',
    intervalMs: 10_000,
    pass: async () => {
      const { held, heldBackMs, rebaseNeeded, rows, bytes, consumers } = await getFeedStatus(db, { tenantId: undefined, silentMs });
      const worst = (of: (consumer: (typeof consumers)[number]) => number): number => Math.max(0, ...consumers.map(of));
      found = {
        heldEvents: held.events,
        heldSeconds: held.oldestMs / 1000,
        oldestWriterSeconds: heldBackMs / 1000,
        rebaseNeeded: Number(rebaseNeeded),
        outboxRows: rows ?? 0,
        outboxBytes: bytes ?? 0,
        consumers: consumers.length,
        consumerLagEvents: worst(({ lag }) => lag.events),
        consumerLagSeconds: worst(({ lag }) => lag.ms / 1000),
        consumersExpired: consumers.filter(({ isExpired }) => isExpired).length,
        consumersSilent: consumers.filter(({ isExpired, holdsFloor }) => !isExpired && !holdsFloor).length,
      };
      return { changed: 0 };
    },
    onError,
  });
  return withFindings(loop, () => found);
}

/** Woken by the hub when a run has ended; the interval finds what a lost hint would have told. */
function settler(db: Db, onError: LoopsOf['onError']): Loop {
  return wokenBy(db, RUN_ENDED, {
    name: 'settleAttempts',
    intervalMs: 1_000,
    fullPass: SETTLE_BATCH,
    pass: () => settleAttemptsOnce(db, { limit: SETTLE_BATCH }),
    onError,
  });
}

/** Woken by the hub when a turn has been queued, or the end of the open one has called it; the interval finds what a lost hint would have told. */
function turnStarter(db: Db, owner: string, onError: LoopsOf['onError']): Loop {
  const name = 'startQueuedTurns';
  const onFailed = (error: unknown): void => {
    onError(error, name);
  };
  return wokenBy(db, TURN_QUEUED, {
    name,
    intervalMs: 1_000,
    fullPass: START_BATCH,
    pass: async (signal) => {
      const { started, heldBack, refused, failed, putOff } = await startQueuedTurnsOnce(db, {
        owner,
        limit: START_BATCH,
        onError: onFailed,
        signal,
      });
      return { changed: started + heldBack + refused + failed + putOff, failed: failed + putOff };
    },
    onError,
  });
}

/** Woken by the hub when a command with a dispatch has been committed; the interval finds retries that have become due. */
function dispatcher(db: Db, launcher: Launcher, owner: string, onError: LoopsOf['onError']): Loop {
  return wokenBy(db, 'dispatch', {
    name: 'dispatch',
    intervalMs: 1_000,
    fullPass: DISPATCH_BATCH,
    pass: async () => {
      const { launched, retried, failed, waiting } = await dispatchOnce(db, { launcher, owner, limit: DISPATCH_BATCH });
      return { changed: launched + retried + failed + waiting }; // those that wait must not hide what is due behind them
    },
    onError,
  });
}

function wokenBy(db: Db, stream: Stream, options: Omit<Parameters<typeof runEvery>[0], 'pause'>): Loop {
  const news = db.hub.subscribe(stream);
  const loop = runEvery({
    ...options,
    pause: async (timeoutMs, signal) => {
      if ((await news.next({ timeoutMs, signal })) === 'closed') await sleep(timeoutMs, undefined, { signal, ref: false });
    },
  });
  return {
    name: loop.name,
    intervalMs: loop.intervalMs,
    get stats() {
      return loop.stats;
    },
    stop: async () => {
      await loop.stop();
      news.close();
    },
  };
}
