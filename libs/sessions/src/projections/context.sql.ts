import { sql, textLines, type Sql } from '@runplane/database';
import type { ContextState } from './context';
import { carriedItems, type HistoryItem } from './context-history';
import { legacyWindow } from './context-windows';
import type { FoldContext } from './projection';

/**
 * What the starts of windows and the appended notes of a batch have to know: of the windows the latest, one more than the batch can start anew
 * (so that the latest of the others is among them), of the notes their size.
 */
export function contextLoad(
  { tenantId, sessionId }: Pick<FoldContext, 'tenantId' | 'sessionId'>,
  { starts, appended }: { starts: number; appended: readonly string[] },
): Sql {
  const windows = sql`(SELECT json_agg(json_build_object('windowId', w.window_id, 'previousWindowId', w.previous_window_id,
      'startedSequence', w.started_sequence::text, 'eventSequence', w.event_sequence::text, 'trigger', w.trigger))
    FROM (SELECT * FROM runplane.context_windows w WHERE w.tenant_id = ${tenantId}::text AND w.session_id = ${sessionId}::text
      ORDER BY w.started_sequence DESC, w.event_sequence DESC LIMIT ${starts + 1}::int) w)`;
  const notes = sql`(SELECT json_agg(json_build_object('path', n.path, 'bytes', octet_length(n.content))) FROM runplane.context_notes n
    WHERE n.tenant_id = ${tenantId}::text AND n.session_id = ${sessionId}::text AND n.path = ANY(${appended}::text[]))`;
  if (starts === 0) return sql`json_build_object('notes', ${notes})`;
  if (appended.length === 0) return sql`json_build_object('windows', ${windows})`;
  return sql`json_build_object('windows', ${windows}, 'notes', ${notes})`;
}

/** No row is written by two parts: an item is added, or carried by its sequence, or moved with the legacy window. */
export function contextWrites(state: ContextState): readonly Sql[] {
  return [...windowWrites(state), ...noteWrites(state), ...historyWrites(state)];
}

function windowWrites({ windows, startedWindows }: ContextState): readonly Sql[] {
  const started = [...windows.values()].filter(({ windowId }) => startedWindows.has(windowId));
  if (started.length === 0) return [];
  return [
    sql`context_windows AS (
      INSERT INTO runplane.context_windows (tenant_id, session_id, window_id, previous_window_id, started_sequence, event_sequence, trigger)
      SELECT d.tenant_id, d.session_id, w.window_id, w.previous_window_id, w.started_sequence::bigint, w.event_sequence::bigint, w.trigger
      FROM d CROSS JOIN unnest(${started.map(({ windowId }) => windowId)}::text[], ${started.map(({ previousWindowId }) => previousWindowId)}::text[],
        ${started.map(({ startedSequence }) => String(startedSequence))}::text[], ${started.map(({ eventSequence }) => String(eventSequence))}::text[],
        ${started.map(({ trigger }) => trigger)}::text[]) AS w(window_id, previous_window_id, started_sequence, event_sequence, trigger)
      ON CONFLICT (tenant_id, session_id, window_id) DO UPDATE SET previous_window_id = excluded.previous_window_id,
        started_sequence = excluded.started_sequence, event_sequence = excluded.event_sequence, trigger = excluded.trigger)`,
  ];
}

function noteWrites({ notes: { changes } }: ContextState): readonly Sql[] {
  if (changes.size === 0) return [];
  const notes = [...changes].map(([path, change]) => ({ path, ...change }));
  const appended = notes.filter(({ isWhole }) => !isWhole).map(({ path }) => path);
  return [
    sql`context_notes AS (
      INSERT INTO runplane.context_notes AS n (tenant_id, session_id, path, content, updated_sequence)
      SELECT d.tenant_id, d.session_id, w.path, w.content, w.sequence::bigint
      FROM d CROSS JOIN unnest(${notes.map(({ path }) => path)}::text[], ${notes.map(({ text }) => text)}::text[],
        ${notes.map(({ sequence }) => String(sequence))}::text[]) AS w(path, content, sequence)
      ON CONFLICT (tenant_id, session_id, path) DO UPDATE SET updated_sequence = excluded.updated_sequence,
        content = CASE WHEN excluded.path = ANY(${appended}::text[]) THEN n.content || excluded.content ELSE excluded.content END)`,
  ];
}

/** Items of one session. */
export const addHistory = (items: readonly HistoryItem[]): Sql => sql`context_history_added AS (
      INSERT INTO runplane.context_history (tenant_id, session_id, sequence, window_id, role, tool_name, content)
      SELECT d.tenant_id, d.session_id, i.sequence::bigint, i.window_id, i.role, i.tool_name, i.content
      FROM d CROSS JOIN ${historyRows(items)} AS i(sequence, window_id, role, tool_name, content))`;

export const historyRows = (items: readonly HistoryItem[]): Sql =>
  sql`unnest(${textLines(items.map(({ sequence }) => String(sequence)))}, ${textLines(items.map(({ windowId }) => windowId))},
        ${textLines(items.map(({ role }) => role))}, ${items.map(({ toolName }) => toolName)}::text[], ${items.map(({ content }) => content)}::text[])`;

function historyWrites({ sessionId, history }: ContextState): readonly Sql[] {
  const { added, legacyTo } = history;
  const carried = carriedItems(history);
  const legacy = legacyWindow(sessionId);
  const carriedSequences = [...carried.keys()].map(String);
  const parts: Sql[] = [];
  if (added.length > 0) parts.push(addHistory(added));
  if (carried.size > 0) {
    parts.push(sql`context_history_carried AS (
      UPDATE runplane.context_history h SET window_id = c.window_id
      FROM d CROSS JOIN unnest(${carriedSequences}::text[], ${[...carried.values()]}::text[]) AS c(sequence, window_id)
      WHERE h.tenant_id = d.tenant_id AND h.session_id = d.session_id AND h.sequence = c.sequence::bigint)`);
  }
  if (legacyTo !== undefined && legacyTo !== legacy) {
    // NOT IN of a subquery, which is hashed whatever the plan: the list of a checkpoint may be as long as the history.
    parts.push(sql`context_history_moved AS (
      UPDATE runplane.context_history h SET window_id = ${legacyTo}::text FROM d
      WHERE h.tenant_id = d.tenant_id AND h.session_id = d.session_id AND h.window_id = ${legacy}::text
        AND h.sequence NOT IN (SELECT c.sequence::bigint FROM unnest(${carriedSequences}::text[]) AS c(sequence)))`);
  }
  return parts;
}
