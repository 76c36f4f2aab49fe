import {
  NOTE_BYTES_MAX,
  NOTE_PATH_BYTES_MAX,
  PayloadTooLarge,
  repairText,
  utf8Bytes,
  type JsonObject,
  type SessionLogEvent,
} from '@runplane/contracts';
import { textField } from './fields';

/** What a batch does to one note: its whole text, or what is put behind the stored one. */
export interface NoteChange {
  readonly isWhole: boolean;
  readonly text: string;
  readonly sequence: number;
}

export interface Notes {
  /** Bytes of UTF-8 of the notes that are known; one that is not there has none. */
  readonly bytes: ReadonlyMap<string, number>;
  readonly changes: ReadonlyMap<string, NoteChange>;
}

/** Absent: the note with the empty path. Undefined: no path that a key could hold. */
export function notePath(data: JsonObject): string | undefined {
  const path = repairText(textField(data, 'path') ?? '');
  return utf8Bytes(path) <= NOTE_PATH_BYTES_MAX ? path : undefined;
}

const noteText = (data: JsonObject): string => repairText(textField(data, 'text') ?? '');
const isAppend = (type: string): boolean => type === 'context/note-appended';

/** Errors: PayloadTooLarge, for a note that would grow beyond its bound. */
export function guardNote({ bytes }: Notes, { type, data }: SessionLogEvent): void {
  const before = isAppend(type) ? (bytes.get(notePath(data) ?? '') ?? 0) : 0;
  if (before + utf8Bytes(noteText(data)) <= NOTE_BYTES_MAX) return;
  throw new PayloadTooLarge(`The note would be larger than ${NOTE_BYTES_MAX} bytes of UTF-8: write it anew, or begin another.`, {
    bytesMax: NOTE_BYTES_MAX,
  });
}

export function applyNote({ bytes, changes }: Notes, { sequence, type, data }: SessionLogEvent): Notes {
  const path = notePath(data);
  if (path === undefined) return { bytes, changes };
  const text = noteText(data);
  const before = isAppend(type) ? changes.get(path) : undefined;
  const change: NoteChange =
    before === undefined ? { isWhole: !isAppend(type), text, sequence } : { ...before, text: before.text + text, sequence };
  const bytesBefore = isAppend(type) ? (bytes.get(path) ?? 0) : 0;
  return { bytes: new Map(bytes).set(path, bytesBefore + utf8Bytes(text)), changes: new Map(changes).set(path, change) };
}
