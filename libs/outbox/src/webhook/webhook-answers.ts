import { failed, refused, type FailureReason, type PublishOutcome, type RefusalReason } from '../publisher';
import { SENT } from '../publish-outcomes';

// What an endpoint's answer says: of the message (it alone is refused, others may pass) or of the endpoint (nothing passes now).

const OF_MESSAGE: Readonly<Record<number, RefusalReason>> = {
  400: 'rejected',
  409: 'rejected',
  413: 'too_large',
  415: 'rejected',
  422: 'rejected',
};

const OF_ENDPOINT: Readonly<Record<number, FailureReason>> = {
  401: 'credentials',
  403: 'credentials',
  407: 'credentials',
  408: 'timed_out',
  425: 'overloaded',
  429: 'overloaded',
  503: 'overloaded',
  504: 'timed_out',
};

/** `error`: redacted and cut. Redirects are not followed: they would lead past the guard, and to whom nobody has named. */
export function outcomeOfStatus(status: number, error: string): PublishOutcome {
  if (status >= 200 && status < 300) return SENT;
  const refusal = OF_MESSAGE[status];
  if (refusal !== undefined) return refused(refusal, error);
  return failed(OF_ENDPOINT[status] ?? 'unavailable', error);
}
