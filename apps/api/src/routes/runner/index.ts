import type { Route } from '..';
import { acknowledgeCancelRoute } from './acknowledge-cancel';
import { ackCommandRoute } from './ack-command';
import { appendRunEventsRoute } from './append-run-events';
import { claimRunRoute } from './claim-run';
import { finishCommandRoute } from './finish-command';
import { finishRunRoute } from './finish-run';
import { heartbeatRoute } from './heartbeat';
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
];
