import { createClient } from '@runplane/client';
import type { JsonObject, NewRunEvent, Outcome } from '@runplane/contracts';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { runRunner, type RunnerContext, type RunnerOptions } from './run-runner';
import { CancelRequested, RunLost, RunnerStopping } from './stop-reasons';

type Answer = Response | 'lost' | 'silence' | undefined;
interface Call {
  path: string;
  body: JsonObject & { events?: NewRunEvent[]; producerSequence?: number; outcome?: Outcome; commandId?: string; stage?: string };
}

const time = '2026-01-01T00:00:00.000Z';
const commandOf = (seq: number, type: string) => ({
  id: `cmd_${seq}`, runId: 'run_1', sessionId: null, seq, type, payload: { text: `text ${seq}` }, targetCommandId: null, state: 'pending',
  failure: null, cancel: null, createdAt: time, updatedAt: time, acknowledgedAt: null, finishedAt: null,
}); // prettier-ignore

/** The API as far as one runner sees it, behind `fetch`; keeps the events like the store does: by producer sequence, each once. */
class FakeApi {
  readonly calls: Call[] = [];
  readonly stored: NewRunEvent[] = [];
  readonly batches: NewRunEvent[][] = [];
  leaseMs = 30_000;
  durationMs: number | null = null;
  status = 'claimed';
  cancel: JsonObject | null = null;
  cancelledCommands: string[] = [];
  commands = [commandOf(1, 'turn')];
  onRunnerLost = 'fail';
  /** What happens instead of an answer (`after`: the call has had its effect). */
  fault: (call: Call, moment: 'before' | 'after') => Answer | Promise<Answer> = () => undefined;

  readonly fetch = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const { pathname, searchParams } = new URL(input instanceof Request ? input.url : input);
    const path = pathname.replace('/v1/runs/run_1/', '');
    if (path === 'commands') return this.waitForCommands(Number(searchParams.get('after')), init?.signal);
    const call: Call = { path, body: JSON.parse(init?.body as string) };
    this.calls.push(call);
    const before = await this.faulty(await this.fault(call, 'before'), init?.signal);
    if (before !== undefined) return before;
    const answer = this.answer(call);
    return (await this.faulty(await this.fault(call, 'after'), init?.signal)) ?? Response.json(answer);
  };

  paths(): string[] {
    return this.calls.map(({ path }) => path).filter((path) => path !== 'heartbeat');
  }
  of(path: string): Call[] {
    return this.calls.filter((call) => call.path === path);
  }

  /** Answers when there is a command, or when the run takes none any more. */
  private async waitForCommands(afterSeq: number, signal: AbortSignal | null | undefined): Promise<Response> {
    for (;;) {
      const commands = this.commands.filter(({ seq }) => seq > afterSeq).slice(0, 1);
      if (commands.length > 0 || this.status !== 'claimed') return Response.json({ commands });
      await sleep(1, undefined, signal == null ? {} : { signal });
    }
  }

  private async faulty(answer: Answer, signal: AbortSignal | null | undefined): Promise<Response | undefined> {
    if (answer === 'lost') throw new TypeError('fetch failed');
    if (answer !== 'silence') return answer;
    return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason as Error)));
  }

  private answer({ path, body }: Call): object {
    if (path === 'claim')
      return {
        run: this.run(),
        epoch: 1,
        leaseRemainingMs: this.leaseMs,
        durationRemainingMs: this.durationMs,
        commands: this.commands,
        serverTime: time,
      };
    if (path === 'heartbeat') return this.heartbeat(Number(body['commandsAfterSeq']));
    if (path === 'events') return this.append(body);
    if (path === 'cancel-acknowledgements') return { stage: body.stage };
    if (path === 'finish') this.status = body.outcome?.terminalStatus ?? '';
    return path === 'finish' ? this.run() : commandOf(1, 'turn');
  }

  private heartbeat(afterSeq: number): object {
    const stop = !['claimed', 'cancelling'].includes(this.status);
    const commands = this.commands.filter(({ seq }) => seq > afterSeq);
    const { status: runStatus, leaseMs: leaseRemainingMs, cancel, cancelledCommands } = this;
    return { runStatus, stop, leaseRemainingMs, cancel, cancelledCommands, commands, serverTime: time };
  }

  private append({ producerSequence = 0, events = [] }: Call['body']): object {
    const replayed = producerSequence <= this.batches.length;
    if (replayed) expect(events).toEqual(this.batches[producerSequence - 1]);
    else {
      expect(producerSequence).toBe(this.batches.length + 1);
      this.batches.push(events);
      this.stored.push(...events);
    }
    return { firstSeq: 1, lastSeq: events.length, eventIds: [], replayed };
  }

  private run(): object {
    return {
      id: 'run_1', tenantId: 't', projectId: 'p', sessionId: null, sessionRef: null, workspaceRef: {}, resourceBundleRef: null, providerId: 'd',
      backendProfile: 'b', executionPolicy: {}, traceSink: null, status: this.status, failure: null, onRunnerLost: this.onRunnerLost, maxAttempts: 3,
      attempts: 1, claimedBy: 'w', claimEpoch: 1, leaseRemainingMs: 1, lastEventSeq: 3, lastCommandSeq: 1, cancel: null, createdAt: time,
      updatedAt: time, finishedAt: null,
    }; // prettier-ignore
  }
}

