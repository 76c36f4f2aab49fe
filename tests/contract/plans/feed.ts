import { readFeed } from '@runplane/outbox';
import type { Hot } from '../../support/plans';
import { store } from './store';

export const feedStatements: Record<string, Hot> = {
  'read a page of the feed': {
    call: (db) => readFeed(db.sql, { tenantId: undefined, after: store.places.get('feed'), limit: 50 }),
    statement: /feed_horizon/,
    index: 'outbox_events_pkey',
  },
};

export async function findFeedPlaces(): Promise<void> {
  store.places.set('feed', (await readFeed(store.db.sql, { tenantId: undefined, limit: 200 })).cursor);
}
