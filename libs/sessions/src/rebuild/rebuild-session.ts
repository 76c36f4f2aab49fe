import {
  freeText,
  isDomainError,
  REBUILD_BACKOFF_MS_MAX,
  REBUILD_BACKOFF_MS_MIN,
  REBUILD_ATTEMPTS_MAX,
  REBUILD_CHUNK_ROWS,
  REBUILD_LEASE_MS,
  REBUILD_PAGE_BYTES,
  REBUILD_PAGE_EVENTS,
  RebuildRunning,
  redactError,
} from '@runplane/contracts';
import { backOffMs, inTransaction, type Db, type Tx } from '@runplane/database';
import { projectionsOf, VIEWS_VERSION } from '../projections';
import type { FoldedHead, Projection } from '../projections/projection';
import { sessionNotFound } from '../session';
import type { SessionKey } from '../session.sql';
import { lockHead, readHead, type HeadRow } from '../session-head.sql';
import { EMPTY_HEAD, foldPage, listLog, writeFoldedHead } from './fold-log';
import {
  claimRebuilds,
  failedBy,
  lockRebuild,
  requestRebuilds,
  returnRebuild,
  settleRebuild,
  writeProgress,
  type RebuildClaim,
  type RebuildProgress,
} from './session-rebuild.sql';
import { correctSubmissionHead, countOpenSubmissions } from './submission-head.sql';
import { clearShadow, listNewerViews, switchViews } from './shadow-views.sql';

export interface RebuildSteps {
  readonly throughSequence: number;
  readonly lastSequence: number;
}

export interface RebuildOptions {
  /** This start of this process. */
  readonly owner: string;
  readonly leaseMs?: number | undefined;
  readonly pageEvents?: number | undefined;
  /** Ends the work between two transactions; what is done stays, and the next one goes on from there. */
  readonly signal?: AbortSignal | undefined;
  /** Told after each page. */
  readonly onProgress?: ((steps: RebuildSteps) => void) | undefined;
}

export interface RebuiltSession extends SessionKey {
  /** Events that were folded by this call. */
  readonly events: number;
  /** Rows of views that were not as the log says, and were removed or written. */
  readonly changedRows: number;
  readonly viewsVersion: number;
}

/**
 * Builds every view of a session anew from its log, beside the live ones, and puts it in their place.
 *
 * The log is read in pages, each folded in a transaction of its own with the code that appends use, without guards; memory is bounded by a page.
 * Appends go on meanwhile. Readers see the old rows until the switch, which locks the head, folds what has come since, and writes what differs.
 * Killed anywhere, it is taken up by the next call, or by the background, from its last page. Who claimed a submission, how often, and until when
 * is no view: it stays, as do submissions of an old store that no event stands behind, and views of projections that this handle does not have.
 *
 * Returns   what was done.
 * Errors    SessionNotFound; RebuildRunning: somebody else is at it, or has taken it over; whatever a fold or the database throws, which is
 *           also noted, and tried again in the background.
 * Locks     each page: the rebuild's record; the switch: session head → rebuild → submission head.   Repeat: safe.
 */
export async function rebuildSession(db: Db, { tenantId, sessionId }: SessionKey, options: RebuildOptions): Promise<RebuiltSession> {
  const key = { tenantId, sessionId };
  await requestRebuilds(db.sql, [key]);
  const [claim] = await claimRebuilds(db.sql, { owner: options.owner, leaseMs: options.leaseMs ?? REBUILD_LEASE_MS, limit: 1, only: key });
  if (claim !== undefined) return runRebuild(db, claim, options);
  const found = await readHead(db.sql, key);
  if (found === undefined || isGone(found.head)) throw sessionNotFound(sessionId);
  throw running(sessionId);
}

const running = (sessionId: string): RebuildRunning =>
  new RebuildRunning('The views of this session are being rebuilt by somebody else.', { sessionId });

/** A session that is being copied is marked as deleted and is not gone: its views are built before it is shown. */
const isGone = ({ deletedAt, copying }: HeadRow): boolean => deletedAt !== null && !copying;