function problem(status: number, code: string, retryable = false): Response {
  return Response.json({ type: 'x', title: code, status, code, failureKind: 'infra-failed', retryable }, { status });
}

const COMPLETED: Outcome = { terminalStatus: 'completed' };
let api: FakeApi;
beforeEach(() => {
  api = new FakeApi();
});

function run(work: (context: RunnerContext) => Promise<Outcome>, options: Partial<RunnerOptions> = {}) {
  const client = createClient({
    url: 'http://api',
    apiKey: 'k',
    fetch: api.fetch,
    retry: { pauseMsMin: 1, pauseMsMax: 5 },
    timeoutMs: 10_000, // nobody answers late but by a stall of the machine
  });
  return runRunner({ client, runId: 'run_1', runnerId: 'w', heartbeatMs: 20, work, ...options });
}
const aborted = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
/** The runner's clock and timers go on by so much, a little at a time, however slow the machine is. */
async function pass(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 10) {
    await jest.advanceTimersByTimeAsync(10);
    for (let turns = 0; turns < 5; turns += 1) await turn(); // what was sent is answered
  }
}
const takeTheClock = () =>
  jest.useFakeTimers({ doNotFake: ['Date', 'hrtime', 'nextTick', 'queueMicrotask', 'setImmediate', 'clearImmediate'] });
afterEach(() => void jest.useRealTimers());
const thought = (n: number) => ['reasoning', { text: `${n}` }] as const;
const numbers = (count: number) => Array.from({ length: count }, (_, index) => index);
const textsOf = (events: readonly NewRunEvent[]) => events.map(({ payload }) => payload['text']);

describe('a runner', () => {
  it('claims, works on the turn, stores every event in order, and ends run and turn in one call', async () => {
    const end = await run(async ({ commands, emit, run: { id }, epoch }) => {
      const { value: turn } = await commands.next();
      await turn?.ack();
      for (const n of numbers(50)) void emit(...thought(n));
      void emit('assistant_message', { text: `${id} ${epoch} ${turn?.command.id ?? ''}`, final: true });
      return COMPLETED;
    });

    expect(end).toMatchObject({ kind: 'finished', run: { status: 'completed' } });
    expect(textsOf(api.stored)).toEqual([...numbers(50).map(String), 'run_1 1 cmd_1']);
    expect(api.paths()).toEqual(['claim', 'commands/cmd_1/ack', 'events', 'finish']);
    expect(api.of('finish')[0]?.body).toEqual({ epoch: 1, outcome: COMPLETED, commandId: 'cmd_1' });
  });

  it('reports work that throws as failed', async () => {
    await run(() => Promise.reject(new Error('no model')));

    expect(api.of('finish')[0]?.body.outcome).toEqual({
      terminalStatus: 'failed',
      failureKind: 'backend-failed',
      failureMessage: 'no model',
    });
  });

  it('says what refused the claim', async () => {
    api.fault = () => problem(409, 'run_closed');
    expect(await run(() => Promise.resolve(COMPLETED))).toMatchObject({ kind: 'refused', error: { code: 'run_closed' } });
  });

  it('waits for the end of another lease where it is told to', async () => {
    api.fault = ({ path }) => (path === 'claim' && api.calls.length < 3 ? problem(409, 'run_claimed', true) : undefined);

    expect(await run(() => Promise.resolve(COMPLETED), { claimWaitMs: 5_000 })).toMatchObject({ kind: 'finished' });
    api.calls.length = 0;
    expect(await run(() => Promise.resolve(COMPLETED))).toMatchObject({ kind: 'refused', error: { code: 'run_claimed' } });
  });

  it('ends a run whose turn was cancelled before the claim', async () => {
    api.commands = [];
    let worked = false;

    await run(async () => ((worked = true), COMPLETED), { commandId: 'cmd_1' });

    expect(worked).toBe(false);
    expect(api.of('finish')[0]?.body.outcome).toEqual({ terminalStatus: 'cancelled' });
  });

  it('ends the run alone when somebody else has ended its turn', async () => {
    api.fault = ({ path, body }) => (path === 'finish' && body.commandId !== undefined ? problem(409, 'command_closed') : undefined);

    expect(await run(() => Promise.resolve(COMPLETED))).toMatchObject({ kind: 'finished' });
  });

  it('is not taken aback by a heartbeat that sees its finish before it does', async () => {
    const nextBeat = async () => {
      for (const before = api.of('heartbeat').length; api.of('heartbeat').length === before;) await sleep(1);
    };
    api.fault = async ({ path }, moment) => void (path === 'finish' && moment === 'after' && (await nextBeat()));

    expect(await run(() => Promise.resolve(COMPLETED), { heartbeatMs: 10 })).toMatchObject({
      kind: 'finished',
      run: { status: 'completed' },
    });
  });
});

