export { createClient, type Client, type PageOptions, type RunFilter } from './client';
export { ConnectionFailed, isPassing, isProblem, ProblemError, StillInterrupting, UnexpectedAnswer } from './errors';
export type { ConsumeFeed, FeedGap, FeedHandler } from './consume-feed';
export type { FeedOptions } from './feed';
export type { FollowOptions } from './follow-log';
export type { FollowSessionOptions } from './follow-session';
export type { PendingOptions, WaitOptions } from './request-calls';
export type { RetryPolicy } from './retry';
export type { CallOptions, ClientOptions } from './transport';
