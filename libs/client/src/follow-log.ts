import { Problem } from '@runplane/contracts';
import { createParser, type EventSourceMessage } from 'eventsource-parser';
import type { z } from 'zod';
import { ConnectionFailed, isPassing, ProblemError, UnexpectedAnswer } from './errors';
import { pauseAfter, pauseFor, type RetryPolicy } from './retry';
import { parseJson, type Transport } from './transport';

export interface FollowOptions {
  /** The last sequence that the caller has; 0 starts at the beginning. */
  after?: number | undefined;
  /** Ends the iteration; the iterator then throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** A connection without any byte (the server pings) for so long is dead. */
  silenceMsMax?: number | undefined;
}

const SILENCE_MS_MAX = 45_000;

/** A log that can be followed. */
export interface FollowedLog<Event, End> {
  /** For messages: `run r1`. */
  readonly name: string;
  readonly path: string;
  readonly event: z.ZodType<Event>;
  sequenceOf(event: Event): number;
  /** What goes into the query beside the place; of logs whose id may come to mean another one. */
  readonly query?: (() => Record<string, string | undefined>) | undefined;
  /** Told of the id of each event's frame. */
  readonly onFrame?: ((id: string) => void) | undefined;
  /** What the server says of a log's end. */
  readonly end: z.ZodType<End>;
}

/**
 * Every event of a log after a sequence, once and in order, until the log's end. A broken or ended connection is taken up again behind the last
 * event that the caller got, however often and however long it takes; only a refusal (unknown id, revoked key) ends it. Returns what the server
 * said about the end.
 */
export async function* followLog<Event, End>(
  transport: Transport,
  policy: RetryPolicy,
  log: FollowedLog<Event, End>,
  options: FollowOptions & { after: number },
): AsyncGenerator<Event, End, undefined> {
  let last = options.after;
  let failures = 0;
  let wishedPauseMs = 0;
  for (;;) {
    options.signal?.throwIfAborted();
    const connection = new Connection(options.silenceMsMax ?? SILENCE_MS_MAX, options.signal);
    try {
      for await (const frame of connection.frames(transport, log, last)) {
        if (frame.kind === 'end') return frame.end;
        if (frame.kind === 'retry') wishedPauseMs = frame.ms;
        if (frame.kind !== 'event') continue;
        const sequence = log.sequenceOf(frame.event);
        if (sequence <= last) continue;
        if (sequence !== last + 1) throw gap(log.name, last, sequence);
        last = sequence;
        failures = 0;
        yield frame.event;
      }
      throw new ConnectionFailed('The stream of events ended before the log did.'); // a restart of the server, or of something between
    } catch (error) {
      options.signal?.throwIfAborted();
      if (!isPassing(error)) throw error;
      connection.close();
      failures += 1;
      await pauseFor(wishedPauseMs + pauseAfter(error, failures, policy), options.signal);
    } finally {
      connection.close();
    }
  }
}

type Frame<Event, End> = { kind: 'event'; event: Event } | { kind: 'end'; end: End } | { kind: 'retry'; ms: number };

/** One connection: its frames as they come, until the server or the network ends it. */
class Connection {
  private readonly controller = new AbortController();
  private readonly silenceMsMax: number;
  private readonly signal: AbortSignal | undefined;
  private readonly onAbort = () => this.controller.abort(this.signal?.reason);
  private watch: NodeJS.Timeout | undefined;

  constructor(silenceMsMax: number, signal: AbortSignal | undefined) {
    this.silenceMsMax = silenceMsMax;
    this.signal = signal;
    signal?.addEventListener('abort', this.onAbort, { once: true });
  }

  async *frames<Event, End>(transport: Transport, log: FollowedLog<Event, End>, last: number): AsyncGenerator<Frame<Event, End>> {
    // `after` says the same as Last-Event-ID would, and holds any id.
    const response = await transport.open(
      log.path,
      { after: last, ...log.query?.() },
      { accept: 'text/event-stream' },
      this.controller.signal,
    );
    if (!response.headers.get('content-type')?.startsWith('text/event-stream')) {
      throw new UnexpectedAnswer('The stream of events is no text/event-stream; is this the address of the API?', response.status);
    }
    const ready: Frame<Event, End>[] = [];
    const parser = createParser({
      onEvent(message) {
        const frame = parseFrame(log, message, response.status);
        if (frame !== undefined) ready.push(frame);
      },
      onRetry: (ms) => ready.push({ kind: 'retry', ms }),
    });
    const text = new TextDecoder();
    for await (const chunk of this.chunks(response)) {
      parser.feed(text.decode(chunk, { stream: true }));
      yield* ready.splice(0);
    }
  }

  close(): void {
    clearTimeout(this.watch);
    this.signal?.removeEventListener('abort', this.onAbort);
    this.controller.abort();
  }

  /** The body; a break of the connection becomes ConnectionFailed. Time that the caller takes does not count as silence. */
  private async *chunks(response: Response): AsyncGenerator<Uint8Array> {
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    for (;;) {
      const { done, value } = await this.read(reader);
      if (done) return;
      yield value;
    }
  }

  private async read(reader: ReadableStreamDefaultReader<Uint8Array>) {
    this.watch = setTimeout(() => this.controller.abort(new Error(`no byte for ${this.silenceMsMax} ms`)), this.silenceMsMax);
    try {
      return await reader.read();
    } catch (error) {
      this.signal?.throwIfAborted();
      throw new ConnectionFailed(`The stream of events broke: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    } finally {
      clearTimeout(this.watch);
    }
  }
}

/** Frames without an id are the server's own: `end`, `error`, and what needs no answer (`shutdown`, or one of a newer server). */
function parseFrame<Event, End>(log: FollowedLog<Event, End>, message: EventSourceMessage, status: number): Frame<Event, End> | undefined {
  const data = parseJson(message.data);
  if (message.id !== undefined) {
    log.onFrame?.(message.id);
    return { kind: 'event', event: parsed(log.event, data, message, status) };
  }
  if (message.event === 'end') return { kind: 'end', end: parsed(log.end, data, message, status) };
  if (message.event === 'error') throw trouble(parsed(Problem, data, message, status));
  return undefined;
}

/** A refusal ends the reading; what only this stream suffered from does not. */
function trouble(problem: Problem): Error {
  return problem.status < 500 ? new ProblemError(problem) : new ConnectionFailed(`The stream of events broke: ${problem.code}`);
}

function parsed<T>(shape: z.ZodType<T>, data: unknown, message: EventSourceMessage, status: number): T {
  const result = shape.safeParse(data);
  if (result.success) return result.data;
  throw new UnexpectedAnswer(`The stream of events has a frame '${message.event}' with other content than this client knows.`, status, {
    cause: result.error,
  });
}

function gap(name: string, last: number, sequence: number): UnexpectedAnswer {
  return new UnexpectedAnswer(`The stream of ${name} goes on with ${sequence} after ${last}: events are missing.`, 200);
}
