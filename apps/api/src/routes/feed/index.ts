import type { Route } from '..';
import { commitFeedConsumerRoute } from './commit-feed-consumer';
import { deleteFeedConsumerRoute } from './delete-feed-consumer';
import { explainFeedRoute } from './explain-feed';
import { getFeedConsumerRoute } from './get-feed-consumer';
import { getFeedStatusRoute } from './get-feed-status';
import { listFeedConsumersRoute } from './list-feed-consumers';
import { readFeedRoute } from './read-feed';
import { registerFeedConsumerRoute } from './register-feed-consumer';
import { rewindFeedConsumerRoute } from './rewind-feed-consumer';
import { streamFeedRoute } from './stream-feed';

export const feedRoutes: readonly Route[] = [
  readFeedRoute,
  streamFeedRoute,
  getFeedStatusRoute,
  explainFeedRoute,
  listFeedConsumersRoute,
  registerFeedConsumerRoute,
  getFeedConsumerRoute,
  commitFeedConsumerRoute,
  rewindFeedConsumerRoute,
  deleteFeedConsumerRoute,
];
