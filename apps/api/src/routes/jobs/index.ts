import type { Route } from '..';
import { listRunnerJobsRoute } from './list-runner-jobs';
import { mergeRunnerJobResultRoute } from './merge-runner-job-result';
import { saveRunnerJobRoute } from './save-runner-job';

export const jobRoutes: readonly Route[] = [saveRunnerJobRoute, listRunnerJobsRoute, mergeRunnerJobResultRoute];
