import { z } from 'zod';
import { CancelRequest, Command, CreateRun, Dispatch, DispatchIntent, Run, SessionRef } from './resources';
import { SUBMISSION_STATES } from './states';
import { JsonRecord } from './wire-json';

// What a session is asked to take, a turn or a steer, and what becomes of it.

/**
 * What a call wants when the session has an open turn: be refused (`reject`), have that turn's run cancelled and come after it
 * (`interrupt`), be given to it as a steer (`steer`), or wait for its turn behind it (`enqueue`). A free session admits the turn under each of them,
 * and so does one whose turn is stale; only `enqueue` stands behind submissions that wait already.
 */
export const BUSY_POLICIES = ['reject', 'interrupt', 'steer', 'enqueue'] as const;
export type BusyPolicy = (typeof BUSY_POLICIES)[number];

/** A user turn: a new run in the session and its first command, admitted together or not at all. */
const turnFields = {
  run: CreateRun.omit({ sessionRef: true }).extend({ sessionRef: SessionRef.omit({ sessionId: true }).optional() }),
  payload: JsonRecord.meta({ description: 'The turn itself; `text` is shown as the user message and gives the session its title' }),
  dispatch: Dispatch.nullish(),
};
export const AdmitTurn = z
  .strictObject({
    ...turnFields,
    busyPolicy: z.enum(BUSY_POLICIES).default('reject').meta({
      description:
        'When the session has an open turn: refuse the call, cancel that turn and come after it, steer it, or wait in the session’s queue',
    }),
  })
  .meta({ id: 'AdmitTurn' });
/** The policy is part of the type, so that the answer is: see AdmissionOf. */
export type AdmitTurn<Policy extends BusyPolicy = BusyPolicy> = Omit<z.input<typeof AdmitTurn>, 'busyPolicy'> & {
  busyPolicy?: Policy | undefined;
};

/** The payload of a submission of the kind `turn`: a turn that starts by itself when it is the session's next. */
export const QueuedTurnPayload = z.strictObject(turnFields).meta({ id: 'QueuedTurnPayload' });
export type QueuedTurnPayload = z.input<typeof QueuedTurnPayload>;
export const QUEUED_TURN_KIND = 'turn';

/** Words for the turn that is open in a session. */
export const AdmitSteer = z
  .strictObject({ payload: JsonRecord.meta({ description: 'The steer itself; `text` is shown as the user message' }) })
  .meta({ id: 'AdmitSteer' });
export type AdmitSteer = z.input<typeof AdmitSteer>;

/** The turn has a run of its own. */
export const AdmittedTurn = z
  .object({
    run: Run,
    command: Command,
    intent: DispatchIntent.nullable(),
    disposition: z.enum(['created', 'replayed', 'recovered']),
    replayed: z.boolean(),
    recoveredPriorPartialWrite: z.boolean(),
    partialWrite: z.literal(false),
  })
  .meta({ id: 'AdmittedTurn' });
export type AdmittedTurn = z.infer<typeof AdmittedTurn>;

/** The words are a steer of the open turn. */
export const AdmittedSteer = z
  .object({
    disposition: z.literal('steered'),
    run: Run,
    command: Command,
    target: Command.meta({ description: 'The turn that it steers' }),
    holder: z.string().nullable().meta({ description: 'The runner that has the turn; null while it waits for one, and after its end' }),
    leaseRemainingMs: z.int().nullable(),
    replayed: z.boolean(),
  })
  .meta({ id: 'AdmittedSteer' });
export type AdmittedSteer = z.infer<typeof AdmittedSteer>;

/** The open turn's run is being cancelled: repeat the same call with the same key. Nothing is stored for the turn that waits. */
export const InterruptingTurn = z
  .object({
    disposition: z.literal('interrupting'),
    sessionId: z.string(),
    runId: z.string().meta({ description: 'The run that is being cancelled' }),
    commandId: z.string(),
    holder: z.string().nullable(),
    request: CancelRequest,
    deadlineRemainingMs: z.int().meta({ description: 'Until its runner is cut off; a repeat after that is admitted' }),
  })
  .meta({ id: 'InterruptingTurn' });
export type InterruptingTurn = z.infer<typeof InterruptingTurn>;

/** The turn waits in the session's queue as a submission, whose operation id is the call's key, and starts by itself. */
export const QueuedTurn = z
  .object({
    disposition: z.literal('queued'),
    sessionId: z.string(),
    operationId: z.string(),
    submissionId: z.string(),
    state: z.enum(SUBMISSION_STATES).meta({ description: 'A started turn answers a repeat itself; `failed`: it could not be admitted' }),
    place: z.int().meta({ description: 'Its order in the session' }),
    ahead: z.int().meta({ description: 'Unfinished submissions before it' }),
    lastError: z.string().nullable().meta({ description: 'Why it could not be admitted: code and message' }),
    durableCursor: z.string().nullable(),
    replayed: z.boolean(),
  })
  .meta({ id: 'QueuedTurn' });
export type QueuedTurn = z.infer<typeof QueuedTurn>;

export const TurnAdmission = z.discriminatedUnion('disposition', [AdmittedTurn, AdmittedSteer, InterruptingTurn, QueuedTurn]);
export type TurnAdmission = z.infer<typeof TurnAdmission>;

/** What a policy can be answered with. */
export type AdmissionOf<Policy extends BusyPolicy> =
  | AdmittedTurn
  | (Policy extends 'steer' ? AdmittedSteer : never)
  | (Policy extends 'interrupt' ? InterruptingTurn : never)
  | (Policy extends 'enqueue' ? QueuedTurn : never);
