import { setMaxListeners } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { isProblem } from '@runplane/client';
import { newId, type AdmitTurn, type AppendedEvents, type NewRunEvent, type RunEvent, type RunState } from '@runplane/contracts';
import { between, pick, seededRandom, type Random } from './random';
import type { Stage } from './stage';

// What clients and runners by hand do while things are killed, and what they were told: everything in `Told` was answered with a 2xx or
// arrived on a stream, and has to be true for ever.

export interface ToldTurn {
  readonly sessionId: string;
  readonly key: string;
  readonly runId: string;
  readonly commandId: string;
}
export interface ToldAppend {
  readonly runId: string;
  readonly events: readonly NewRunEvent[];
  readonly answer: AppendedEvents;
}
export interface ToldState {
  readonly by: string;
  readonly runId: string;
  readonly status: RunState;
}
export interface Followed {
  readonly runId: string;
  readonly events: RunEvent[];
  end?: { status: string; terminalSeq: number };
}

export class Told {
  readonly turns: ToldTurn[] = [];
  readonly commands: { runId: string; commandId: string }[] = [];
  readonly appends: ToldAppend[] = [];
  readonly states: ToldState[] = [];
  readonly cancels: { runId: string; requestId: string }[] = [];
  readonly followed: Followed[] = [];
  /** Sequences by run, as the feed delivered them. */
  readonly feed = new Map<string, number[]>();
  /** Answers that should never be given. */
  readonly wrong: string[] = [];
}

export interface LoadOptions {
  readonly sessions: number;
  readonly runnersByHand: number;
  readonly seed: number;
}

/** Refusals that a client must expect when its runner has been given up, or when the run ends while it speaks. */
const EXPECTED = ['lease_lost', 'lease_expired', 'run_closed', 'run_cancelling', 'no_receivable_turn'] as const;

export class Load {
  readonly told = new Told();
  private readonly stage: Stage;
  private readonly options: LoadOptions;
  private readonly over = new AbortController();
  private readonly feedReader: Promise<void>;
  private draining = true;
  private loops: Promise<void>[] = [];
  private rounds = 0;
  /** What is being waited for, by loop; shown when a drain does not end. */
  private readonly doing = new Map<string, string>();

  constructor(stage: Stage, options: LoadOptions) {
    this.stage = stage;
    this.options = options;
    setMaxListeners(0, this.over.signal);
    this.feedReader = this.readFeed();
  }

  start(): void {
    this.draining = false;
    this.rounds += 1;
    const randomOf = (loop: number) => seededRandom(this.options.seed + this.rounds * 1_000 + loop);
    this.loops = [
      ...Array.from({ length: this.options.sessions }, (_, i) =>
        this.loop(`session-${i}`, randomOf(i), (name, random) => this.turn(name, random)),
      ),
      ...Array.from({ length: this.options.runnersByHand }, (_, i) =>
        this.loop(`by-hand-${i}`, randomOf(100 + i), (name, random) => this.runByHand(name, random)),
      ),
    ];
  }

  /** Nothing new is begun; resolves when everything has come to its end, or says what has not. */
  async drain(withinMs: number): Promise<string[]> {
    this.draining = true;
    const timeout = new AbortController();
    const drained = await Promise.race([
      Promise.all(this.loops).then(() => true),
      sleep(withinMs, false, { signal: timeout.signal }).catch(() => false),
    ]);
    timeout.abort();
    return drained ? [] : [...this.doing].map(([loop, what]) => `after ${withinMs} ms ${loop} still waits: ${what}`);
  }

  async close(): Promise<void> {
    this.draining = true;
    this.over.abort(new Error('the load is over'));
    await Promise.allSettled([...this.loops, this.feedReader]);
  }

  private async loop(name: string, random: Random, once: (name: string, random: Random) => Promise<void>): Promise<void> {
    while (!this.draining && !this.over.signal.aborted) {
      try {
        await once(name, random);
      } catch (error) {
        if (this.over.signal.aborted) return;
        if (!isProblem(error, ...EXPECTED)) this.told.wrong.push(`${name}, ${this.doing.get(name) ?? ''}: ${describe(error)}`);
      } finally {
        this.doing.delete(name);
      }
      await sleep(between(random, 0, 300));
    }
  }

  private get call() {
    return { signal: this.over.signal };
  }

