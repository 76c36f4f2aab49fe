import { announce, type At, type Stream } from '@runplane/database';

/** What a claimer of one tenant's queue waits for, and what one of a queue of all tenants does. Hints only: whoever waits also asks by itself. */
export const queueStream = (tenantId: string, queue: string): Stream => `queue:${tenantId}/${queue}`;
export const allQueuesStream = (queue: string): Stream => `queues:${queue}`;
/** Tells claimers that the queue has something for them. */
export function announceQueue(at: At, tenantId: string, queue: string): void {
  announce(at, queueStream(tenantId, queue));
  announce(at, allQueuesStream(queue));
}
