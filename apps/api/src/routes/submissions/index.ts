import type { Route } from '..';
import { acceptSubmissionRoute } from './accept-submission';
import { claimSubmissionsRoute } from './claim-submissions';
import { countSubmissionsRoute } from './count-submissions';
import { endSubmissionRoute } from './end-submission';
import { explainSubmissionRoute } from './explain-submission';
import { getSubmissionReceiptRoute } from './get-submission-receipt';
import { getSubmissionRoute } from './get-submission';
import { listSessionSubmissionsRoute } from './list-session-submissions';
import { listSubmissionsRoute } from './list-submissions';
import { releaseSubmissionRoute } from './release-submission';
import { renewSubmissionRoute } from './renew-submission';
import { renewSubmissionsRoute } from './renew-submissions';
import { requeueSubmissionRoute } from './requeue-submission';
import { settleSubmissionsRoute } from './settle-submissions';

export const submissionRoutes: readonly Route[] = [
  acceptSubmissionRoute,
  listSessionSubmissionsRoute,
  countSubmissionsRoute,
  getSubmissionRoute,
  getSubmissionReceiptRoute,
  explainSubmissionRoute,
  endSubmissionRoute,
  renewSubmissionRoute,
  releaseSubmissionRoute,
  requeueSubmissionRoute,
  listSubmissionsRoute,
  claimSubmissionsRoute,
  renewSubmissionsRoute,
  settleSubmissionsRoute,
];