describe('events', () => {
  it('are stored once when answers get lost, and the finish too', async () => {
    let lost = 0;
    api.fault = ({ path }, moment) =>
      moment === 'after' && ['events', 'finish'].includes(path) && (lost += 1) % 3 !== 0 ? 'lost' : undefined;

    const end = await run(async ({ emit }) => {
      for (const n of numbers(20)) {
        await emit(...thought(n));
        if (n % 4 === 0) await sleep(3);
      }
      return COMPLETED;
    });

    expect(end.kind).toBe('finished');
    expect(textsOf(api.stored)).toEqual(numbers(20).map(String));
    expect(api.of('events').length).toBeGreaterThan(api.batches.length);
    expect(api.batches.length).toBeLessThan(20); // gathered
  });

  it('go in calls of at most 500 events and 4 MiB', async () => {
    await run(async ({ emit }) => {
      for (const n of numbers(1_100)) void emit(...thought(n));
      for (const n of numbers(9)) void emit('reasoning', { text: `${n}`.repeat(900_000) });
      return COMPLETED;
    });

    expect(api.stored).toHaveLength(1_109);
    expect(api.batches.slice(0, 2).map(({ length }) => length)).toEqual([500, 500]);
    expect(Math.max(...api.batches.map((batch) => JSON.stringify(batch).length))).toBeLessThanOrEqual(4 * 1024 * 1024);
  });

  it('that cannot be stored are refused to the one who emits them; the others go on', async () => {
    await run(async ({ emit }) => {
      void emit(...thought(1));
      await expect(emit('terminal_status', {})).rejects.toMatchObject({ code: 'reserved_event_type' });
      await expect(emit('backend_status', { phase: 'cancel-accepted' })).rejects.toMatchObject({ code: 'reserved_event_type' });
      await expect(emit('reasoning', { text: 1 })).rejects.toMatchObject({ code: 'invalid_request' });
      await expect(emit('reasoning', { text: 'x'.repeat(1024 * 1024) })).rejects.toMatchObject({ code: 'payload_too_large' });
      await expect(emit('custom/x', { n: NaN })).rejects.toMatchObject({ code: 'invalid_json' });
      void emit('reasoning', { text: 'a\0b\ud800' });
      return COMPLETED;
    });

    expect(textsOf(api.stored)).toEqual(['1', 'a\uFFFDb\uFFFD']);
  });

  it('make the work wait when too much is on its way', async () => {
    let goOn = (): void => undefined;
    const held = new Promise<void>((resolve) => (goOn = resolve));
    api.fault = async ({ path }, moment) => void (path === 'events' && moment === 'before' && (await held));
    let taken = 0;

    const end = run(async ({ emit }) => {
      for (const n of numbers(20)) {
        await emit('reasoning', { text: `${n}`.repeat(500_000) });
        taken += 1;
      }
      return COMPLETED;
    });
    await sleep(150);

    expect(taken).toBeLessThan(20);
    goOn();
    expect((await end).kind).toBe('finished');
    expect(api.stored).toHaveLength(20);
  });

  it('that the store refuses end the work, and the run does not count as completed', async () => {
    api.fault = ({ path }) => (path === 'events' ? problem(400, 'command_not_of_run') : undefined);

    await run(async ({ emit, signal }) => {
      void emit('reasoning', { text: 'x', commandId: 'foreign' });
      return aborted(signal);
    });

    expect(api.of('finish')[0]?.body.outcome).toMatchObject({ terminalStatus: 'failed', failureKind: 'infra-failed' });
  });
});

