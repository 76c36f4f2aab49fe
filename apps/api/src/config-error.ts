/** A mistake of the operator: its message is all that is shown. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}
