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
