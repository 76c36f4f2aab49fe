import { DomainError } from '../domain-error';

// What a call says, or who says it, is refused before anything is looked at.

/** The input does not have the shape that the operation documents. */
export class InvalidRequest extends DomainError<'invalid_request', { issues: readonly { path: string; message: string }[] }> {
  readonly code = 'invalid_request';
}

/** A JSON value breaks the boundary rule of normalizeJson. */
export class InvalidJson extends DomainError<'invalid_json', { path: string; reason: string }> {
  readonly code = 'invalid_json';
}

/** A value is larger than its limit. */
export class PayloadTooLarge extends DomainError<'payload_too_large', { bytesMax: number }> {
  readonly code = 'payload_too_large';
}

/** An id or key is empty, too long or has characters that identifiers must not have. */
export class InvalidIdentifier extends DomainError<'invalid_identifier', { reason: string }> {
  readonly code = 'invalid_identifier';
}

/** A cursor is malformed, or was made for another list or filter: start again without one. */
export class InvalidCursor extends DomainError<'invalid_cursor', { reason: string }> {
  readonly code = 'invalid_cursor';
}

/** Turns and steers need an idempotency key (HTTP: the header Idempotency-Key). */
export class IdempotencyKeyRequired extends DomainError<'idempotency_key_required', Record<string, never>> {
  readonly code = 'idempotency_key_required';
  constructor(message = 'Turns and steers need an idempotency key (HTTP: the header Idempotency-Key).', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** No such route: GET /openapi.json lists them. */
export class RouteNotFound extends DomainError<'route_not_found', { path: string }> {
  readonly code = 'route_not_found';
}

/** The same key or reserved id was used before with other content. */
export class IdempotencyConflict extends DomainError<'idempotency_conflict', { resource: string; id: string }> {
  readonly code = 'idempotency_conflict';
}

export type BoundaryError =
  | InvalidRequest
  | InvalidJson
  | PayloadTooLarge
  | InvalidIdentifier
  | InvalidCursor
  | IdempotencyKeyRequired
  | RouteNotFound
  | IdempotencyConflict;