describe('a lease', () => {
  const nothingAfter = async (end: Promise<unknown>) => {
    await end;
    const { length } = api.calls;
    await sleep(80);
    expect(api.calls.slice(length)).toEqual([]);
  };

  it('that no heartbeat prolongs ends by the local clock: the work is aborted and nothing is written any more', async () => {
    api.leaseMs = 300;
    api.fault = ({ path }) => (path === 'claim' ? undefined : 'silence');
    let emitted: Promise<void> | undefined;

    const end = run(async ({ signal, lost, emit }) => {
      void emit(...thought(1));
      const afterwards = sleep(api.leaseMs + 10); // a timer behind the lease's, on whatever machine
      const isAborted = aborted(signal).catch(() => undefined);
      await afterwards;
      expect(lost.aborted).toBe(true);
      await isAborted;
      emitted = emit(...thought(2));
      throw signal.reason;
    });
    await nothingAfter(end);

    expect(await end).toMatchObject({ kind: 'lost', reason: { message: expect.stringContaining('lease ended') } });
    await expect(emitted).rejects.toThrow(RunLost);
    expect(api.of('finish')).toEqual([]);
  });

  it('is kept while some heartbeats fail', async () => {
    api.leaseMs = 400;
    let beats = 0;
    api.fault = ({ path }, moment) =>
      path === 'heartbeat' && moment === 'before' && (beats += 1) % 2 === 1 ? problem(503, 'database_unavailable', true) : undefined;

    takeTheClock();
    expect(await run(async () => (await pass(1_000), COMPLETED))).toMatchObject({ kind: 'finished' });
    expect(beats).toBeGreaterThan(10);
  });

  it.each([
    ['a heartbeat', 'heartbeat'],
    ['an append', 'events'],
  ])('is lost when %s is refused by the fence', async (_, path) => {
    api.fault = (call) => (call.path === path ? problem(409, 'lease_lost') : undefined);

    const end = run(async ({ emit, signal }) => {
      void emit(...thought(1));
      return aborted(signal);
    });
    await nothingAfter(end);

    expect((await end).kind).toBe('lost');
    expect(api.of('finish')).toEqual([]);
  });

  it('is lost when the run has ended otherwise', async () => {
    const end = run(async ({ signal }) => {
      api.status = 'cancelled';
      return aborted(signal);
    });
    await nothingAfter(end);

    expect(await end).toMatchObject({ kind: 'lost', reason: { message: 'the run is cancelled' } });
  });
});

it('stops by itself when the time of the run is over, and reports a timeout', async () => {
  api.durationMs = 50;
  await run(({ signal }) => aborted(signal));
  expect(api.of('finish')[0]?.body.outcome).toMatchObject({ terminalStatus: 'cancelled', failureKind: 'timeout' });

  api = new FakeApi(); // a server of the release before says nothing of it
  expect(await run(() => Promise.resolve(COMPLETED))).toMatchObject({ kind: 'finished' });
});

