import type { ServerResponse } from 'node:http';
import type { FeedEvent, RunEvent, SessionEvent } from '@runplane/contracts';
import type { FastifyReply } from 'fastify';

// Server-sent events on the raw response. What the wire carries:
//
// - an event of the log: `id: <run>:<seq>`, or `<session>:<incarnation>:<seq>`, `event: <type>`, `data: <the event as one line of JSON>`. They leave in order of seq, so the
//   last id that a client has seen is where it goes on;
// - an event of the feed: the same with its cursor as the id; an id alone moves the place of a filtered reader;
// - control frames, all without an id: `end` (the run has ended: do not come back), `error` (a problem; come back), `shutdown` (come back
//   at once, to another process);
// - comments every 15 s, so that proxies and clients see a living connection.

const PING_EVERY_MS = 15_000;
/** A client that takes less than one slice in this time has gone, whatever its socket says. */
const STALLED_AFTER_MS = 60_000;
const SLICE_BYTES = 64 * 1024;
/** How soon a client comes back by itself after a cut, and after a shutdown. */
const RETRY_MS = 2_000;
const RETRY_AFTER_SHUTDOWN_MS = 500;

/** The client has gone, or takes nothing any more; there is nobody to tell. */
export class ClientGone extends Error {
  override readonly name = 'ClientGone';
}

/** Ids of runs and sessions may hold any letter, a header may not. */
export function frameId(logId: string, seq: number): string {
  return `${encodeURIComponent(logId)}:${seq}`;
}

/** The sequence in an id of this run or session; undefined when it is malformed or of another. */
export function parseFrameId(id: string, logId: string): number | undefined {
  const [, log, seq] = /^(.*):(0|[1-9]\d{0,14})$/s.exec(id) ?? [];
  return log === encodeURIComponent(logId) || log === logId ? Number(seq) : undefined;
}

/** JSON has no raw line break, and a type that could break the line is refused at append; here it is the second lock. */
export function eventFrame(event: RunEvent): string {
  return `id: ${frameId(event.runId, event.seq)}\n${controlFrame(event.type, event)}`;
}

/** Ids of sessions may be used again after a deletion: their frames name the life that they are of. */
export function sessionEventFrame({ sessionId, incarnation }: { sessionId: string; incarnation: string }, event: SessionEvent): string {
  return `id: ${encodeURIComponent(sessionId)}:${incarnation}:${event.sequence}\n${controlFrame(event.type, event)}`;
}

/** Undefined when it is malformed, or of another session. */
export function parseSessionFrameId(id: string, sessionId: string): { incarnation: string; sequence: number } | undefined {
  const [, frame = '', incarnation = '', sequence = ''] = /^(.*):(\w{1,64}):(0|[1-9]\d{0,14})$/s.exec(id) ?? [];
  return frame !== '' && (frame === encodeURIComponent(sessionId) || frame === sessionId)
    ? { incarnation, sequence: Number(sequence) }
    : undefined;
}

/** The id of an event of the feed is its cursor. */
export function feedEventFrame(event: FeedEvent): string {
  return `id: ${event.cursor}\n${controlFrame(event.type, event)}`;
}

/** Moves the client's place, and tells it nothing. */
export function placeFrame(cursor: string): string {
  return `id: ${cursor}\n\n`;
}

export function controlFrame(name: string, data: unknown): string {
  return `event: ${name.replace(/[^\w./-]/g, '?')}\ndata: ${JSON.stringify(data)}\n\n`;
}

/** One open stream. Frames are written one after another; a comment never stands inside one. */
export class EventStream {
  readonly #raw: ServerResponse;
  readonly #ping: NodeJS.Timeout;
  #writing = false;
  #failed = false;

  /** Takes the response over from Fastify, with the headers that its hooks have set, and sends the headers at once. */
  constructor(reply: FastifyReply) {
    reply.hijack();
    this.#raw = reply.raw;
    this.#raw.on('error', () => {
      this.#failed = true;
    });
    for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) this.#raw.setHeader(name, value);
    this.#raw.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache, no-transform',
      connection: 'keep-alive',
      'x-accel-buffering': 'no',
    });
    this.#raw.write(`retry: ${RETRY_MS}\n\n`);
    this.#ping = setInterval(() => {
      if (!this.#writing && this.#open) this.#raw.write(': ping\n\n');
    }, PING_EVERY_MS).unref();
  }

  /** Resolves when the client has room for more. Errors: ClientGone. */
  async send(frame: string): Promise<void> {
    this.#writing = true;
    try {
      const bytes = Buffer.from(frame, 'utf8');
      for (let from = 0; from < bytes.length; from += SLICE_BYTES) await this.#write(bytes.subarray(from, from + SLICE_BYTES));
    } finally {
      this.#writing = false;
    }
  }

  /** `shutdown`: says so, with the hint to come back soon. Never throws. */
  end(last?: 'shutdown'): void {
    clearInterval(this.#ping);
    if (!this.#open) return;
    if (last === 'shutdown') this.#raw.write(`retry: ${RETRY_AFTER_SHUTDOWN_MS}\n${controlFrame('shutdown', {})}`);
    this.#raw.end();
  }

  get #open(): boolean {
    return !this.#failed && !this.#raw.destroyed && !this.#raw.writableEnded;
  }

  async #write(bytes: Uint8Array): Promise<void> {
    if (!this.#open) throw new ClientGone();
    if (this.#raw.write(bytes)) return;
    if ((await drained(this.#raw)) !== 'drain') {
      this.#raw.destroy();
      throw new ClientGone();
    }
  }
}

/** Waits for room, or for a reason not to wait for it any longer; leaves no listener and no timer behind. */
function drained(raw: ServerResponse): Promise<'drain' | 'close' | 'error' | 'stalled'> {
  return new Promise((resolve) => {
    const settle = (how: 'drain' | 'close' | 'error' | 'stalled'): void => {
      clearTimeout(timer);
      raw.off('drain', onDrain).off('close', onClose).off('error', onError);
      resolve(how);
    };
    const onDrain = (): void => {
      settle('drain');
    };
    const onClose = (): void => {
      settle('close');
    };
    const onError = (): void => {
      settle('error');
    };
    const timer = setTimeout(settle, STALLED_AFTER_MS, 'stalled').unref();
    raw.once('drain', onDrain).once('close', onClose).once('error', onError);
  });
}
