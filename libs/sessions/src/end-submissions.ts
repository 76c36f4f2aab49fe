import type { Db } from '@runplane/database';
import { announceAppend } from './append-events';
import { endEvent, wantedEnd, type WantedEnd } from './end-submission';
import { endTogether, readForEnds, type FoldedEnd } from './end-together.sql';
import { placeEvents, touchedBy } from './fold-batch';
import { projectionsOf } from './projections';
import { submissionProjection } from './projections/submission';
import type { HeadRow } from './session-head.sql';
import type { StorableSessionEvent } from './session-event-input';

export interface ClaimedEnd {
  readonly sessionId: string;
  readonly operationId: string;
  readonly end: { readonly state: 'completed' | 'failed'; readonly error?: string | null | undefined; readonly claimEpoch: number };
}

/**
 * Ends claimed submissions of several sessions of a tenant, of each its oldest: one statement reads all of them, another one writes.
 *
 * Returns   which of them it has ended, by their places in the call. Of the others there is something to be told (a claim is over, another end came
 *           first), or somebody holds their session: markSubmissionEnded tells, and waits.
 * Locks     session heads → submission heads, all SKIP LOCKED.   Writes, Emits: as endSubmission.
 * Errors    InvalidRequest; of the database, after which nothing is written, or all of it where the answer was lost.
 * Repeat    safe: what has ended is not ended again.   Keeps: OWN-1 to OWN-3, FIFO-1, LOG-1, LOG-2, VIEW-1.
 */
export async function markSubmissionsEnded(
  db: Db,
  { tenantId, ends }: { tenantId: string; ends: readonly ClaimedEnd[] },
): Promise<Set<number>> {
  const wanted = ends.map((end) => wantedEnd({ tenantId, ...end })).map((end) => ({ ...end, events: endEvent(end) }));
  // A team's view that follows ends is fed by the append of each.
  if (wanted.some(({ events }) => touchedBy(projectionsOf(db), events).length > 1)) return new Set();
  const found = await readForEnds(db.sql, tenantId, wanted);
  const folded = wanted.flatMap((end, place) => {
    const fold = foldEnd(end, found[place]);
    return fold === undefined ? [] : [{ ...fold, place }];
  });
  if (folded.length === 0) return new Set();
  const done = await endTogether(db.sql, tenantId, folded);
  const ended = new Set(folded.flatMap(({ place }, i) => (done[i] === true ? [place] : [])));
  for (const place of ended) if (wanted[place] !== undefined) announceAppend(db, wanted[place]);
  return ended;
}

/** Undefined: the session takes no end, or the submission is not one that waits for one. */
function foldEnd(
  { operationId, state, claimEpoch, events }: WantedEnd & { readonly events: readonly StorableSessionEvent[] },
  found: { readonly head: HeadRow; readonly loaded: unknown } | undefined,
): FoldedEnd | undefined {
  if (found === undefined || claimEpoch === undefined) return undefined;
  const { head, loaded } = found;
  const { tenantId, sessionId, header } = head;
  const [event] = placeEvents(events, head, head.now);
  const before = submissionProjection.initial(loaded, { tenantId, sessionId, header, head });
  if (head.copying || head.deletedAt !== null || event === undefined || before.known.get(operationId)?.state !== 'pending')
    return undefined;
  const { known, open, openTurns } = submissionProjection.apply(before, event);
  const lastError = known.get(operationId)?.lastError ?? null;
  return { sessionId, operationId, claimEpoch, head, event, state, lastError, openSubmissions: open, openTurnSubmissions: openTurns };
}
