import {
  CancelRequest,
  Command,
  CANCEL_STAGES,
  identifier,
  RegisterRunner,
  Run,
  RunEvent,
  RUN_STATES,
  WAIT_SECONDS_MAX,
} from '@runplane/contracts';
import { z } from 'zod';

// Parts of requests and answers that only HTTP has. Resources and inputs themselves are libs/contracts'.

export const RunParams = z.strictObject({ runId: identifier });
export const CommandParams = z.strictObject({ commandId: identifier });
export const RunCommandParams = z.strictObject({ runId: identifier, commandId: identifier });
export const SessionParams = z.strictObject({ sessionId: identifier });

/** Whole numbers in a query are decimal digits, nothing else that Number() takes. */
export function queryInt(min: number, max: number) {
  return z.preprocess(
    (value) => (typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value),
    z.int().min(min).max(max),
  );
}

/** `a,b`, or the parameter repeated. */
export function queryList<const Words extends readonly [string, ...string[]]>(words: Words) {
  return z.preprocess((value) => (typeof value === 'string' ? value.split(',') : value), z.array(z.enum(words)).max(words.length));
}

export const wait = queryInt(0, WAIT_SECONDS_MAX).default(0).meta({ description: 'Seconds to wait for news before an answer without any' });

export const afterSeq = queryInt(0, Number.MAX_SAFE_INTEGER).default(0).meta({ description: 'The last sequence that the caller has' });

/** Header values are bytes, which Node reads as Latin-1; a client sends the UTF-8 of an identifier. */
const utf8Header = z.preprocess((value) => (typeof value === 'string' ? Buffer.from(value, 'latin1').toString('utf8') : value), identifier);

const IDEMPOTENCY_KEY = 'Makes a repeated call return what the first one made';
export const IdempotencyHeaders = z.object({ 'idempotency-key': utf8Header.optional().meta({ description: IDEMPOTENCY_KEY }) });

/** With an id of the caller's own a repeat registers the same runner. */
export const NewRunner = RegisterRunner.extend({ runnerId: identifier.optional() }).meta({ id: 'NewRunner' });

export const RunList = z
  .object({ runs: z.array(Run), cursor: z.string().nullable().meta({ description: 'Of the next page; null at the end' }) })
  .meta({ id: 'RunList' });
export const CommandList = z.object({ commands: z.array(Command) }).meta({ id: 'CommandList' });
export const CancelRequestList = z.object({ requests: z.array(CancelRequest) }).meta({ id: 'CancelRequestList' });
export const CancelledRun = z.object({ run: Run, request: CancelRequest.nullable(), changed: z.boolean() }).meta({ id: 'CancelledRun' });
export const CancelledCommand = z
  .object({ command: Command, request: CancelRequest.nullable(), changed: z.boolean() })
  .meta({ id: 'CancelledCommand' });
export const CancelProgress = z.object({ stage: z.enum(CANCEL_STAGES) }).meta({ id: 'CancelProgress' });

export const RunEventPage = z
  .object({
    events: z.array(RunEvent),
    lastSeq: z.int().meta({ description: 'Of the run, not of this page' }),
    terminalSeq: z.int().nullable().meta({ description: 'Sequence of terminal_status once the run has ended' }),
    status: z.enum(RUN_STATES),
  })
  .meta({ id: 'RunEventPage' });
