import {
  COPY_CHUNK_EVENTS,
  COPY_OPEN_MAX,
  ForkSession,
  InvalidRequest,
  parseInput,
  sessionEventId,
  type CopiedSession,
  type JsonObject,
} from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { pagesOf, type SessionLife } from '../read-session-events';
import { requireOpenHead } from '../require-head';
import { requireSession } from '../session';
import type { SessionKey } from '../session.sql';
import { copySession, type CopyTarget } from './copy-session';
import type { CopiedEvent } from './copy.sql';

/**
 * Makes a session of its own from another one, as it was up to an event: the same log so far, and from there on a life of its own.
 *
 * Input     newSessionId: not in use; throughSequence: of the last event copied, all when left out; no more than 2,000 may be open there.
 * Returns   how far it was copied, and what was closed in it.
 * Events    are copied with ids of the new session's own, their data verbatim, in batches of 500; runs stay with the session they worked in. The feed
 *           does not have them again; the first event of its own, `session/forked`, says where they come from.
 * Views     are folded from the copied log as a rebuild does. Leases, claims and read marks are not copied; what is open in the copied part is closed.
 * Locks     per batch: session → session head, of the new one. The source is only read.
 * Errors    SessionNotFound, SessionDeleted (the source), SessionExists, InvalidRequest. A fork that fails leaves nothing to be seen.
 * Repeat    finds the session it has made: SessionExists.   Source: docs/adr/0023-copies-of-sessions.md.
 */
export async function forkSession(
  db: Db,
  { tenantId, sessionId, signal, ...input }: SessionKey & ForkSession & { signal?: AbortSignal | undefined },
): Promise<CopiedSession> {
  const { newSessionId, throughSequence } = parseInput(ForkSession, input);
  const source = { tenantId, sessionId };
  const [head, control] = [await requireOpenHead(db.sql, source), await requireSession(db.sql, source)];
  const through = throughSequence ?? head.lastSequence;
  if (through > head.lastSequence) throw invalidEnd(`the log ends at ${head.lastSequence}`);
  const forkedFrom: JsonObject = { sessionId, sequence: through };
  return copySession(
    db,
    {
      tenantId,
      sessionId: newSessionId,
      header: { ...head.header, id: newSessionId, forkedFrom },
      projectId: control.projectId,
      backendProfile: control.backendProfile,
      reason: 'session-forked',
      marker: { type: 'session/forked', data: { from: forkedFrom, incarnation: head.incarnation } },
      tooMuchOpen: () => invalidEnd(`more than ${COPY_OPEN_MAX} submissions, approvals and input requests are open there`),
      signal,
    },
    (target) =>
      copiedFrom(db, { ...source, incarnation: head.incarnation }, { through, target, to: { tenantId, sessionId: newSessionId } }),
  );
}

const invalidEnd = (message: string): InvalidRequest =>
  new InvalidRequest(`The input is not valid: throughSequence: ${message}.`, { issues: [{ path: 'throughSequence', message }] });

async function* copiedFrom(
  db: Db,
  source: SessionLife,
  { through, target, to }: { through: number; target: CopyTarget; to: SessionKey },
): AsyncGenerator<CopiedEvent[]> {
  const life = { tenantId: to.tenantId, incarnation: target.incarnation };
  for await (const rows of pagesOf(db.sql, source, 0, through)) {
    for (let from = 0; from < rows.length; from += COPY_CHUNK_EVENTS) {
      yield rows
        .slice(from, from + COPY_CHUNK_EVENTS)
        .map((row) => ({ ...row, eventId: sessionEventId(target.storeId, life, row.sequence), line: null }));
    }
  }
}