describe('a cancel', () => {
  const request = (deadlineRemainingMs: number | null = 30_000) => ({ requestId: 'c1', reason: 'changed my mind', deadlineRemainingMs });

  it('is acknowledged, aborts the work, and the run ends as cancelled', async () => {
    let reason: unknown;
    await run(async ({ signal }) => {
      api.status = 'cancelling';
      api.cancel = request();
      await aborted(signal).catch((error: unknown) => (reason = error));
      await sleep(60); // more heartbeats
      throw reason;
    });

    expect(reason).toBeInstanceOf(CancelRequested);
    expect((reason as CancelRequested).message).toBe('changed my mind');
    expect(api.of('cancel-acknowledgements').map(({ body }) => body.stage)).toEqual(['delivered', 'aborting']);
    expect(api.paths().at(-1)).toBe('finish');
    expect(api.of('finish')[0]?.body).toMatchObject({ outcome: { terminalStatus: 'cancelled' }, commandId: 'cmd_1' });
  });

  it('that comes too late leaves the finished work its outcome', async () => {
    await run(async ({ signal }) => {
      api.cancel = request();
      await aborted(signal).catch(() => undefined);
      return COMPLETED;
    });

    expect(api.of('finish')[0]?.body.outcome).toEqual(COMPLETED);
  });

  it('ends work that does not stop, before its deadline', async () => {
    takeTheClock();
    api.cancel = request(700);

    const end = run(() => new Promise(() => undefined));
    await pass(690);

    await end;
    expect(api.of('finish')[0]?.body.outcome).toEqual({ terminalStatus: 'cancelled' });
  });

  it('of the turn alone ends the work too', async () => {
    await run(async ({ signal }) => {
      api.cancelledCommands = ['cmd_1'];
      return aborted(signal);
    });

    expect(api.of('cancel-acknowledgements').map(({ body }) => body)).toEqual([
      { epoch: 1, stage: 'delivered', commandId: 'cmd_1' },
      { epoch: 1, stage: 'aborting', commandId: 'cmd_1' },
    ]);
    expect(api.of('finish')[0]?.body.outcome).toEqual({ terminalStatus: 'cancelled' });
  });
});

describe('steers', () => {
  it('arrive long before the next heartbeat is due, each once and in order; taken is delivered', async () => {
    await run(
      async ({ commands }) => {
        await commands.next();
        api.commands.push(commandOf(2, 'steer'), commandOf(3, 'steer'));
        for await (const steer of commands) {
          await steer.consumed();
          if (steer.command.seq === 3) break;
        }
        return COMPLETED;
      },
      { heartbeatMs: 10_000 },
    );

    expect(api.paths().filter((path) => path.startsWith('commands'))).toEqual([
      'commands/cmd_2/ack', 'commands/cmd_2/finish', 'commands/cmd_3/ack', 'commands/cmd_3/finish',
    ]); // prettier-ignore
  });

  it('arrive by heartbeat where nobody answers the wait', async () => {
    const { fetch } = api;
    const refusing = async (input: string | URL | Request, init?: RequestInit) =>
      new URL(input instanceof Request ? input.url : input).pathname.endsWith('/commands')
        ? problem(400, 'invalid_request')
        : fetch(input, init);
    const client = createClient({ url: 'http://api', apiKey: 'k', fetch: refusing });
    await run(
      async ({ commands }) => {
        await commands.next();
        api.commands.push(commandOf(2, 'steer'));
        const { value: steer } = await commands.next();
        await steer?.ack();
        return COMPLETED; // never consumed: the server reports it as missed
      },
      { client },
    );

    expect(api.paths().filter((path) => path.startsWith('commands'))).toEqual(['commands/cmd_2/ack']);
  });

  it('that are cancelled are finished here, or tell the one who took them', async () => {
    api.commands.push(commandOf(2, 'steer'), commandOf(3, 'steer'));
    await run(async ({ commands, signal }) => {
      await commands.next();
      const { value: taken } = await commands.next();
      api.cancelledCommands = ['cmd_2', 'cmd_3'];
      if (taken !== undefined) await aborted(taken.signal).catch(() => undefined);
      await sleep(40);
      expect(signal.aborted).toBe(false);
      return COMPLETED;
    });

    expect(api.of('commands/cmd_3/finish')[0]?.body.outcome).toEqual({ terminalStatus: 'cancelled' });
    expect(api.of('commands/cmd_2/finish')).toEqual([]);
  });
});

describe('a runner that is told to stop', () => {
  async function stopped(): Promise<unknown> {
    const stop = new AbortController();
    return run(
      async ({ signal }) => {
        stop.abort();
        await aborted(signal).catch((error: unknown) => expect(error).toBeInstanceOf(RunnerStopping));
        throw signal.reason;
      },
      { signal: stop.signal },
    ).catch((error: unknown) => error);
  }

  it('fails its run', async () => {
    await stopped();
    expect(api.of('finish')[0]?.body.outcome).toMatchObject({ terminalStatus: 'failed', failureKind: 'runner-lost' });
  });

  it('leaves a run that is to be requeued to the end of its lease', async () => {
    api.onRunnerLost = 'requeue';
    expect(await stopped()).toEqual({ kind: 'released' });
    expect(api.of('finish')).toEqual([]);
  });
});
