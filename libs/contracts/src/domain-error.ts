/**
 * The one base of every expected refusal. `code` is public API, `data` is small, typed and safe to show, the message is for people
 * and never parsed. HTTP status codes are apps/api's business; `failureKind` is the word of the original control plane, kept on the
 * wire beside the precise code.
 */
export abstract class DomainError<Code extends string = string, Data extends object = object> extends Error {
  abstract readonly code: Code;
  /** True when the same call may succeed later without any change by the caller. */
  readonly retryable: boolean = false;
  readonly failureKind: string = 'schema-invalid';
  readonly data: Data;

  constructor(message: string, data: Data, options?: ErrorOptions) {
    super(message, options);
    this.data = data;
    this.name = new.target.name;
  }
}

/** True for every DomainError, also of another copy of this package (an embedder may have two). */
export function isDomainError(error: unknown): error is DomainError {
  return error instanceof DomainError || (error instanceof Error && 'code' in error && 'data' in error && 'retryable' in error);
}
