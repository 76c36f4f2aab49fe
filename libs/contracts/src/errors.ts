import type { BoundaryError } from './errors/boundary';
import type { AccessError } from './errors/access';
import type { RunError } from './errors/runs';
import type { DispatchError } from './errors/dispatch';
import type { SessionError } from './errors/sessions';
import type { AskError } from './errors/requests';
import type { SubmissionError } from './errors/submissions';
import type { QueueError } from './errors/queue';
import type { FeedError } from './errors/feed';
import type { ServiceError } from './errors/service';

// One class per situation, by area. A new one needs its name in the union of its file and a line in apps/api/src/error-status.ts, or the app does not
// compile; docs/errors.md is printed from here.

export * from './errors/boundary';
export * from './errors/access';
export * from './errors/runs';
export * from './errors/dispatch';
export * from './errors/sessions';
export * from './errors/requests';
export * from './errors/submissions';
export * from './errors/queue';
export * from './errors/feed';
export * from './errors/service';

export type RunplaneError =
  | BoundaryError
  | AccessError
  | RunError
  | DispatchError
  | SessionError
  | AskError
  | SubmissionError
  | QueueError
  | FeedError
  | ServiceError;

export type ErrorCode = RunplaneError['code'];