/** Carries out a claimed rebuild to its end, or gives it back. */
export async function runRebuild(db: Db, claim: RebuildClaim, options: RebuildOptions): Promise<RebuiltSession> {
  const work: Work = {
    db,
    claim,
    rules: rulesOf(db),
    projections: projectionsOf(db),
    leaseMs: options.leaseMs ?? REBUILD_LEASE_MS,
    pageEvents: options.pageEvents ?? REBUILD_PAGE_EVENTS,
    signal: options.signal,
    onProgress: options.onProgress ?? (() => undefined),
  };
  try {
    return await rebuild(work);
  } catch (error) {
    await giveBack({ ...work, signal: undefined }, error, options.signal).catch(() => undefined); // its lease ends by itself
    throw error;
  }
}

async function giveBack(work: Work, error: unknown, signal: AbortSignal | undefined): Promise<void> {
  const { db, claim } = work;
  if (isDomainError(error) && error.code === 'rebuild_running') return;
  if (isDomainError(error) && error.code === 'session_not_found') {
    await clear(work);
    return void (await settleRebuild(db.sql, claim));
  }
  if (signal?.aborted === true) return returnRebuild(db.sql, claim, { delayMs: 0, lastError: null, counted: false });
  if (claim.attempts >= REBUILD_ATTEMPTS_MAX) await startAnew(work, failedBy(work.rules)); // nobody goes on from where it has come to: no rows are left beside the live ones
  const delayMs = backOffMs(claim.attempts, { baseMs: REBUILD_BACKOFF_MS_MIN, maxMs: REBUILD_BACKOFF_MS_MAX });
  return returnRebuild(db.sql, claim, { delayMs, lastError: freeText(redactError(error)), counted: true });
}

/** How often events that came while others were folded are folded without the head's lock; then under it, however many there are. */
const CATCH_UPS_MAX = 5;
/** What the transaction that holds the head folds at most, where it is not the last try. */
const PAGES_UNDER_LOCK = 2;
/** No statement of it takes long, but there are the more of them the longer the log. */
const SWITCH_TIMEOUT_MS = 600_000;

/** By which rules this handle folds: the built-in views by their version, a team's by theirs. What follows is the life of the session. */
export function rulesOf(db: Db): string {
  const team = db.options.projections.map(({ key, version }) => `${key}@${version}`);
  return `${[`built-in@${VIEWS_VERSION}`, ...team.sort()].join(' ')} of `;
}

/** The built-in view among those of `session_views`. */
const SUBAGENT_KEY = 'subagentIdentity';

interface Work {
  readonly db: Db;
  readonly claim: RebuildClaim;
  readonly rules: string;
  readonly projections: readonly Projection[];
  readonly leaseMs: number;
  readonly pageEvents: number;
  readonly signal: AbortSignal | undefined;
  readonly onProgress: (steps: RebuildSteps) => void;
}

async function rebuild(work: Work): Promise<RebuiltSession> {
  const { db, claim } = work;
  const { tenantId, sessionId } = claim;
  let events = 0;
  let { progress } = await step(work, (_tx, found) => Promise.resolve(found));
  if (!progress.switched && progress.rules !== (await rulesNow(work))) progress = await startAnew(work, await rulesNow(work));
  for (let catchUps = 0; !progress.switched; catchUps += 1) {
    for (let behind = true; behind;) {
      const page = await step(work, (tx, found, log) => foldNext(tx, work, found, log));
      events += page.progress.throughSequence - progress.throughSequence;
      progress = page.progress;
      behind = progress.throughSequence < page.log.lastSequence;
      work.onProgress({ throughSequence: progress.throughSequence, lastSequence: page.log.lastSequence });
    }
    const pages = catchUps < CATCH_UPS_MAX ? PAGES_UNDER_LOCK : Infinity;
    const switched = await step(work, (tx, found, log) => foldAndSwitch(tx, work, found, { log, pages }), { underLock: true });
    events += switched.progress.throughSequence - progress.throughSequence;
    progress = switched.progress;
  }
  await clear(work);
  if (!(await settleRebuild(db.sql, claim))) throw running(sessionId);
  return { tenantId, sessionId, events, changedRows: progress.changedRows, viewsVersion: VIEWS_VERSION };
}

type Step = (tx: Tx, progress: RebuildProgress, log: HeadRow) => Promise<RebuildProgress>;

