import { utf8Bytes, WORKSPACE_PATH_BYTES_MAX, type JsonObject, type JsonValue } from '@runplane/contracts';

// What the run list is filtered and searched by, beside the run's own columns. Letters are lowered here alone, for texts and terms alike: the
// database's lower() depends on its locale.

/** The path of a workspace reference; null where it has none, or one that no index entry has room for. */
export function workspacePathOf(workspaceRef: JsonObject): string | null {
  const { path } = workspaceRef;
  return typeof path === 'string' && utf8Bytes(path) <= WORKSPACE_PATH_BYTES_MAX ? path : null;
}

/** The text that a search looks through, one line for each thing; a run's end adds its failure. */
export function searchTextOf(run: {
  runId: string;
  projectId: string;
  workspaceRef: JsonObject;
  backendProfile: string;
  providerId: string;
  sessionId: string | null;
  sessionRef: JsonObject | null;
  traceSink: JsonValue | null;
}): string {
  const { runId, projectId, workspaceRef, backendProfile, providerId, sessionId, sessionRef, traceSink } = run;
  return searchLines([
    runId,
    projectId,
    textOf(workspaceRef['path']),
    backendProfile,
    providerId,
    sessionId,
    textOf(memberOf(sessionRef?.['metadata'], 'title')),
    textOf(memberOf(traceSink, 'taskId')),
    textOf(memberOf(traceSink, 'lane')),
  ]);
}

export function searchLines(parts: readonly (string | null)[]): string {
  return parts
    .filter((part) => part !== null && part !== '')
    .join('\n')
    .toLowerCase();
}

/** The LIKE pattern that finds a term anywhere; its `%`, `_` and `\` are those characters and nothing else. */
export function searchPattern(term: string): string {
  return `%${term.toLowerCase().replace(/[\\%_]/g, (special) => `\\${special}`)}%`;
}

/**
 * What the trigram index is asked for a term: its longest word with a digit in it, else all of it; undefined where it has no word of three. The
 * index reads the places of every trigram of what it is asked: one number of an id finds few texts, its whole with `run` and the dashes reads
 * those of all. It knows letters by the database's locale; of those that it might not know it would look at every text.
 */
export function indexPattern(term: string): string | undefined {
  const words = term.toLowerCase().match(/[a-z0-9]{3,}/g);
  if (words === null) return undefined;
  const [numbered] = words.filter((word) => /\d/.test(word)).sort((a, b) => b.length - a.length);
  return searchPattern(numbered ?? term);
}

function memberOf(value: JsonValue | undefined, name: string): JsonValue | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? value[name] : undefined;
}

/** Numbers are searched as they are written, as the original's JSON operators gave them. */
function textOf(value: JsonValue | undefined): string | null {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : null;
}
