import type { Route } from '..';
import { disableSinkRoute } from './disable-sink';
import { enableSinkRoute } from './enable-sink';
import { explainSinkRoute } from './explain-sink';
import { getSinkRoute } from './get-sink';
import { listBlockedKeysRoute } from './list-blocked-keys';
import { listSinksRoute } from './list-sinks';
import { listWebhookDeliveriesRoute } from './list-webhook-deliveries';
import { republishRoute } from './republish';
import { retryKeysRoute } from './retry-keys';
import { skipEventRoute } from './skip-event';

export const relayRoutes: readonly Route[] = [
  listSinksRoute,
  getSinkRoute,
  listBlockedKeysRoute,
  listWebhookDeliveriesRoute,
  explainSinkRoute,
  skipEventRoute,
  retryKeysRoute,
  republishRoute,
  enableSinkRoute,
  disableSinkRoute,
];
