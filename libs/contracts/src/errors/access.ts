import { DomainError } from '../domain-error';

// Who calls, and for whom.

/** No valid credential came with the call. */
export class Unauthenticated extends DomainError<'unauthenticated', Record<string, never>> {
  readonly code = 'unauthenticated';
  constructor(message = 'No valid credential came with the call.', options?: ErrorOptions) {
    super(message, {}, options);
  }
}

/** The credential lacks the scope that the operation needs. */
export class Forbidden extends DomainError<'forbidden', { scope: string }> {
  readonly code = 'forbidden';
}

/** No such tenant: create it first (CLI: `runplane tenants create`). */
export class TenantNotFound extends DomainError<'tenant_not_found', { tenantId: string }> {
  readonly code = 'tenant_not_found';
}

/** No such API key. */
export class ApiKeyNotFound extends DomainError<'api_key_not_found', { keyId: string }> {
  readonly code = 'api_key_not_found';
}

export type AccessError = Unauthenticated | Forbidden | TenantNotFound | ApiKeyNotFound;
