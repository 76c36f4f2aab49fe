import { hash } from 'node:crypto';
import { isPlainObject, type JsonValue } from './json';
import { JSON_DEPTH_MAX } from './limits';

/** Stored beside each hash; a change of canonicalJson or of the hash function gets the next number. */
export const HASH_VERSION = 1;

export interface ContentHash {
  /** Lower-case hex SHA-256 of the canonical JSON. */
  hash: string;
  version: typeof HASH_VERSION;
}

/**
 * The hash by which a replay is told from a conflict (IDEM-1). Numbers are equal as IEEE doubles (1.0 is 1, -0 is 0); an absent field
 * is not null. Hash what the caller sent, normalized, and never defaults filled in: a later release with another default would turn
 * replays into conflicts.
 */
export function contentHash(value: JsonValue): ContentHash {
  return { hash: sha256Hex(canonicalJson(value)), version: HASH_VERSION };
}

export function sha256Hex(text: string): string {
  return hash('sha256', text, 'hex'); // in one call: an object per hash costs several times as much, most of it when it is collected
}

// A hash input wraps one normalized payload in a few objects of our own.
const DEPTH_MAX = JSON_DEPTH_MAX + 8;

/**
 * RFC 8785: keys in the order of their UTF-16 code units, on every host and in every locale; strings and numbers as JSON.stringify
 * writes them. Anything but JSON is a plain Error: silently dropped, it would make different values equal. (The package `canonicalize`
 * drops undefined and symbols and calls toJSON; the spec compares the two on JSON.)
 */
export function canonicalJson(value: JsonValue): string {
  return isInOrder(value, 0) ? JSON.stringify(value) : canonical(value, 0);
}

/** JSON of which all keys are in order already: JSON.stringify then writes the canonical text, at a fraction of the time. */
function isInOrder(value: unknown, depth: number): boolean {
  if (depth > DEPTH_MAX) return false;
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return true;
  if (typeof value === 'number') return Number.isFinite(value);
  if (Array.isArray(value)) {
    for (let place = 0; place < value.length; place += 1) if (!isInOrder(value[place], depth + 1)) return false;
    return true;
  }
  if (!isPlainObject(value)) return false;
  let before: string | undefined;
  for (const key of Object.keys(value)) {
    if ((before !== undefined && key < before) || !isInOrder(value[key], depth + 1)) return false;
    before = key;
  }
  return true;
}

function canonical(value: unknown, depth: number): string {
  if (depth > DEPTH_MAX) throw new Error(`canonicalJson: nested deeper than ${DEPTH_MAX} levels`);
  if (value === null || typeof value === 'boolean') return String(value);
  if (typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number' && Number.isFinite(value)) return JSON.stringify(value);
  if (Array.isArray(value)) {
    let elements = '';
    for (let place = 0; place < value.length; place += 1) elements += (place === 0 ? '' : ',') + canonical(value[place], depth + 1); // holes are refused
    return `[${elements}]`;
  }
  if (isPlainObject(value)) {
    let members = '';
    for (const key of Object.keys(value).sort())
      // by code units: no locale takes part
      members += `${members === '' ? '' : ','}${JSON.stringify(key)}:${canonical(value[key], depth + 1)}`;
    return `{${members}}`;
  }
  throw new Error(`canonicalJson: a value of type ${typeof value} is not JSON`);
}
