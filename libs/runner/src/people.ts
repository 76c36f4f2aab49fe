import { type Client, isProblem } from '@runplane/client';
import {
  type Approval,
  digestOf,
  type InputRequest,
  type JsonValue,
  newId,
  requireApproved,
  type RequestApproval,
  type RequestInput,
  WAIT_SECONDS_MAX,
} from '@runplane/contracts';

/** A call that people have to approve before it is made. */
export type AskedCall = Omit<RequestApproval, 'epoch' | 'argumentsDigest' | 'arguments'> & { arguments: JsonValue };
export type AskedQuestion = Omit<RequestInput, 'epoch'>;

interface Write {
  signal: AbortSignal;
  retry: { attemptsMax: number; elapsedMsMax: number };
}

export interface PeopleOptions {
  readonly client: Client;
  readonly runId: string;
  readonly epoch: number;
  /** Aborts when the work has to stop, and with it every wait. */
  readonly signal: AbortSignal;
  readonly write: <T>(call: (options: Write) => Promise<T>) => Promise<T>;
  /** Asks the server what has become of the run, now. */
  readonly lookAtRun: () => Promise<unknown>;
}

const PATIENT = { attemptsMax: Infinity, elapsedMsMax: Infinity };

/** What the work of a claim asks of people. A wait ends with the answer, with its time, or with the work. */
export class People {
  private readonly options: PeopleOptions;

  constructor(options: PeopleOptions) {
    this.options = options;
  }

  /**
   * Resolves when the call is approved, rejected, expired or cancelled, as `outcome` says. An approval is checked once more against the
   * arguments given here: make the call with these. With an `approvalId` of its own (the tool call's id, say) the next runner of a requeued run
   * finds the answer that this one got. Rejects with the signal's reason when the work has to stop.
   */
  async approve(call: AskedCall): Promise<Approval> {
    const { client, runId, epoch } = this.options;
    const { approvalId = newId('apr') } = call;
    const callArguments = structuredClone(call.arguments); // what was asked about, whatever the work does with its object meanwhile
    digestOf(callArguments);
    const approval = await this.answer(
      async (o) => (await client.requestRunApproval(runId, { ...call, arguments: callArguments, approvalId, epoch }, o)).approval,
      (o) => client.getRunApproval(runId, approvalId, o),
      ({ outcome }) => outcome === 'pending',
    );
    if (approval.outcome === 'approved') requireApproved(approval, call.arguments);
    return approval;
  }

  /** Resolves when the question is answered (`value`), declined, expired or cancelled, as `outcome` says. Rejects as `approve`. */
  ask(question: AskedQuestion): Promise<InputRequest> {
    const { client, runId, epoch } = this.options;
    const { requestId = newId('inp') } = question;
    return this.answer(
      async (o) => (await client.requestRunInput(runId, { ...question, requestId, epoch }, o)).request,
      (o) => client.getRunInput(runId, requestId, o),
      ({ status }) => status === 'pending',
    );
  }

  private async answer<T>(
    request: (options: Write) => Promise<T>,
    look: (options: Write & { waitSeconds: number }) => Promise<T>,
    isOpen: (answer: T) => boolean,
  ): Promise<T> {
    const { signal, write } = this.options;
    signal.throwIfAborted();
    let answer = await write(request).catch((error: unknown) => this.refused(error));
    while (isOpen(answer)) answer = await look({ waitSeconds: WAIT_SECONDS_MAX, signal, retry: PATIENT });
    return answer;
  }

  /** A run that is being cancelled asks nobody; the work then has to learn that first, or its end would read as a failure. */
  private async refused(error: unknown): Promise<never> {
    if (isProblem(error, 'run_cancelling')) {
      await this.options.lookAtRun();
      this.options.signal.throwIfAborted();
    }
    throw error;
  }
}
