import {
  contentHash,
  IdempotencyConflict,
  isDomainError,
  parseInput,
  QueuedTurnPayload,
  type JsonObject,
  type JsonValue,
} from '@runplane/contracts';
import type { SqlExecutor } from '@runplane/database';
import { findQueuedTurn, type SubmissionKey, type WaitingTurn } from '@runplane/sessions';
import { parseCommand, type WantedCommand } from './create-command';
import { parseNewRun } from './create-run';

// Turns as submissions hold them. What is compared when a key comes again is what is asked for, not how it was written.

type ParsedRun = ReturnType<typeof parseNewRun>;

/** A turn as it would wait in the queue. Its payload is made when it is needed: most turns never wait. */
export function waitingTurn(key: SubmissionKey, run: ParsedRun, command: WantedCommand): WaitingTurn {
  return {
    ...key,
    get payload() {
      return payloadOf(run, command);
    },
  };
}

/** What was asked for, without what only the call says. */
function payloadOf({ sessionRef, ...run }: ParsedRun, { payload, dispatch }: WantedCommand): JsonObject {
  const { sessionId: _, ...ref } = sessionRef ?? { sessionId: '' };
  const turn = {
    run: { ...run, ...(Object.keys(ref).length === 0 ? {} : { sessionRef: ref }) },
    payload,
    dispatch: dispatch === null ? null : { kind: dispatch.kind, input: dispatch.input },
  };
  return JSON.parse(JSON.stringify(turn)) as JsonObject; // what is undefined is not said
}

/** Whether the queue of the session knows the turn, or anything waits in it. Errors: IdempotencyConflict: it knows another one by this key. */
export async function lookIntoQueue(on: SqlExecutor, turn: WaitingTurn): Promise<{ isKnown: boolean; isQueueEmpty: boolean }> {
  const { known, isQueueEmpty } = await findQueuedTurn(on, turn);
  if (known === undefined) return { isKnown: false, isQueueEmpty };
  const stored = storedPayload(turn, known.payload);
  if (stored === undefined || contentHash(stored).hash !== contentHash(turn.payload).hash) {
    throw new IdempotencyConflict(
      `The key ${turn.operationId} of session ${turn.sessionId} is that of a queued turn with another content.`,
      {
        resource: 'turn',
        id: known.submissionId,
      },
    );
  }
  return { isKnown: true, isQueueEmpty };
}

/** What somebody has put into the queue, read as a call would be; undefined: it is no turn. */
function storedPayload({ sessionId, operationId }: SubmissionKey, payload: JsonValue): JsonObject | undefined {
  try {
    const turn = parseTurn(sessionId, operationId, parseInput(QueuedTurnPayload, payload as QueuedTurnPayload));
    return payloadOf(turn.run, turn.command);
  } catch (error) {
    if (isDomainError(error)) return undefined;
    throw error;
  }
}

/** Checks and normalizes the run and the command of a turn. Errors: InvalidRequest, InvalidJson, PayloadTooLarge, InvalidIdentifier. */
export function parseTurn(
  sessionId: string,
  idempotencyKey: string,
  { run, payload, dispatch }: QueuedTurnPayload,
): { run: ParsedRun; command: WantedCommand } {
  return {
    run: parseNewRun({ ...run, sessionRef: { ...run.sessionRef, sessionId } }),
    command: parseCommand({ type: 'turn', payload, dispatch: dispatch === undefined ? {} : dispatch }, idempotencyKey),
  };
}
