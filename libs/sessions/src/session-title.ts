import { cutText, TITLE_CODE_POINTS_MAX, type JsonObject } from '@runplane/contracts';

/** A session is called after its first turn's first line, unless its metadata names it; later turns never rename it. */
export function titleOfTurn(payload: JsonObject): string | null {
  const text = payload['text'];
  if (typeof text !== 'string') return null;
  const line = text.split(/\r?\n/u).find((candidate) => candidate.trim() !== '');
  return line === undefined ? null : cutText(line.trim(), TITLE_CODE_POINTS_MAX);
}

/** The title that a session's metadata gives it, or null. */
export function titleOfMetadata(metadata: JsonObject | undefined): string | null {
  const title = metadata?.['title'];
  return typeof title === 'string' && title.trim() !== '' ? cutText(title.trim(), TITLE_CODE_POINTS_MAX) : null;
}

/** PostgreSQL takes fewer offsets than the wire, and rounds. */
export const isoTime = (time: string | null | undefined): string | null => (time == null ? null : new Date(time).toISOString());
