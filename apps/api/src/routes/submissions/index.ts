import type { Route } from '..';
import { acceptSubmissionRoute } from './accept-submission';
import { countSubmissionsRoute } from './count-submissions';
import { endSubmissionRoute } from './end-submission';
import { getSubmissionReceiptRoute } from './get-submission-receipt';
import { getSubmissionRoute } from './get-submission';
import { listSessionSubmissionsRoute } from './list-session-submissions';
import { listSubmissionsRoute } from './list-submissions';

export const submissionRoutes: readonly Route[] = [
  acceptSubmissionRoute,
  listSessionSubmissionsRoute,
  countSubmissionsRoute,
  getSubmissionRoute,
  getSubmissionReceiptRoute,
  endSubmissionRoute,
  listSubmissionsRoute,
];
