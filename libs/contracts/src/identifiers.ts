import { v7 as uuidV7 } from 'uuid';
import { z } from 'zod';
import { InvalidIdentifier } from './errors';
import { IDENTIFIER_BYTES_MAX } from './limits';
import { utf8Bytes } from './text';

const FORBIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]|(?! )\p{Zs}|^ | $/u;
const RULE = `1 to ${IDENTIFIER_BYTES_MAX} bytes of UTF-8 without control, format or separator characters (spaces inside are fine)`;

/**
 * Idempotency keys, owners, ids from outside: 1 to 200 bytes of UTF-8, no control, format or separator characters but inner U+0020.
 * Two ids that look alike must not differ in invisible characters. Identifiers are refused, never repaired.
 */
export function isIdentifier(text: string): boolean {
  return text !== '' && text.length <= IDENTIFIER_BYTES_MAX && utf8Bytes(text) <= IDENTIFIER_BYTES_MAX && !FORBIDDEN.test(text);
}

/** The same rule for wire schemas. */
export const identifier = z
  .string()
  .min(1)
  .max(IDENTIFIER_BYTES_MAX)
  .refine(isIdentifier, { error: `must be ${RULE}`, abort: true });

/** For doors without zod; `name` says in the message which one is meant. */
export function requireIdentifier(text: string, name: string): string {
  if (isIdentifier(text)) return text;
  const reason = `${name} must be ${RULE}`;
  throw new InvalidIdentifier(`${reason}.`, { reason });
}

/** `<prefix>_<uuid v7>`. The order of ids is never relied on. */
export function newId<Prefix extends string>(prefix: Prefix): `${Prefix}_${string}` {
  return `${prefix}_${uuidV7()}`;
}
