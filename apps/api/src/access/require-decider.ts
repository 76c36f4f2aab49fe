import { requireScope } from './authenticate';
import type { Credential } from './api-key';

/** Events by which a person's decision enters a log: whoever sends them, or brings them with a log, must be allowed to decide, lease or not. */
const DECISIONS = new Set(['approval/resolved', 'user-input/resolved']);

/** Errors: Forbidden, for an event of this type. */
export function requireDecider(credential: Credential, type: string): void {
  if (DECISIONS.has(type)) requireScope(credential, ['approvals:resolve']);
}