  /** A turn in a session, followed to its end; some are cancelled, steered, or asked for twice. */
  private async turn(name: string, random: Random): Promise<void> {
    const { client } = this.stage;
    const sessionId = name;
    const key = newId('key');
    const turn = {
      run: { projectId: 'faults', backendProfile: 'lines', onRunnerLost: random() < 0.5 ? ('requeue' as const) : ('fail' as const) },
      payload: { text: `a turn of ${name}` },
    };
    this.doing.set(name, 'the admission of a turn');
    const { run, command } = await client.admitTurn(sessionId, turn, { ...this.call, idempotencyKey: key });
    const told = { sessionId, key, runId: run.id, commandId: command.id };
    this.told.turns.push(told);

    const plan = random();
    const calls = [this.follow(run.id)];
    if (plan < 0.25) calls.push(this.cancel(run.id, random));
    else if (plan < 0.45) calls.push(this.steer(run.id, random));
    else if (plan < 0.6) calls.push(this.repeat(told, turn));
    if (random() < 0.3) calls.push(this.follow(run.id, random));
    this.doing.set(name, `the end of run ${run.id}`);
    const failed = (await Promise.allSettled(calls)).find((call) => call.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
  }

  private async cancel(runId: string, random: Random): Promise<void> {
    await sleep(between(random, 0, 2_500));
    const immediate = random() < 0.25;
    const { run, request } = await this.stage.client.cancelRun(runId, { reason: 'changed my mind', graceMs: 2_000, immediate }, this.call);
    if (request !== null) this.told.cancels.push({ runId, requestId: request.id });
    if (run.finishedAt !== null) this.told.states.push({ by: 'cancel', runId, status: run.status });
  }

  private async steer(runId: string, random: Random): Promise<void> {
    await sleep(between(random, 0, 1_500));
    const { command } = await this.stage.client.createCommand(runId, { type: 'steer', payload: { text: 'faster' } }, this.call);
    this.told.commands.push({ runId, commandId: command.id });
  }

  private async repeat(told: ToldTurn, turn: AdmitTurn<'reject'>): Promise<void> {
    const again = await this.stage.client.admitTurn(told.sessionId, turn, { ...this.call, idempotencyKey: told.key });
    if (again.run.id !== told.runId || again.command.id !== told.commandId || !again.replayed)
      this.told.wrong.push(`the turn ${told.key} was run ${told.runId}, and is now ${again.disposition} as run ${again.run.id}`);
  }

  private async follow(runId: string, late?: Random): Promise<void> {
    if (late !== undefined) await sleep(between(late, 0, 2_000));
    const followed: Followed = { runId, events: [] };
    this.told.followed.push(followed);
    const stream = this.stage.client.followRun(runId, this.call);
    for (let next = await stream.next(); ; next = await stream.next()) {
      if (next.done === true) {
        followed.end = next.value;
        return;
      }
      followed.events.push(next.value);
    }
  }

  /** A runner that lives in this process, and knows what it was told about each of its batches. */
  private async runByHand(name: string, random: Random): Promise<void> {
    const { client } = this.stage;
    const runId = newId('run');
    this.doing.set(name, `the life of run ${runId}`);
    const created = await client.createRun(
      { projectId: 'faults', backendProfile: 'by-hand', onRunnerLost: 'fail' },
      { ...this.call, runId },
    );
    this.told.states.push({ by: 'create', runId, status: created.run.status });
    const following = this.follow(runId);
    following.catch(() => undefined); // awaited below
    try {
      const { epoch } = await client.claimRun(runId, { runnerId: newId('runner'), leaseMs: 10_000 }, this.call);
      const batches = between(random, 3, 8);
      for (let producerSequence = 1; producerSequence <= batches; producerSequence += 1) {
        const events = someEvents(random, `${runId}, batch ${producerSequence}`);
        const answer = await client.appendEvents(runId, { epoch, producerSequence, events }, this.call);
        this.told.appends.push({ runId, events, answer });
        if (random() < 0.3) await client.heartbeat(runId, { epoch, leaseMs: 10_000 }, this.call);
        await sleep(between(random, 0, 300));
      }
      const status = pick(random, ['completed', 'failed'] as const);
      const outcome = status === 'completed' ? { terminalStatus: status } : { terminalStatus: status, failureKind: 'backend-failed' };
      const run = await client.finishRun(runId, { epoch, outcome }, this.call);
      this.told.states.push({ by: 'finish', runId, status: run.status });
    } finally {
      this.doing.set(name, `the end of run ${runId}, whose runner is done with it`);
      await following;
    }
  }

  private async readFeed(): Promise<void> {
    try {
      for await (const event of this.stage.client.followFeed({ after: 'start', waitSeconds: 5, signal: this.over.signal })) {
        const sequences = this.told.feed.get(event.streamId) ?? [];
        this.told.feed.set(event.streamId, sequences);
        sequences.push(event.sequence);
      }
    } catch (error) {
      if (!this.over.signal.aborted) this.told.wrong.push(`the feed: ${describe(error)}`);
    }
  }
}

function someEvents(random: Random, text: string): NewRunEvent[] {
  return Array.from({ length: between(random, 1, 5) }, (_, i) => ({
    type: 'assistant_message',
    payload: { text: `${text}, event ${i + 1}` },
  }));
}

function describe(error: unknown): string {
  const code = error instanceof Error && 'code' in error ? `${String(error.code)}: ` : '';
  return error instanceof Error ? `${error.name}: ${code}${error.message}` : String(error);
}
