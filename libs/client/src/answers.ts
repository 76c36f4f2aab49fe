import { CANCEL_STAGES, CancelRequest, Command, Run, RUN_STATES, RunEvent, TERMINAL_STATUSES } from '@runplane/contracts';
import { z } from 'zod';

// Answers that only HTTP has; resources themselves are contracts'.

export const RunPage = z.object({ runs: z.array(Run), cursor: z.string().nullable() });
export type RunPage = z.infer<typeof RunPage>;

export const RunEventPage = z.object({
  events: z.array(RunEvent),
  lastSeq: z.int(),
  terminalSeq: z.int().nullable(),
  status: z.enum(RUN_STATES),
});
export type RunEventPage = z.infer<typeof RunEventPage>;

export const CommandList = z.object({ commands: z.array(Command) });
export const CancelRequestList = z.object({ requests: z.array(CancelRequest) });
export const CancelledRun = z.object({ run: Run, request: CancelRequest.nullable(), changed: z.boolean() });
export const CancelledCommand = z.object({ command: Command, request: CancelRequest.nullable(), changed: z.boolean() });
export const CancelProgress = z.object({ stage: z.enum(CANCEL_STAGES) });

/** The last frame of a followed run. */
export const StreamEnd = z.object({ status: z.enum(TERMINAL_STATUSES), terminalSeq: z.int() });
export type StreamEnd = z.infer<typeof StreamEnd>;
