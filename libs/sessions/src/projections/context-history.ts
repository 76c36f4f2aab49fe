import {
  CARRIED_ITEMS_MAX,
  fieldOf,
  InvalidRequest,
  JSON_DEPTH_MAX,
  repairText,
  type JsonValue,
  type SessionLogEvent,
} from '@runplane/contracts';
import { identifierField, isInteger, textField } from './fields';

// What was said, as text, and the window that each item stands in. Items never change; windows do: a checkpoint carries items over into another
// window, and a window that starts takes over what stands in the legacy one. The fold keeps both kinds of moves until the end of the batch, since
// they also concern items that are stored already. What the first window takes over is not moved (BEFORE_FIRST).

export const HISTORY_ROLES = ['user', 'assistant', 'tool'] as const;
export type HistoryRole = (typeof HISTORY_ROLES)[number];

export interface HistoryItem {
  readonly sequence: number;
  /** BEFORE_FIRST: the first window's, or the legacy one while there is none. */
  readonly windowId: string;
  readonly role: HistoryRole;
  readonly toolName: string | null;
  readonly content: string;
}

export interface History {
  readonly added: readonly HistoryItem[];
  /** What checkpoints carry over, one after the other; of items that the batch has added, `added` says it too. */
  readonly moves: readonly Move[];
  /** Where all other items that are stored under the legacy window's name stand now: those that were put there behind the first window. */
  readonly legacyTo: string | undefined;
}

export interface Move {
  readonly sequences: ReadonlySet<number>;
  readonly windowId: string;
}

export const EMPTY_HISTORY: History = { added: [], moves: [], legacyTo: undefined };

/** Stored items by sequence, and the window that they stand in now. Made once, at the end: a batch may have 500 checkpoints of a thousand items each. */
export function carriedItems({ moves, added }: History): Map<number, string> {
  const carried = new Map<number, string>();
  for (const { sequences, windowId } of moves) for (const sequence of sequences) carried.set(sequence, windowId);
  for (const { sequence } of added) carried.delete(sequence);
  return carried;
}

const TEXT_KEYS = new Set(['content', 'text', 'name', 'arguments', 'message']);

/**
 * The text in a JSON value: of an object what its keys content, text, name, arguments and message hold, in its own key order, of an array what
 * its elements hold, in lines; an element with nothing leaves an empty line. Numbers, booleans and null have none.
 */
export function textIn(value: JsonValue | undefined, depth = 0): string {
  if (typeof value === 'string') return value;
  if (typeof value !== 'object' || value === null || depth > JSON_DEPTH_MAX) return '';
  const parts = Array.isArray(value) ? value : Object.keys(value).flatMap((key) => (TEXT_KEYS.has(key) ? [value[key]] : []));
  return parts.map((part) => textIn(part, depth + 1)).join('\n');
}

/** The item that an event adds; undefined: none. */
function itemOf({ sequence, type, data }: SessionLogEvent, windowId: string): HistoryItem | undefined {
  const item = (role: HistoryRole, content: string, toolName: string | null = null): HistoryItem => ({
    sequence,
    windowId,
    role,
    toolName,
    content: repairText(content),
  });
  switch (type) {
    case 'user/message':
      return item('user', textIn(data));
    case 'assistant/message':
      return item('assistant', textIn(fieldOf(data, 'message')));
    case 'tool/call':
      return item('tool', argumentsText(fieldOf(data, 'arguments')), repairText(textField(data, 'name') ?? '') || null);
    case 'tool/result':
      return item('tool', textIn(fieldOf(data, 'message')));
    default:
      return undefined;
  }
}

/** Arguments are JSON text as models write it, or what it says. */
function argumentsText(value: JsonValue | undefined): string {
  if (value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

export function addItem(history: History, event: SessionLogEvent, windowId: string): History {
  const item = itemOf(event, windowId);
  return item === undefined ? history : { ...history, added: [...history.added, item] };
}

/** A window takes over what stands under the legacy window's name. */
export function takeOverLegacy({ added, moves, legacyTo }: History, legacy: string, windowId: string): History {
  const moved = (from: string): string => (from === legacy ? windowId : from);
  return {
    added: added.map((item) => ({ ...item, windowId: moved(item.windowId) })),
    moves: moves.map((move) => ({ ...move, windowId: moved(move.windowId) })),
    legacyTo: legacyTo === undefined || legacyTo === legacy ? windowId : legacyTo,
  };
}

/** Errors: InvalidRequest, for a checkpoint by which its append would carry over too many items. */
export function guardCheckpoint({ moves }: History, { data }: SessionLogEvent): void {
  const listed = fieldOf(data, 'carriedEventSequences');
  const before = moves.reduce((sum, { sequences }) => sum + sequences.size, 0);
  if (!Array.isArray(listed) || before + listed.length <= CARRIED_ITEMS_MAX) return;
  const message = `carry over no more than ${CARRIED_ITEMS_MAX} items with one append`;
  throw new InvalidRequest(`The input is not valid: carriedEventSequences: ${message}.`, {
    issues: [{ path: 'carriedEventSequences', message }],
  });
}

/** `compaction/checkpoint`: the named items stand in the named window from now on. What names no item is passed over. `stored`: how a name is stored. */
export function carryOver(history: History, event: SessionLogEvent, stored: (windowId: string) => string): History {
  const named = identifierField(event.data, 'windowId');
  const listed = fieldOf(event.data, 'carriedEventSequences');
  if (named === undefined || !Array.isArray(listed)) return history;
  const windowId = stored(named);
  const isEarlier = (sequence: number): boolean => sequence >= 0 && sequence < event.sequence;
  const sequences = new Set(listed.filter(isInteger).filter(isEarlier));
  return {
    ...history,
    added: history.added.map((item) => (sequences.has(item.sequence) ? { ...item, windowId } : item)),
    moves: [...history.moves, { sequences, windowId }],
  };
}
