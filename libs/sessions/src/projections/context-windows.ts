import { fieldOf, repairText, type SessionLogEvent } from '@runplane/contracts';
import { identifierField, integerField, textField } from './fields';

/** A part of what the model sees; the one with the greatest (startedSequence, eventSequence) is current. */
export interface ContextWindow {
  readonly windowId: string;
  readonly previousWindowId: string | null;
  readonly startedSequence: number;
  readonly eventSequence: number;
  readonly trigger: string;
}

/** Where items stand before the first window; no row of the windows' table has this name, unless a window start names no window. */
export const legacyWindow = (sessionId: string): string => `legacy-${sessionId}`;

/**
 * What the history has in the place of the legacy window's name until the first window takes its items over: who reads puts in the name of that
 * window, so that a log of any length is taken over by one column of the head. No identifier begins with a space.
 */
export const BEFORE_FIRST = ' before the first';

/** How the history has a window's name while `firstWindowId` is the first. */
export const storedWindow = (windowId: string, { sessionId, firstWindowId }: WindowNames): string =>
  firstWindowId === null && windowId === legacyWindow(sessionId) ? BEFORE_FIRST : windowId;

/** The window of an item that is stored so. */
export const windowOf = (stored: string, { sessionId, firstWindowId }: WindowNames): string =>
  stored === BEFORE_FIRST ? (firstWindowId ?? legacyWindow(sessionId)) : stored;

/** Every name by which the history has items of a window. */
export const storedWindows = (windowId: string, names: WindowNames): readonly string[] =>
  windowOf(BEFORE_FIRST, names) === windowId ? [BEFORE_FIRST, windowId] : [windowId];

interface WindowNames {
  readonly sessionId: string;
  readonly firstWindowId: string | null;
}

export function currentWindow(windows: Iterable<ContextWindow>): ContextWindow | undefined {
  let current: ContextWindow | undefined;
  for (const window of windows) if (current === undefined || isLater(window, current)) current = window;
  return current;
}

function isLater(a: ContextWindow, b: ContextWindow): boolean {
  return a.startedSequence !== b.startedSequence ? a.startedSequence > b.startedSequence : a.eventSequence > b.eventSequence;
}

/** The window that `context/window-started` begins or begins again; undefined where it names one that cannot be. */
export function startedWindow({ sequence, data }: SessionLogEvent, current: string): ContextWindow | undefined {
  const windowId = fieldOf(data, 'windowId') === undefined ? current : identifierField(data, 'windowId');
  if (windowId === undefined) return undefined;
  return {
    windowId,
    previousWindowId: identifierField(data, 'previousWindowId') ?? null,
    startedSequence: integerField(data, 'startedSequence') ?? sequence,
    eventSequence: sequence,
    trigger: repairText(textField(data, 'trigger') ?? 'initial'),
  };
}
