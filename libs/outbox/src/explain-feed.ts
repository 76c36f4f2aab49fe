import type { FeedExplanation } from '@runplane/contracts';
import type { At } from '@runplane/database';
import { explainFeedFacts } from './feed-explanation';
import { getFeedStatus } from './feed-status';
import { getFeedConsumer } from './read-feed-consumers';

export interface ExplainFeed {
  /** Undefined: the operator, who is told who holds the feed back. */
  readonly tenantId: string | undefined;
  /** Of the tenant, or the operator's own: why it is not further. */
  readonly consumer?: string | undefined;
  /** Whose consumer, where an operator asks. */
  readonly consumerOf?: string | undefined;
  readonly silentMs?: number | undefined;
  /** As of getFeedStatus. */
  readonly withTenants?: boolean | undefined;
}

/** Why readers see nothing new, or a consumer is where it is: a cause, one sentence, and the facts it was found by. No lock. Errors: FeedConsumerNotFound. */
export async function explainFeed(
  at: At,
  { tenantId, consumer: name, consumerOf = tenantId, silentMs, withTenants }: ExplainFeed,
): Promise<FeedExplanation> {
  const consumer = name === undefined ? undefined : await getFeedConsumer(at, { tenantId: consumerOf, name, silentMs });
  const { consumers: _, ...status } = await getFeedStatus(at, { tenantId, silentMs, withTenants });
  const why = explainFeedFacts({ ...status, consumers: [] }, consumer);
  const told = Object.fromEntries(Object.entries(status).filter(([, value]) => value !== null));
  return { consumer: name ?? null, ...why, facts: consumer === undefined ? told : { ...told, consumer: { ...consumer } } };
}
