import type { Route } from '..';
import { acknowledgeCancelRoute } from './acknowledge-cancel';
import { ackCommandRoute } from './ack-command';
import { appendRunEventsRoute } from './append-run-events';
import { claimRunRoute } from './claim-run';
import { finishCommandRoute } from './finish-command';
import { finishRunRoute } from './finish-run';
import { getRunnerRoute } from './get-runner';
import { heartbeatRoute } from './heartbeat';
import { heartbeatRunnerRoute } from './heartbeat-runner';
import { listRunnersRoute } from './list-runners';
import { registerRunnerRoute } from './register-runner';

export const runnerRoutes: readonly Route[] = [
  claimRunRoute,
  heartbeatRoute,
  appendRunEventsRoute,
  ackCommandRoute,
  finishCommandRoute,
  finishRunRoute,
  acknowledgeCancelRoute,
  registerRunnerRoute,
  listRunnersRoute,
  getRunnerRoute,
  heartbeatRunnerRoute,
];
