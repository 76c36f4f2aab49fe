import {
  COPY_CHUNK_BYTES,
  COPY_CHUNK_EVENTS,
  COPY_OPEN_MAX,
  identifier,
  importedEventId,
  IMPORT_EVENTS_MAX,
  IMPORT_HEADER_BYTES_MAX,
  InvalidImport,
  isDomainError,
  normalizeJson,
  checkSessionEvent,
  SessionEventType,
  SessionHeader,
  type CopiedSession,
  type JsonObject,
} from '@runplane/contracts';
import type { Db } from '@runplane/database';
import { z } from 'zod';
import { copySession } from './copy-session';
import type { CopiedEvent } from './copy.sql';
import { linesOf } from './import-lines';

/** As the database and the wire have them: an offset leads beyond the years that RFC 3339 can write, and 0000 is one of them. */
const TIME_MS_MIN = Date.parse('0001-01-01T00:00:00.000Z');
const TIME_MS_MAX = Date.parse('9999-12-31T23:59:59.999Z');
const isStorableTime = (time: string | number): boolean => {
  const ms = new Date(time).getTime();
  return ms >= TIME_MS_MIN && ms <= TIME_MS_MAX;
};

/** `time` as the wire has it, or the originals' milliseconds. */
const ImportedEvent = z.looseObject({
  sequence: z.int().min(0),
  type: SessionEventType,
  time: z.union([z.iso.datetime({ offset: true }), z.int().min(0)]).refine(isStorableTime, 'must be of the years 1 to 9999'),
  data: z.custom<JsonObject>((value) => typeof value === 'object' && value !== null && !Array.isArray(value), 'expected a JSON object'),
  turnId: identifier.nullish(),
  turn_id: identifier.nullish(),
  stepId: identifier.nullish(),
  step_id: identifier.nullish(),
});

export interface ImportSession {
  readonly tenantId: string;
  readonly content: AsyncIterable<Uint8Array>;
  /** Throws the refusal of whoever may not bring an event of this type. */
  readonly assertMayBring?: ((type: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Makes a session from its lines of JSON, as exportSession (readSessionLines) writes them: the header, marked with the type `session`, then one event
 * per line, from sequence 0 on without a gap.
 *
 * Input     content: bytes, streamed; up to 64 MiB and 100,000 events, which may leave 2,000 requests and submissions open. Whose session it is, is said by the tenant; its id by the header.
 * Returns   how far it was copied, and what was closed in it.
 * Events    keep their very lines, and have the ids that the originals gave them, so that consumers that had them know them. The feed does not have
 *           them again. Data with NUL or lone surrogates is repaired where it is read, not in its line.
 * Views     are folded as a rebuild does, without guards: these are facts. What is open is closed by events; nothing else is added to the log.
 * Errors    InvalidImport with the number of the line; what assertMayBring throws; SessionExists, TenantNotFound. An import that fails leaves nothing to be seen.
 * Repeat    finds the session it has made: SessionExists.   Source: docs/adr/0023-copies-of-sessions.md.
 */
export async function importSession(db: Db, { tenantId, content, assertMayBring, signal }: ImportSession): Promise<CopiedSession> {
  const lines = linesOf(content);
  const first = await lines.next();
  if (first.done === true) throw invalid(1, 'there is no header');
  const header = parseHeader(first.value.text);
  const text = (name: string): string | null => (typeof header[name] === 'string' ? header[name] : null);
  const copy = { tenantId, sessionId: header.id, header, projectId: text('projectId'), backendProfile: text('backendProfile') };
  const tooMuchOpen = (lastSequence: number): InvalidImport =>
    invalid(lastSequence + 2, `behind it more than ${COPY_OPEN_MAX} submissions, approvals and input requests are open: end them first`);
  return copySession(db, { ...copy, reason: 'session-imported', tooMuchOpen, signal }, () => batchesOf(header.id, lines, assertMayBring));
}

async function* batchesOf(
  sessionId: string,
  lines: AsyncIterable<{ number: number; text: string }>,
  assertMayBring: ImportSession['assertMayBring'],
): AsyncGenerator<CopiedEvent[]> {
  let batch: CopiedEvent[] = [];
  let bytes = 0;
  let next = 0;
  for await (const { number, text } of lines) {
    if (next >= IMPORT_EVENTS_MAX) throw invalid(number, `there are more than ${IMPORT_EVENTS_MAX} events`);
    const event = parseEvent(sessionId, text, { number, next });
    assertMayBring?.(event.type);
    batch.push(event);
    next += 1;
    bytes += text.length;
    if (batch.length < COPY_CHUNK_EVENTS && bytes < COPY_CHUNK_BYTES) continue;
    yield batch;
    batch = [];
    bytes = 0;
  }
  yield batch;
}

function parseHeader(text: string): JsonObject & { id: string } {
  const value = parseJson(text, 1);
  if (typeof value !== 'object' || value === null || (value as JsonObject)['type'] !== 'session')
    throw invalid(1, 'it is no header: its type is not session');
  const { type: _, ...header } = value as JsonObject;
  return refusing(1, () => {
    const normalized = normalizeJson(header, { bytesMax: IMPORT_HEADER_BYTES_MAX }).value;
    const parsed = SessionHeader.safeParse(normalized);
    if (!parsed.success) throw invalid(1, issueOf(parsed.error));
    return normalized as JsonObject & { id: string };
  });
}

function parseEvent(sessionId: string, text: string, { number, next }: { number: number; next: number }): CopiedEvent {
  const parsed = ImportedEvent.safeParse(parseJson(text, number));
  if (!parsed.success) throw invalid(number, issueOf(parsed.error));
  const { sequence, type, time, data, turnId, turn_id, stepId, step_id } = parsed.data;
  if (sequence !== next) throw invalid(number, `its sequence is ${sequence}, not ${next}`);
  return refusing(number, () => {
    const normalized = normalizeJson<JsonObject>(data);
    checkSessionEvent(type, normalized.value);
    return {
      sequence,
      eventId: importedEventId(sessionId, sequence),
      type,
      time: new Date(time).toISOString(),
      turnId: turnId ?? turn_id ?? null,
      stepId: stepId ?? step_id ?? null,
      dataText: normalized.text,
      line: text,
    };
  });
}

function parseJson(text: string, number: number): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw invalid(number, 'it is no JSON');
  }
}

/** What one value is refused for is said of its line. */
function refusing<T>(number: number, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!isDomainError(error) || error instanceof InvalidImport) throw error;
    throw new InvalidImport(`Line ${number}: ${error.message}`, { line: number, reason: error.message }, { cause: error });
  }
}

const issueOf = ({ issues: [issue] }: z.ZodError): string => `${issue?.path.map(String).join('.') ?? ''}: ${issue?.message ?? 'not valid'}`;

export function invalid(line: number, reason: string): InvalidImport {
  return new InvalidImport(`Line ${line}: ${reason}.`, { line, reason });
}
