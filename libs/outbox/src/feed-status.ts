import {
  FEED_HOLDUP_QUERY_CODE_POINTS_MAX,
  FEED_LAG_ROWS_MAX,
  freeText,
  OUTBOX_KEEP_DAYS_DEFAULT,
  type FeedHoldup,
  type FeedStatus,
} from '@runplane/contracts';
import { executorOf, isRebaseNeeded, type At, type SqlExecutor } from '@runplane/database';
import { readStorePlaces } from './feed-consumer.sql';
import { encodeFeedCursor, floorOf } from './feed-cursor';
import { countHeldEvents, findHoldup, readOutboxSize, type HeldEvents, type HoldupRow } from './feed-status.sql';
import { listFloorCandidates } from './outbox-floor.sql';
import { CONSUMER_SILENT_MS_DEFAULT, listFeedConsumers } from './read-feed-consumers';

export interface GetFeedStatus {
  /** A tenant sees its own events and consumers; undefined is the operator, who sees all, and who holds the feed back. */
  readonly tenantId: string | undefined;
  readonly silentMs?: number | undefined;
  /** Of an operator: also the consumers of tenants, by their names. Off where a credential asks that opens nothing of a tenant. */
  readonly withTenants?: boolean | undefined;
}

/**
 * How the feed is doing: what readers cannot see yet and because of whom, and how far behind registered consumers are. A few statements that read
 * bounded parts of the outbox, whatever its size; no lock.
 */
export async function getFeedStatus(
  at: At,
  { tenantId, silentMs = CONSUMER_SILENT_MS_DEFAULT, withTenants = tenantId === undefined }: GetFeedStatus,
): Promise<FeedStatus> {
  const on = executorOf(at);
  const store = await readStorePlaces(on);
  const held = await countHeldEvents(on, { tenantId, rowsMax: FEED_LAG_ROWS_MAX });
  const holdup = await findHoldup(on);
  const { consumers } = await listFeedConsumers(at, { tenantId, all: withTenants, silentMs });
  const { headTx, headPosition, storeId } = store;
  const floor = floorOf(store);
  const head = headTx === null || headPosition === null ? floor : { tx: headTx, position: headPosition };
  return {
    head: encodeFeedCursor(storeId, head),
    oldestCursor: encodeFeedCursor(storeId, floor),
    held: { events: held.events, isExact: held.scanned < FEED_LAG_ROWS_MAX, oldestMs: held.oldestMs ?? 0 },
    heldBackMs: holdup?.forMs ?? 0,
    rebaseNeeded: await isRebaseNeeded(on),
    ...(tenantId === undefined ? await ofOperator(on, { held, holdup, silentMs, withTenants }) : OF_TENANT),
    consumers,
  };
}

const OF_TENANT = { heldBackBy: null, rows: null, bytes: null, floorHeldBy: null } as const;

interface OperatorFacts {
  readonly held: HeldEvents;
  readonly holdup: HoldupRow | undefined;
  readonly silentMs: number;
  readonly withTenants: boolean;
}

async function ofOperator(on: SqlExecutor, { held, holdup, silentMs, withTenants }: OperatorFacts) {
  const { rows, bytes } = await readOutboxSize(on);
  const candidates = await listFloorCandidates(on, { keepMs: OUTBOX_KEEP_DAYS_DEFAULT * 86_400_000, silentMs });
  const [lowest] = candidates.filter(({ heldBy }) => heldBy !== 'age');
  const isTenants = lowest?.heldBy.includes('/') === true;
  return {
    heldBackBy: toHoldup(holdup, held),
    rows,
    bytes,
    floorHeldBy: isTenants && !withTenants ? 'a consumer of a tenant' : (lowest?.heldBy ?? null),
  };
}

/** Statements of other programs may hold anything: what stands between quotes is left out, secrets by their look as well. */
function toHoldup(found: HoldupRow | undefined, held: HeldEvents): FeedHoldup | null {
  if (found !== undefined)
    return {
      ...found,
      query: found.query === null ? null : freeText(found.query.replaceAll(/'(?:[^']|'')*'?/g, "'…'"), FEED_HOLDUP_QUERY_CODE_POINTS_MAX),
    };
  if (held.events === 0) return null;
  const nothingSeen = { pid: null, application: null, database: null, state: null, waitsFor: null, query: null };
  return { kind: 'unknown', forMs: held.oldestMs ?? 0, ...nothingSeen };
}
