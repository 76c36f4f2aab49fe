import { z } from 'zod';
import { REBUILD_STATES } from './states';

/** How the views of a session stand, and their last rebuild. */
export const SessionRebuild = z
  .strictObject({
    sessionId: z.string(),
    state: z.enum(['none', ...REBUILD_STATES]).meta({ description: '`none`: nobody has asked for one, or not lately' }),
    stale: z.boolean().meta({ description: 'The views were built by other rules than those of this program, or one has failed' }),
    staleReason: z.string().nullable(),
    viewsVersion: z.int().meta({ description: 'Of the rules that the built-in views were built by; 0 where one has failed' }),
    currentVersion: z.int().meta({ description: 'Of the rules of this program' }),
    throughSequence: z.int().meta({ description: 'The last event that the rebuild has folded; -1: none yet' }),
    lastSequence: z.int().meta({ description: 'The last event of the session' }),
    changedRows: z.int().meta({ description: 'Rows of views that were not as the log says, and were removed or written' }),
    attempts: z.int(),
    lastError: z.string().nullable(),
    requestedAt: z.iso.datetime().nullable(),
    finishedAt: z.iso.datetime().nullable(),
  })
  .meta({ id: 'SessionRebuild' });
export type SessionRebuild = z.infer<typeof SessionRebuild>;

/** The sessions of a tenant whose views wait to be built anew. */
export const RebuildStatus = z
  .strictObject({
    currentVersion: z.int().meta({ description: 'Of the rules of this program' }),
    staleCount: z.int().meta({ description: 'Sessions whose built-in views were built by older rules, or have failed' }),
    waitingCount: z.int(),
    runningCount: z.int(),
    failingCount: z.int().meta({ description: 'Of those that wait: tried before' }),
    givenUpCount: z
      .int()
      .meta({ description: 'Of those that wait: tried as often as they may be; ask for them again when the cause is removed' }),
    isExact: z.boolean().meta({ description: 'False where there are more than were counted' }),
    oldestRequestedAt: z.iso.datetime().nullable(),
    firstError: z.string().nullable(),
  })
  .meta({ id: 'RebuildStatus' });
export type RebuildStatus = z.infer<typeof RebuildStatus>;
