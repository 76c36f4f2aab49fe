import { z } from 'zod';

// What an operator asks of the store as a whole.

export const StoreHealth = z
  .strictObject({
    adapter: z.literal('postgres'),
    ready: z.boolean(),
    reachable: z.boolean(),
    migrationReady: z.boolean().meta({ description: 'Every migration that this program needs is there; newer ones do no harm' }),
    migrationId: z.string().nullable().meta({ description: 'The newest one applied, as last seen' }),
    missingMigrations: z.array(z.string()),
    failureKind: z.literal('infra-failed').nullable(),
    message: z.string().nullable(),
    staleViews: z
      .strictObject({ count: z.int(), isExact: z.boolean().meta({ description: 'False where there are more than were counted' }) })
      .nullable()
      .meta({ description: 'Sessions of the store whose views were built by older rules, or have failed; null: the store cannot be used' }),
    credentialValuesPrinted: z.literal(false),
  })
  .meta({ id: 'StoreHealth' });
export type StoreHealth = z.infer<typeof StoreHealth>;

export const MigrationContract = z
  .strictObject({
    migrationIds: z.array(z.string()),
    latestMigrationId: z.string().nullable(),
    checksums: z.record(z.string(), z.string()).meta({ description: 'SHA-256 of each script, as Prisma records it' }),
    requiredTables: z.array(z.string()),
    valuesPrinted: z.literal(false),
  })
  .meta({ id: 'MigrationContract' });
export type MigrationContract = z.infer<typeof MigrationContract>;

export const DispatchStatus = z
  .strictObject({
    queue: z.literal('runner-dispatch'),
    backlogCount: z.int().meta({ description: 'Intents that are not worked off: waiting, being launched, in back-off' }),
    isExact: z
      .boolean()
      .meta({ description: 'False where the backlog is longer than was counted; the numbers are then of the counted part' }),
    dueCount: z.int().meta({ description: 'Of these, due and held by no live dispatcher' }),
    dispatchingCount: z.int(),
    retryingCount: z.int(),
    oldestPendingAt: z.iso.datetime().nullable(),
    oldestPendingForMs: z.int().nullable(),
    maxAttemptCount: z.int(),
    firstError: z.string().nullable().meta({ description: 'Of the intent that has been waiting longest and has one' }),
    valuesPrinted: z.literal(false),
  })
  .meta({ id: 'DispatchStatus' });
export type DispatchStatus = z.infer<typeof DispatchStatus>;