/** One transaction of the rebuild's holder: how far it is, what is done in it, how far it has come then; the lease is prolonged with it. */
function step(
  { db, claim, leaseMs, signal }: Work,
  take: Step,
  { underLock = false }: { underLock?: boolean } = {},
): Promise<{ progress: RebuildProgress; log: HeadRow }> {
  signal?.throwIfAborted();
  return inTransaction(
    db,
    async (tx) => {
      const log = underLock ? await lockHead(tx, claim) : (await readHead(tx, claim))?.head;
      const found = await lockRebuild(tx, claim);
      if (found === undefined) throw running(claim.sessionId);
      if (log === undefined || isGone(log)) throw sessionNotFound(claim.sessionId);
      const progress = await take(tx, found, log);
      await writeProgress(tx, claim, { ...progress, leaseMs });
      return { progress, log };
    },
    underLock ? { timeoutMs: SWITCH_TIMEOUT_MS } : {},
  );
}

/** Also of which life of the session: an id that was deleted and made again has another log. */
async function rulesNow({ db, claim, rules }: Work): Promise<string> {
  const found = await readHead(db.sql, claim);
  return `${rules}${found?.head.incarnation}`;
}

/** Removes what was built by other rules. Marked first: whoever is killed in between leaves rows that the next one does not take for whole. */
async function startAnew(work: Work, rules: string): Promise<RebuildProgress> {
  const none = { rules: '', throughSequence: -1, folded: null, switched: false, changedRows: 0 };
  await step(work, () => Promise.resolve(none));
  await clear(work);
  return (await step(work, () => Promise.resolve({ ...none, rules }))).progress;
}

/** Removes the rows beside the live ones, in parts. */
async function clear({ db, claim, leaseMs }: Work): Promise<void> {
  for (let left = 1; left > 0;) {
    left = await inTransaction(db, async (tx) => {
      const found = await lockRebuild(tx, claim);
      if (found === undefined) throw running(claim.sessionId);
      await writeProgress(tx, claim, { ...found, leaseMs });
      return clearShadow(tx, claim, REBUILD_CHUNK_ROWS);
    });
  }
}

async function foldNext(tx: Tx, work: Work, progress: RebuildProgress, log: HeadRow): Promise<RebuildProgress> {
  const { claim, projections, pageEvents } = work;
  const events = await listLog(tx, claim, { after: progress.throughSequence, limit: pageEvents, bytes: REBUILD_PAGE_BYTES });
  if (events.length === 0 && progress.throughSequence < log.lastSequence)
    throw new Error(`the log ends at ${progress.throughSequence}, its head says ${log.lastSequence}`);
  const head: FoldedHead = { ...EMPTY_HEAD, ...progress.folded };
  const folded = await foldPage(tx, { ...claim, header: log.header }, { events, head, projections });
  return { ...progress, folded: { ...folded }, throughSequence: folded.lastSequence };
}

/** Under the head's lock: folds what has come since, unless that is too much to let everybody wait for, and switches. */
async function foldAndSwitch(
  tx: Tx,
  work: Work,
  found: RebuildProgress,
  { log, pages }: { log: HeadRow; pages: number },
): Promise<RebuildProgress> {
  let progress = found;
  for (let page = 0; progress.throughSequence < log.lastSequence; page += 1) {
    if (page >= pages) return progress;
    progress = await foldNext(tx, work, progress, log);
  }
  const { claim, db } = work;
  const newer = await listNewerViews(tx, claim, db.options.projections); // a rolling upgrade: a newer process has made them
  const viewKeys = [SUBAGENT_KEY, ...db.options.projections.map(({ key }) => key).filter((viewKey) => !newer.includes(viewKey))];
  const rows = await switchViews(tx, claim, { viewKeys, lastSequence: log.lastSequence });
  const { open: openSubmissions, openTurns: openTurnSubmissions } = await countOpenSubmissions(tx, claim);
  const head = { ...EMPTY_HEAD, ...progress.folded, openSubmissions, openTurnSubmissions };
  const columns = await writeFoldedHead(tx, log, { head, viewsVersion: VIEWS_VERSION });
  if (!log.copying) await correctSubmissionHead(tx, claim);
  return { ...progress, switched: true, changedRows: rows + columns };
}
