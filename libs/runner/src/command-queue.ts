import type { Command, Outcome } from '@runplane/contracts';

/** A turn, steer or command of your own, as the work gets it. */
export interface ReceivedCommand {
  readonly command: Command;
  /** Aborts when this command is cancelled, or with the whole work. */
  readonly signal: AbortSignal;
  /** Says that it has reached the work; a steer says so by itself when it is taken. Once: later calls wait for the first. */
  readonly ack: () => Promise<void>;
  /** Says that it is done. The turn's own end is what the work returns. */
  readonly finish: (outcome: Outcome) => Promise<void>;
  /** For a steer: the work has taken it up. One for which nobody says so is reported as missed when its turn ends. */
  readonly consumed: () => Promise<void>;
}

export interface CommandCalls {
  ack(commandId: string): Promise<unknown>;
  finish(commandId: string, outcome: Outcome): Promise<unknown>;
}

interface Open {
  readonly received: ReceivedCommand;
  readonly controller: AbortController;
  isTaken: boolean;
}

/** The run's open commands by sequence: each comes out once, in order; ends with the work. */
export class CommandQueue implements AsyncIterableIterator<ReceivedCommand, undefined> {
  private readonly calls: CommandCalls;
  private readonly open = new Map<string, Open>();
  private readonly ready: Open[] = [];
  private readonly takers: ((result: IteratorResult<ReceivedCommand, undefined>) => void)[] = [];
  private isClosed = false;
  private seq = 0;

  constructor(calls: CommandCalls) {
    this.calls = calls;
  }

  /** The greatest sequence seen. */
  get lastSeq(): number {
    return this.seq;
  }

  push(commands: readonly Command[]): void {
    for (const command of commands) {
      if (command.seq <= this.seq || this.isClosed) continue;
      this.seq = command.seq;
      const open = this.receive(command);
      this.open.set(command.id, open);
      this.ready.push(open);
    }
    this.deliver();
  }

  /** A command that nobody has taken is finished here; a taken one is told by its signal. */
  cancel(commandId: string, reason: Error): void {
    const open = this.open.get(commandId);
    if (open === undefined || open.controller.signal.aborted) return;
    open.controller.abort(reason);
    if (open.isTaken) return;
    this.ready.splice(this.ready.indexOf(open), 1);
    void this.calls.finish(commandId, { terminalStatus: 'cancelled' }).catch(() => undefined); // the deadline of the cancel closes it then
  }

  close(reason: unknown): void {
    this.isClosed = true;
    for (const { controller } of this.open.values()) controller.abort(reason);
    this.ready.length = 0;
    this.deliver();
  }

  next(): Promise<IteratorResult<ReceivedCommand, undefined>> {
    return new Promise((resolve) => {
      this.takers.push(resolve);
      this.deliver();
    });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  private receive(command: Command): Open {
    const controller = new AbortController();
    let acknowledged: Promise<unknown> | undefined;
    const ack = async () => void (await (acknowledged ??= this.calls.ack(command.id)));
    const finish = async (outcome: Outcome) => {
      await acknowledged?.catch(() => undefined); // so that the log tells both in their order
      await this.calls.finish(command.id, outcome);
    };
    const consumed = () => finish({ terminalStatus: 'completed' });
    return { received: { command, signal: controller.signal, ack, finish, consumed }, controller, isTaken: false };
  }

  private take(open: Open): void {
    open.isTaken = true;
    // Taken is delivered. Who then never says that it is consumed has missed it; that the word did not get through changes nothing.
    if (open.received.command.type === 'steer') open.received.ack().catch(() => undefined);
  }

  private deliver(): void {
    while (this.takers.length > 0 && (this.ready.length > 0 || this.isClosed)) {
      const open = this.ready.shift();
      if (open !== undefined) this.take(open);
      this.takers.shift()?.(open === undefined ? { done: true, value: undefined } : { done: false, value: open.received });
    }
  }
}
