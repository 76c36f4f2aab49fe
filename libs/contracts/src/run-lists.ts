import { z } from 'zod';
import { RunEvent } from './events';
import { identifier } from './identifiers';
import { CURSOR_CHARS_MAX } from './cursor';
import {
  EVENT_LIST_ROWS_DEFAULT,
  EVENT_LIST_ROWS_MAX,
  RUN_LIST_ROWS_DEFAULT,
  RUN_LIST_ROWS_MAX,
  SEARCH_CODE_POINTS_MAX,
  WORKSPACE_PATH_BYTES_MAX,
} from './limits';
import { Run, RunFailure } from './resources';
import { COMMAND_STATES, RUN_STATES } from './states';
import { repairText, utf8Bytes } from './text';

// Lists of runs and of their events: what may be asked, and the pages that come back.

const time = z.iso.datetime();
const cursor = z.string().max(CURSOR_CHARS_MAX);
const nextCursor = z.string().nullable().meta({ description: 'Of the next page; null at the end, and only there: a page may be short' });

/** A moment; what is finer than a millisecond is cut off, as in every stored time. */
const moment = z.iso
  .datetime({ offset: true })
  .refine((text) => new Date(text).getUTCFullYear() >= 1 && new Date(text).getUTCFullYear() <= 9999, 'must lie in the years 1 to 9999');

export const RUN_SORTS = ['updated-desc', 'updated-asc', 'status-asc', 'id-asc'] as const;
export type RunSort = (typeof RUN_SORTS)[number];

/** Which runs are meant; all conditions together. */
export const RunFilter = z.strictObject({
  statuses: z.array(z.enum(RUN_STATES)).max(RUN_STATES.length).optional(),
  projectId: identifier.optional(),
  workspace: z
    .string()
    .min(1)
    .refine((path) => utf8Bytes(path) <= WORKSPACE_PATH_BYTES_MAX, `at most ${WORKSPACE_PATH_BYTES_MAX} bytes`)
    .transform(repairText)
    .optional()
    .meta({ description: 'The `path` of the workspace reference' }),
  backendProfile: identifier.optional(),
  providerId: identifier.optional(),
  sessionId: identifier.optional(),
  updatedAfter: moment.optional().meta({ description: 'Changed at this time or later' }),
  search: z
    .string()
    .min(1)
    .refine((text) => [...text].length <= SEARCH_CODE_POINTS_MAX, `at most ${SEARCH_CODE_POINTS_MAX} characters`)
    .transform(repairText)
    .optional()
    .meta({
      description:
        'A part of the id, project, workspace path, backend profile, provider, session id or title, trace task or lane, failure kind or message; in any case of letters',
    }),
});
export type RunFilter = z.input<typeof RunFilter>;

export const ListRuns = RunFilter.extend({
  sort: z.enum(RUN_SORTS).default('updated-desc'),
  cursor: cursor.optional().meta({ description: 'Of the page before; it belongs to the filter and the order it was made with' }),
  limit: z.int().min(1).max(RUN_LIST_ROWS_MAX).default(RUN_LIST_ROWS_DEFAULT),
  total: z.boolean().default(false),
});
export type ListRuns = z.input<typeof ListRuns>;

/** The newest command of a run, without its payload. */
export const LatestCommand = z
  .object({
    id: z.string(),
    seq: z.int(),
    type: z.string(),
    state: z.enum(COMMAND_STATES),
    failure: RunFailure.nullable(),
    createdAt: time,
    updatedAt: time,
    acknowledgedAt: time.nullable(),
    finishedAt: time.nullable(),
  })
  .meta({ id: 'LatestCommand' });

/** The newest runner job of a run. */
export const LatestRunnerJob = z
  .object({
    id: z.string(),
    commandId: z.string(),
    launcher: z.string(),
    jobName: z.string(),
    runnerId: z.string().nullable(),
    createdAt: time,
    updatedAt: time,
    settledAt: time.nullable(),
  })
  .meta({ id: 'LatestRunnerJob' });

export const RunListItem = Run.extend({
  latestCommand: LatestCommand.nullable(),
  latestRunnerJob: LatestRunnerJob.nullable(),
}).meta({ id: 'RunListItem' });
export type RunListItem = z.infer<typeof RunListItem>;

export const RunList = z
  .object({
    runs: z.array(RunListItem),
    cursor: nextCursor,
    total: z.int().optional().meta({ description: 'How many runs the filter finds on all pages together, when asked for' }),
    totalIsExact: z.boolean().optional().meta({ description: 'False where counting stopped at its limit: there are at least so many' }),
  })
  .meta({ id: 'RunList' });
export type RunList = z.infer<typeof RunList>;

const facet = z.object({
  values: z.array(z.string()),
  truncated: z.boolean().meta({ description: 'True when there are more values than these' }),
});

/** What there is to filter a tenant's runs by. */
export const RunFacets = z
  .object({
    projects: facet,
    workspaces: facet,
    backends: facet,
    providers: facet,
    statusCounts: z.record(z.enum(RUN_STATES), z.int()),
  })
  .meta({ id: 'RunFacets' });
export type RunFacets = z.infer<typeof RunFacets>;

/** A page of chosen events. */
export const ListEvents = z.strictObject({
  cursor: cursor.optional().meta({ description: 'Of the page before' }),
  limit: z.int().min(1).max(EVENT_LIST_ROWS_MAX).default(EVENT_LIST_ROWS_DEFAULT),
});
export type ListEvents = z.input<typeof ListEvents>;

export const RunEventList = z.object({ events: z.array(RunEvent), cursor: nextCursor }).meta({ id: 'RunEventList' });
export type RunEventList = z.infer<typeof RunEventList>;

export const RunEventCount = z.object({ count: z.int() }).meta({ id: 'RunEventCount' });
export type RunEventCount = z.infer<typeof RunEventCount>;

export const ListSessionEvents = ListEvents.extend({
  runId: identifier.optional().meta({ description: 'Absent: the active run, else the last one' }),
  runs: z.enum(['one', 'all']).default('one').meta({ description: '`all`: every run of the session, the oldest first' }),
}).refine(({ runId, runs }) => runId === undefined || runs === 'one', { path: ['runs'], error: 'a run and all runs exclude each other' });
export type ListSessionEvents = z.input<typeof ListSessionEvents>;

export const SessionEventList = z
  .object({
    sessionId: z.string(),
    runId: z.string().nullable().meta({ description: 'Of which run; null for all runs, or when the session has none' }),
    events: z.array(RunEvent),
    cursor: nextCursor,
  })
  .meta({ id: 'SessionEventList' });
export type SessionEventList = z.infer<typeof SessionEventList>;
