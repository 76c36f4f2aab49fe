import { isPlainObject, setOwn, type JsonObject, type JsonValue } from './json';
import { FAILURE_MESSAGE_CODE_POINTS_MAX, JSON_DEPTH_MAX, REASON_CODE_POINTS_MAX } from './limits';
import { REDACTED, redactText } from './redact-text';
import { isSecretName } from './secret-names';
import { cutText, repairText } from './text';

export { REDACTED, redactText } from './redact-text';
export { isSecretName } from './secret-names';

/**
 * A deep copy of the same shape with every credential masked: strings and numbers below a key named like a secret, the `value` beside
 * a `name` or `key` named like one, the argument after a flag named like one, and what redactText finds in keys and strings.
 *
 * For loggers it takes any value and never throws: bigint becomes decimal text, Date ISO text, an Error its redacted message; what
 * JSON does not know is left out (null in arrays); cycles and levels beyond the depth of JSON become a short text.
 * Repeat    safe: redacting twice changes nothing.
 */
export function redactJson<T extends JsonValue>(value: T): T;
export function redactJson(value: unknown): JsonValue;
export function redactJson(value: unknown): JsonValue {
  return redactValue(value, false, []) ?? null;
}

/** The message of anything thrown, with its causes, fit for a column or a log line. The stack is left out: it repeats the message. */
export function redactError(error: unknown, codePointsMax: number = FAILURE_MESSAGE_CODE_POINTS_MAX): string {
  return freeText(messagesOf(error, new Set()).join(': ') || 'unknown error', codePointsMax);
}

/** The one way of a reason, error or failure message into the store: storable, redacted, cut (in this order, so that no half secret stays). */
export function freeText(text: string, codePointsMax: number = REASON_CODE_POINTS_MAX): string {
  return cutText(redactText(repairText(text)), codePointsMax);
}

/** undefined means that JSON has no such value. */
function redactValue(value: unknown, secret: boolean, above: readonly object[]): JsonValue | undefined {
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'string') return secret && value !== '' ? REDACTED : redactText(value);
  if (typeof value === 'number') return secret ? REDACTED : value;
  if (typeof value === 'bigint') return secret ? REDACTED : String(value);
  if (typeof value !== 'object') return undefined;
  if (above.includes(value)) return '[circular]';
  if (above.length >= JSON_DEPTH_MAX) return '[nested too deep]';
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value.toISOString();
  if (value instanceof Error) return redactError(value);
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  return Array.isArray(value) ? redactArray(value, secret, [...above, value]) : redactObject(value, secret, [...above, value]);
}

function redactArray(value: readonly unknown[], secret: boolean, above: readonly object[]): JsonValue[] {
  return Array.from(value, (element, index) => redactValue(element, secret || isSecretFlag(value[index - 1]), above) ?? null);
}

function isSecretFlag(argument: unknown): boolean {
  return typeof argument === 'string' && argument.startsWith('-') && !argument.includes('=') && isSecretName(argument);
}

function redactObject(value: object, secret: boolean, above: readonly object[]): JsonObject {
  const result: JsonObject = {};
  const pairIsSecret = isSecretPair(value);
  for (const [index, key] of Object.keys(value).entries()) {
    const redacted = redactValue(readKey(value, key), secret || isSecretName(key) || (pairIsSecret && key === 'value'), above);
    if (redacted === undefined) continue;
    const name = redactText(key);
    const isTaken = name !== key && Object.hasOwn(result, name); // two keys that differ in a secret only must not become one
    setOwn(result, isTaken ? `${name} ${index}` : name, redacted);
  }
  return result;
}

/** `{ name: 'DB_PASSWORD', value: … }`, as environments and headers are listed. */
function isSecretPair(value: object): boolean {
  if (!Object.hasOwn(value, 'value')) return false;
  return ['name', 'key'].some((label) => {
    const name = Object.hasOwn(value, label) ? readKey(value, label) : undefined;
    return typeof name === 'string' && isSecretName(name);
  });
}

function readKey(value: object, key: string): unknown {
  try {
    return (value as Record<string, unknown>)[key];
  } catch {
    return '[unreadable]';
  }
}

const CAUSES_MAX = 8;

function messagesOf(error: unknown, seen: Set<unknown>): string[] {
  if (error == null || seen.has(error) || seen.size >= CAUSES_MAX) return [];
  seen.add(error);
  if (typeof error === 'string') return [error];
  if (typeof error !== 'object') return [JSON.stringify(redactJson(error))];
  const causes = [readKey(error, 'cause'), readKey(error, 'errors')].flat(); // AggregateError has `errors`
  return [ownMessage(error), ...causes.flatMap((cause) => messagesOf(cause, seen))];
}

function ownMessage(error: object): string {
  for (const key of ['message', 'name']) {
    const text = readKey(error, key);
    if (typeof text === 'string' && text !== '') return text;
  }
  return isPlainObject(error) ? JSON.stringify(redactJson(error as unknown)) : 'unknown error';
}
