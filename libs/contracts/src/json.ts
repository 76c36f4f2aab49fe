import { InvalidJson, PayloadTooLarge } from './errors';
import { EVENT_BYTES_MAX, JSON_DEPTH_MAX } from './limits';
import { cutText, isStorableText, repairText, utf8Bytes } from './text';

export type JsonValue = string | number | boolean | null | JsonValue[] | JsonObject;
export interface JsonObject {
  [key: string]: JsonValue;
}

export interface NormalizeOptions {
  /** Bytes of UTF-8 of the result; EVENT_BYTES_MAX when absent. */
  bytesMax?: number | undefined;
  /** Refuses strings that would have to be repaired: what a person approved must be what is run. */
  strict?: boolean | undefined;
}

export interface NormalizedJson<T extends JsonValue = JsonValue> {
  value: T;
  /** `JSON.stringify(value)`, so that nobody has to make it twice. */
  text: string;
}

interface Walk {
  readonly path: (string | number)[];
  readonly strict: boolean;
  readonly bytesMax: number;
  /** Lower bound of the bytes still free: ends the walk early when one object is reachable along exponentially many paths. */
  bytesLeft: number;
}

/**
 * The one rule for JSON at the boundary: called at each library's door before the transaction, and by the runner SDK before a digest.
 *
 * Repairs   NUL and lone surrogates in strings become U+FFFD (refused when `strict`); -0 becomes 0, as JSON.stringify writes it.
 * Refuses   InvalidJson: what JSON.parse cannot return (undefined, holes, bigint, functions, symbols, Date, Map, Buffer, class
 *           instances, non-finite numbers), keys with NUL or lone surrogates, integers beyond ±(2^53-1), depth over 64.
 *           PayloadTooLarge: more than `bytesMax` bytes of UTF-8.
 * Keeps     key order, own `__proto__` keys as data, every well-formed text byte for byte. The input is not changed.
 * Repeat    safe: the result of a result is the same.
 */
export function normalizeJson<T extends JsonValue>(value: T, options?: NormalizeOptions): NormalizedJson<T>;
export function normalizeJson(value: unknown, options?: NormalizeOptions): NormalizedJson;
export function normalizeJson(value: unknown, options: NormalizeOptions = {}): NormalizedJson {
  const bytesMax = options.bytesMax ?? EVENT_BYTES_MAX;
  const normalized = normalize(value, { path: [], strict: options.strict ?? false, bytesMax, bytesLeft: bytesMax });
  const text = JSON.stringify(normalized);
  if (utf8Bytes(text) > bytesMax) throw tooLarge(bytesMax);
  return { value: normalized, text };
}

/** Sets an own property whatever its name: `object['__proto__'] = …` would replace the prototype. */
export function setOwn<T>(object: Record<string, T>, key: string, value: T): void {
  if (key === '__proto__') Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true });
  else object[key] = value;
}

/** True for `{}`-like objects and null prototypes, also of another realm (vm, worker); false for arrays and class instances. */
export function isPlainObject(value: unknown): value is Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return (
    prototype === null ||
    prototype === Object.prototype ||
    (Object.getPrototypeOf(prototype) === null && Object.hasOwn(prototype as object, 'isPrototypeOf'))
  );
}

function normalize(value: unknown, walk: Walk): JsonValue {
  walk.bytesLeft -= 1;
  if (walk.bytesLeft < 0) throw tooLarge(walk.bytesMax);
  if (value === null || typeof value === 'boolean') return value;
  if (typeof value === 'string') return normalizeString(value, walk);
  if (typeof value === 'number') return normalizeNumber(value, walk);
  if (Array.isArray(value)) return normalizeArray(value, walk);
  if (isPlainObject(value)) return normalizeObject(value, walk);
  throw refused(walk, `${nameOfType(value)} is not a JSON value`);
}

function normalizeString(value: string, walk: Walk): string {
  walk.bytesLeft -= value.length; // a UTF-16 unit is at least one byte of UTF-8
  if (isStorableText(value)) return value;
  if (walk.strict) throw refused(walk, 'the string has a NUL character or a lone surrogate');
  return repairText(value);
}

function normalizeNumber(value: number, walk: Walk): number {
  if (!Number.isFinite(value)) throw refused(walk, 'the number is not finite');
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) {
    throw refused(walk, 'the integer is beyond ±(2^53-1) and would lose digits: send it as a string');
  }
  return value === 0 ? 0 : value;
}

function normalizeArray(value: readonly unknown[], walk: Walk): JsonValue[] {
  enter(walk);
  const result: JsonValue[] = [];
  for (let index = 0; index < value.length; index += 1) {
    walk.path.push(index);
    result.push(normalize(value[index], walk));
    walk.path.pop();
  }
  return result;
}

function normalizeObject(value: Record<string, unknown>, walk: Walk): JsonObject {
  enter(walk);
  if (Object.getOwnPropertySymbols(value).length > 0) throw refused(walk, 'the object has symbol keys');
  const result: JsonObject = {};
  for (const key of Object.keys(value)) {
    walk.path.push(key);
    walk.bytesLeft -= key.length;
    if (!isStorableText(key)) throw refused(walk, 'the key has a NUL character or a lone surrogate');
    setOwn(result, key, normalize(value[key], walk));
    walk.path.pop();
  }
  return result;
}

/** A container's own path has as many segments as containers around it. */
function enter(walk: Walk): void {
  if (walk.path.length >= JSON_DEPTH_MAX) throw refused(walk, `the value is nested deeper than ${JSON_DEPTH_MAX} levels`);
}

function refused(walk: Walk, reason: string): InvalidJson {
  const path = jsonPointer(walk.path);
  return new InvalidJson(`Invalid JSON at ${path === '' ? 'the top level' : path}: ${reason}.`, { path, reason });
}

function tooLarge(bytesMax: number): PayloadTooLarge {
  return new PayloadTooLarge(`The JSON value is larger than ${bytesMax} bytes of UTF-8: send less, or a reference to where it is kept.`, {
    bytesMax,
  });
}

const PATH_CODE_POINTS_MAX = 200;

/** RFC 6901, cut to a length that is fit for a message. */
function jsonPointer(path: readonly (string | number)[]): string {
  const pointer = path.map((segment) => `/${String(segment).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('');
  return cutText(repairText(pointer), PATH_CODE_POINTS_MAX);
}

function nameOfType(value: unknown): string {
  if (typeof value !== 'object' || value === null) return typeof value;
  const constructor: unknown = (value as { constructor?: unknown }).constructor;
  return typeof constructor === 'function' && constructor.name !== '' ? constructor.name : 'object';
}
