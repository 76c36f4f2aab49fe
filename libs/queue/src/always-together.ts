/**
 * Calls of queue tasks have no statement of their own while others of their kind are under way: its start and its commit cost more than its row, also
 * with few callers (measured: bench/results.md). One that comes alone is a batch of one, at once.
 */
export const ALWAYS_TOGETHER = 0;
