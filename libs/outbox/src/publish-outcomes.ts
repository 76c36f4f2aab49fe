import type { PublishOutcome, PublishRecord } from './publisher';

export const SENT: PublishOutcome = { kind: 'sent' };
export const SKIPPED: PublishOutcome = { kind: 'skipped' };

/** What is kept in order: one key in one topic. */
export function keyOf({ topic, partitionKey }: Pick<PublishRecord, 'topic' | 'partitionKey'>): string {
  return JSON.stringify([topic, partitionKey]);
}

/**
 * The outcomes as the port promises them: of a key, a prefix `sent`, then at most one that is refused or failed, then `skipped`.
 *
 * For a publisher's raw answers. Where one says `sent` behind a record that was not, the word is taken back: sent again behind the earlier
 * one, it is in the sink twice, which consumers can tell, instead of once in the wrong place, which they cannot.
 */
export function inKeyOrder(records: readonly PublishRecord[], outcomes: readonly PublishOutcome[]): PublishOutcome[] {
  if (records.length !== outcomes.length) throw new Error(`${outcomes.length} outcomes for ${records.length} records`);
  if (outcomes.every(({ kind }) => kind === 'sent')) return [...outcomes];
  const stopped = new Set<string>();
  return records.map((record, index) => {
    const key = keyOf(record);
    if (stopped.has(key)) return SKIPPED;
    const outcome = outcomes[index] ?? SKIPPED;
    if (outcome.kind !== 'sent') stopped.add(key);
    return outcome;
  });
}
