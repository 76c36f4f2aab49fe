import fc from 'fast-check';

/** How long a property looks for a counterexample; PROPERTY_SECONDS=600 for a long search. */
const seconds = Number(process.env['PROPERTY_SECONDS'] ?? 4);
export const SEARCH_TIMEOUT_MS = seconds * 1000 + 180_000;

/** Looks for a counterexample until the time is over. Each case comes to its end: fast-check's own time limit would leave one running. */
export async function search<Case>(property: fc.IAsyncProperty<Case>): Promise<void> {
  const until = Date.now() + seconds * 1000;
  do await fc.assert(property, { numRuns: 3 });
  while (Date.now() < until);
}
