import type { Route } from '..';
import { readFeedRoute } from './read-feed';

export const feedRoutes: readonly Route[] = [readFeedRoute];
