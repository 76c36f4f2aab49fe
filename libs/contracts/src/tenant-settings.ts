import { z } from 'zod';
import { CANCEL_GRACE_MS_MAX, CLAIM_DEADLINE_MS_DEFAULT, RUN_ATTEMPTS_MAX, RUN_DURATION_MS_MAX, RUN_DURATION_MS_MIN } from './limits';
import { RUNNER_LOST_POLICIES } from './states';

/** What a tenant may set; stored as JSON on its row and checked here whenever it is read or written. */
export const TenantSettings = z
  .strictObject({
    /** A dispatched run that no runner has claimed by then fails; one that waits for a runner of its own may be replaced by the next turn. */
    claimDeadlineMs: z.int().min(1_000).max(86_400_000).default(CLAIM_DEADLINE_MS_DEFAULT),
    cancelGraceMs: z.int().min(0).max(CANCEL_GRACE_MS_MAX).optional(),
    onRunnerLost: z.enum(RUNNER_LOST_POLICIES).default('fail'),
    maxAttempts: z.int().min(1).max(RUN_ATTEMPTS_MAX).optional(),
    /** For runs that say nothing of their own; absent: no limit. */
    maxDurationMs: z.int().min(RUN_DURATION_MS_MIN).max(RUN_DURATION_MS_MAX).optional(),
  })
  .meta({ id: 'TenantSettings' });
export type TenantSettings = z.infer<typeof TenantSettings>;
