import type { FeedCause, FeedConsumer, FeedHoldup, FeedStatus } from '@runplane/contracts';

// Why a reader of the feed sees nothing new, in one sentence. Pure: from the status of the feed and, where one is asked for, a consumer.

/** The horizon trails every open transaction; below this nobody has to look. */
export const HELD_PATIENCE_MS = 5_000;
/** A loop commits at least each 30 s, also when nothing moves. */
export const CONSUMER_PATIENCE_MS = 90_000;

export interface WhyFeed {
  readonly cause: FeedCause;
  readonly isMoving: boolean;
  readonly sentence: string;
}

/** Says why: of a consumer where one is given, else of the feed. */
export function explainFeedFacts(status: FeedStatus, consumer?: FeedConsumer): WhyFeed {
  if (status.rebaseNeeded)
    return stuck(
      'rebase-needed',
      'The store stands in another cluster than the one that it remembers (restored, or promoted): restart a process or call `runplane feed rebase`.',
    );
  if (consumer?.isExpired === true)
    return stuck(
      'consumer-expired',
      `${consumer.name} stands below the floor of the feed: events that it has not read were removed. Rewind it to go on from the oldest that is left.`,
    );
  if (status.held.events > 0 && status.held.oldestMs > HELD_PATIENCE_MS && (consumer === undefined || consumer.lag.events === 0))
    return stuck(
      'held-back',
      `${atLeast(status.held.events, status.held.isExact)} ${status.held.events === 1 ? 'event is' : 'events are'} committed and not readable yet, for ${inSeconds(status.held.oldestMs)}: ${describeHoldup(status)}.`,
    );
  if (consumer === undefined) return moving('flowing', 'What is committed can be read; nothing holds the feed back.');
  if (consumer.lag.events === 0 && consumer.lag.isExact)
    return moving('consumer-up-to-date', `${consumer.name} has read everything that can be read.`);
  const behind = `${atLeast(consumer.lag.events, consumer.lag.isExact)} events behind, the oldest ${inSeconds(consumer.lag.ms)} old`;
  if (consumer.seenForMs > CONSUMER_PATIENCE_MS)
    return stuck(
      'consumer-silent',
      `${consumer.name} is ${behind}, and has not been heard of for ${inSeconds(consumer.seenForMs)}: no process reads under its name, or its handler fails.${consumer.holdsFloor ? '' : ' Retention waits for it no longer.'}`,
    );
  return moving('consumer-behind', `${consumer.name} is ${behind}; it commits, and works on.`);
}

function describeHoldup({ heldBackBy, heldBackMs }: FeedStatus): string {
  if (heldBackBy === null)
    return heldBackMs === 0
      ? 'the horizon has not passed them yet'
      : `a transaction of the database server that has been open for ${inSeconds(heldBackMs)} may still write before them`;
  return describeKind(heldBackBy);
}

function describeKind({ kind, forMs, pid, application, database, state, waitsFor, query }: FeedHoldup): string {
  const since = `open for ${inSeconds(forMs)}`;
  switch (kind) {
    case 'prepared-transaction':
      return `the prepared transaction ${state ?? ''} in database ${database ?? '?'}, ${since}: COMMIT PREPARED or ROLLBACK PREPARED`;
    case 'unknown':
      return 'a transaction that this role may not see (grant it pg_read_all_stats)';
    case 'transaction': {
      const doing = [state, waitsFor === null ? null : `waits for ${waitsFor}`, query === null ? null : `last statement: ${query}`];
      return `process ${pid ?? '?'} of ${application === null || application === '' ? 'an unnamed program' : application} in database ${database ?? '?'}, ${since} (${doing.filter((each) => each !== null).join('; ')})`;
    }
    default:
      throw new Error(`no explanation knows the kind ${String(kind satisfies never)}`);
  }
}

const atLeast = (count: number, isExact: boolean): string => (isExact ? String(count) : `${count} or more`);
const inSeconds = (ms: number): string => `${Math.round(ms / 1000)} s`;
const moving = (cause: FeedCause, sentence: string): WhyFeed => ({ cause, isMoving: true, sentence });
const stuck = (cause: FeedCause, sentence: string): WhyFeed => ({ cause, isMoving: false, sentence });
