import { z } from 'zod';
import { RETENTION_ROWS_DEFAULT, RETENTION_ROWS_MAX } from './limits';
import { RETENTION_KINDS } from './states';
import { RetentionOverride } from './tenant-settings';

/** What one pass of retention would remove of the caller's tenant. The removal itself is the operator's, by the background loops or the command line. */
export const PreviewRetention = z
  .strictObject({
    dryRun: z.literal(true),
    policy: RetentionOverride.optional().meta({ description: 'Wins over what the tenant has set, field by field' }),
    limit: z.int().min(1).max(RETENTION_ROWS_MAX).default(RETENTION_ROWS_DEFAULT).meta({ description: 'Of each kind' }),
  })
  .meta({ id: 'PreviewRetention' });
export type PreviewRetention = z.input<typeof PreviewRetention>;

export const RetentionPreview = z
  .object({
    dryRun: z.literal(true),
    kinds: z.array(
      z.object({
        kind: z.enum(RETENTION_KINDS),
        ids: z.array(z.string()),
        rows: z.record(z.string(), z.int()).meta({ description: 'How many rows that is, by their kind' }),
        archiveMissing: z.boolean().meta({ description: 'The tenant wants copies, and this process has no archive: nothing would go' }),
        more: z.boolean().meta({ description: 'The pass would end by its limits' }),
      }),
    ),
  })
  .meta({ id: 'RetentionPreview' });
export type RetentionPreview = z.infer<typeof RetentionPreview>;
