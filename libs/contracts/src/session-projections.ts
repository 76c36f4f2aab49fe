import { isIdentifier } from './identifiers';
import { COUNTER_MAX } from './limits';
import type { SessionProjection } from './session-log';

/** Keys of views that are built in; the second one's value is made on read. */
export const BUILT_IN_PROJECTION_KEYS = ['subagentIdentity', 'channelState'] as const;

/**
 * Refuses projections that could not live beside each other: a bug of whoever opens the store, so a plain Error.
 * Each needs a key of its own that is an identifier and no built-in one, and a version from 1.
 */
export function assertProjections(projections: readonly SessionProjection[]): void {
  const taken = new Set<string>(BUILT_IN_PROJECTION_KEYS);
  for (const { key, version } of projections) {
    if (!isIdentifier(key)) throw new Error(`a projection's key is ${JSON.stringify(key)}, which is no identifier`);
    if (taken.has(key)) throw new Error(`the projection key ${JSON.stringify(key)} is taken: each projection needs one of its own`);
    if (!Number.isInteger(version) || version < 1 || version > COUNTER_MAX)
      throw new Error(`the version of projection ${JSON.stringify(key)} is ${version}: versions count from 1`);
    taken.add(key);
  }
}
