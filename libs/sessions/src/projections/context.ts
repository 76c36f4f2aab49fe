import type { SessionLogEvent } from '@runplane/contracts';
import { z } from 'zod';
import { addItem, carryOver, guardCheckpoint, EMPTY_HISTORY, takeOverLegacy, type History } from './context-history';
import { applyNote, guardNote, notePath, type Notes } from './context-notes';
import { currentWindow, legacyWindow, startedWindow, storedWindow, type ContextWindow } from './context-windows';
import { contextLoad, contextWrites } from './context.sql';
import type { FoldedHead, Projection } from './projection';

// The context of a session: windows, notes and history, three tables and one fold, since an item stands in the window that is current when it is said.

export interface ContextState {
  readonly sessionId: string;
  /** What the head had before the batch. */
  readonly stored: Pick<FoldedHead, 'windowId' | 'firstWindowId'>;
  /** Those that a start of a window in the batch has to know, and those that the batch has started. */
  readonly windows: ReadonlyMap<string, ContextWindow>;
  readonly startedWindows: ReadonlySet<string>;
  /** Null: none yet, items stand in the legacy window. */
  readonly windowId: string | null;
  readonly firstWindowId: string | null;
  readonly notes: Notes;
  readonly history: History;
}

const WINDOW_STARTED = 'context/window-started';
const CHECKPOINT = 'compaction/checkpoint';
const NOTES: readonly string[] = ['context/note-written', 'context/note-appended'];
const SPOKEN: readonly string[] = ['user/message', 'assistant/message', 'tool/call', 'tool/result'];
const TOUCHING = new Set([WINDOW_STARTED, CHECKPOINT, ...NOTES, ...SPOKEN]);

const int8 = z.string().transform(Number);
const Loaded = z.object({
  windows: z
    .array(
      z.object({
        windowId: z.string(),
        previousWindowId: z.string().nullable(),
        startedSequence: int8,
        eventSequence: int8,
        trigger: z.string(),
      }),
    )
    .nullish(),
  notes: z.array(z.object({ path: z.string(), bytes: z.int() })).nullish(),
});

export const contextProjection: Projection<ContextState> = {
  name: 'context',
  version: 1,
  touches: (type) => TOUCHING.has(type),

  load(events, session) {
    const starts = events.filter(({ type }) => type === WINDOW_STARTED).length;
    const appended = events.filter(({ type }) => type === 'context/note-appended').flatMap(({ data }) => notePath(data) ?? []);
    return starts === 0 && appended.length === 0 ? undefined : contextLoad(session, { starts, appended });
  },

  initial(loaded, { sessionId, head: { windowId, firstWindowId } }) {
    const { windows, notes } = Loaded.parse(loaded ?? {});
    return {
      sessionId,
      stored: { windowId, firstWindowId },
      windows: new Map(windows?.map((window) => [window.windowId, window])),
      startedWindows: new Set(),
      windowId,
      firstWindowId,
      notes: { bytes: new Map(notes?.map(({ path, bytes }) => [path, bytes])), changes: new Map() },
      history: EMPTY_HISTORY,
    };
  },

  guard({ notes, history }, event) {
    if (NOTES.includes(event.type)) guardNote(notes, event);
    if (event.type === CHECKPOINT) guardCheckpoint(history, event);
  },

  apply(state, event) {
    if (event.type === WINDOW_STARTED) return startWindow(state, event);
    if (event.type === CHECKPOINT)
      return { ...state, history: carryOver(state.history, event, (windowId) => storedWindow(windowId, state)) };
    if (NOTES.includes(event.type)) return { ...state, notes: applyNote(state.notes, event) };
    return { ...state, history: addItem(state.history, event, storedWindow(state.windowId ?? legacyWindow(state.sessionId), state)) };
  },

  writes: contextWrites,
  common: ({ startedWindows, notes, history: { added, moves, legacyTo } }) =>
    startedWindows.size + notes.changes.size + moves.length === 0 && legacyTo === undefined ? { history: added } : undefined,
  head: ({ stored, windowId, firstWindowId }) => ({
    ...(windowId === stored.windowId ? {} : { windowId }),
    ...(firstWindowId === stored.firstWindowId ? {} : { firstWindowId }),
  }),
};

function startWindow(state: ContextState, event: SessionLogEvent): ContextState {
  const started = startedWindow(event, state.windowId ?? legacyWindow(state.sessionId));
  if (started === undefined) return state;
  const windows = new Map(state.windows).set(started.windowId, started);
  return {
    ...state,
    windows,
    startedWindows: new Set(state.startedWindows).add(started.windowId),
    windowId: currentWindow(windows.values())?.windowId ?? null,
    ...takeOver(state, started.windowId),
  };
}

/** The first window that has a name of its own has what stood before it from then on; later ones get what somebody has put back into the legacy one. */
function takeOver({ sessionId, firstWindowId, history }: ContextState, windowId: string): Pick<ContextState, 'firstWindowId' | 'history'> {
  const legacy = legacyWindow(sessionId);
  if (firstWindowId === null) return { firstWindowId: windowId === legacy ? null : windowId, history };
  return { firstWindowId, history: takeOverLegacy(history, legacy, windowId) };
}
