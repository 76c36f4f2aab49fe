import { z } from 'zod';
import { InvalidCursor } from './errors';

/** What a list keeps of its last row; positions beyond 2^53 and times are text. */
export type CursorParts = Record<string, string | number | null>;

const VERSION = 1;
/** Room for three identifiers of full length, and below what proxies allow in a query. */
export const CURSOR_CHARS_MAX = 2048;
const PARTS_MAX = 8;

/** A time as rows have it. PostgreSQL has no year 0, and would fail over it instead of refusing it. */
export const cursorTime = z.iso.datetime({ precision: 3 }).regex(/^(?!0000)/);

const Envelope = z.tuple([
  z.literal(VERSION),
  z.string(),
  z.string().nullable(),
  z.record(z.string(), z.union([z.string(), z.number(), z.null()])),
]);

/**
 * An opaque cursor: base64url of compact JSON. It is bound to the kind of list and, by `filterHash`, to the filter it was made under.
 * It is not signed: a forged one reads only what its list would show anyway, because tenant and filter come from the call.
 */
export function encodeCursor(kind: string, parts: CursorParts, filterHash?: string): string {
  const cursor = Buffer.from(JSON.stringify([VERSION, kind, filterHash ?? null, parts]), 'utf8').toString('base64url');
  if (cursor.length > CURSOR_CHARS_MAX) throw new Error(`encodeCursor: a ${kind} cursor has ${cursor.length} characters`);
  return cursor;
}

/** The parts of a cursor of this kind and filter; the caller judges their names and types (see defineCursor). Else InvalidCursor. */
export function decodeCursor(kind: string, text: string, filterHash?: string): CursorParts {
  const envelope = Envelope.safeParse(parseEnvelope(text));
  if (!envelope.success) throw malformed();
  const [, cursorKind, cursorFilter, parts] = envelope.data;
  if (cursorKind !== kind) throw invalid(`the cursor belongs to another list (${kind} expected)`);
  if (cursorFilter !== (filterHash ?? null)) throw invalid('the cursor was made under another filter');
  if (Object.keys(parts).length > PARTS_MAX) throw malformed();
  return parts;
}

export interface Cursor<Parts extends CursorParts> {
  encode(parts: Parts, filterHash?: string): string;
  decode(text: string, filterHash?: string): Parts;
}

/** One list's cursor with typed parts: a forged cursor with other names or types is InvalidCursor too, and never reaches SQL. */
export function defineCursor<Parts extends CursorParts>(kind: string, shape: z.ZodType<Parts>): Cursor<Parts> {
  return {
    encode: (parts, filterHash) => encodeCursor(kind, parts, filterHash),
    decode(text, filterHash) {
      const parts = shape.safeParse(decodeCursor(kind, text, filterHash));
      if (!parts.success) throw malformed();
      return parts.data;
    },
  };
}

function parseEnvelope(text: string): unknown {
  if (text.length > CURSOR_CHARS_MAX || !/^[\w-]+$/.test(text)) return undefined;
  try {
    return JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
  } catch {
    return undefined;
  }
}

function malformed(): InvalidCursor {
  return invalid('the cursor is malformed');
}

function invalid(reason: string): InvalidCursor {
  return new InvalidCursor(
    `${reason[0]?.toUpperCase()}${reason.slice(1)}: pass a cursor unchanged, with the filter it came from, or start again without one.`,
    { reason },
  );
}
