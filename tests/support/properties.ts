/** How long a property looks for a counterexample; PROPERTY_SECONDS=600 for a long search. */
const seconds = Number(process.env['PROPERTY_SECONDS'] ?? 10);

export const search = { numRuns: 100_000, interruptAfterTimeLimit: seconds * 1000, markInterruptAsFailure: false } as const;
export const SEARCH_TIMEOUT_MS = seconds * 1000 + 60_000;
