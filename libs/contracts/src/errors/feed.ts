import { DomainError } from '../domain-error';

// The feed, who reads it, and the sinks that it is relayed to.

/** The cursor belongs to another store or lies below the retention floor: go on from oldestCursor. */
export class CursorExpired extends DomainError<'cursor_expired', { oldestCursor: string; reason: 'other-store' | 'below-retention' }> {
  readonly code = 'cursor_expired';
}

/** The store knows no such sink: a relay makes it when it first serves it. */
export class SinkNotFound extends DomainError<'sink_not_found', { sink: string }> {
  readonly code = 'sink_not_found';
}

/** Nobody relays to a disabled sink; enable it first. */
export class SinkDisabled extends DomainError<'sink_disabled', { sink: string }> {
  readonly code = 'sink_disabled';
}

/** The sink has no such blocked key: its events go through, or there are none. */
export class BlockedKeyNotFound extends DomainError<'blocked_key_not_found', { sink: string; key: string }> {
  readonly code = 'blocked_key_not_found';
}

/** The key is no longer blocked at the event that the call names: read the list again. */
export class BlockedKeyMoved extends DomainError<'blocked_key_moved', { sink: string; key: string; cursor: string | null }> {
  readonly code = 'blocked_key_moved';
}

/** A range is being sent to the sink again already: wait for its end, or disable the sink. */
export class RepublishRunning extends DomainError<'republish_running', { sink: string; shards: number }> {
  readonly code = 'republish_running';
}

/** No consumer of the feed is registered under this name. */
export class FeedConsumerNotFound extends DomainError<'feed_consumer_not_found', { name: string }> {
  readonly code = 'feed_consumer_not_found';
}

/** The consumer stands elsewhere than the commit says: another process has committed, or an operator has rewound it. Go on from cursor. */
export class FeedConsumerMoved extends DomainError<'feed_consumer_moved', { name: string; cursor: string }> {
  readonly code = 'feed_consumer_moved';
}

/** The tenant has as many registered consumers as it may: delete one that nobody uses. */
export class FeedConsumersFull extends DomainError<'feed_consumers_full', { consumersMax: number }> {
  readonly code = 'feed_consumers_full';
}

export type FeedError =
  | CursorExpired
  | SinkNotFound
  | SinkDisabled
  | BlockedKeyNotFound
  | BlockedKeyMoved
  | RepublishRunning
  | FeedConsumerNotFound
  | FeedConsumerMoved
  | FeedConsumersFull;
