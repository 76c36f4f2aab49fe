import type { ErrorCode } from '@runplane/contracts';

/** The one place where a refusal gets its HTTP status; an error code without a line here does not compile. */
export const STATUS_BY_CODE = {
  invalid_request: 400,
  invalid_json: 400,
  invalid_identifier: 400,
  invalid_cursor: 400,
  idempotency_key_required: 400,
  reserved_event_type: 400,
  command_not_of_run: 400,
  unauthenticated: 401,
  forbidden: 403,
  tenant_not_found: 404,
  run_not_found: 404,
  command_not_found: 404,
  intent_not_found: 404,
  session_not_found: 404,
  runner_not_found: 404,
  runner_job_not_found: 404,
  backend_not_found: 404,
  api_key_not_found: 404,
  route_not_found: 404,
  idempotency_conflict: 409,
  run_closed: 409,
  run_cancelling: 409,
  run_claimed: 409,
  lease_lost: 409,
  lease_expired: 409,
  producer_gap: 409,
  producer_conflict: 409,
  too_many_open_tool_calls: 409,
  command_closed: 409,
  no_cancel_requested: 409,
  session_busy: 409,
  session_boundary: 409,
  storage_evicting: 409,
  storage_changed: 409,
  session_projection_broken: 409,
  no_receivable_turn: 409,
  stale_dispatch_claim: 409,
  capacity_reached: 409,
  reservation_lost: 409,
  cursor_expired: 410,
  run_deleted: 410,
  events_pruned: 410,
  payload_too_large: 413,
  // Only an operator who reads an archive can meet these.
  archive_not_found: 404,
  archive_damaged: 500,
  // Only an embedder's own transaction can be these; from a route they would be a bug of ours.
  not_in_transaction: 500,
  wrong_isolation: 500,
  lock_timeout: 503,
  pool_timeout: 503,
  transaction_conflict: 503,
  database_unavailable: 503,
  outcome_unknown: 503,
  overloaded: 503,
  backlog_full: 503,
  shutting_down: 503,
} as const satisfies Record<ErrorCode, number>;

/** What Fastify itself refuses, by its error code; the details are ours, since its own may quote the body. */
export const FRAMEWORK_REFUSALS: Readonly<Record<string, { status: number; code: string; detail: string }>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: {
    status: 415,
    code: 'unsupported_media_type',
    detail: 'The body must be JSON: send it with content-type application/json.',
  },
  FST_ERR_CTP_EMPTY_TYPE: {
    status: 415,
    code: 'unsupported_media_type',
    detail: 'The body must be JSON: send it with content-type application/json.',
  },
  FST_ERR_CTP_EMPTY_JSON_BODY: {
    status: 400,
    code: 'invalid_request',
    detail: 'The body is empty: send a JSON object, or no content-type.',
  },
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: {
    status: 400,
    code: 'invalid_request',
    detail: 'The body is shorter or longer than its content-length.',
  },
  FST_ERR_BAD_URL: { status: 400, code: 'invalid_request', detail: 'The path is not valid percent-encoded UTF-8.' },
  FST_ERR_MAX_PARAM_LENGTH: { status: 400, code: 'invalid_request', detail: 'A part of the path is too long.' },
};

/** Everything else that Fastify answers with 400: the body could not be parsed. */
export const UNREADABLE_BODY = 'The body is not valid JSON, or has a key __proto__ or constructor.prototype, which is refused.';
