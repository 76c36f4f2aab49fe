import { Overloaded, ShuttingDown } from '@runplane/contracts';
import type { FastifyReply } from 'fastify';

/** One request that waits: a long poll or an event stream. */
export interface Waiter {
  /** Aborted when the process shuts down, or when the client has gone. */
  readonly signal: AbortSignal;
  leave(): void;
}

/** The waiting requests of this process: counted, bounded, and let go at shutdown. They hold a socket each, and no connection of the pool. */
export class Waiters {
  readonly #waitersMax: number;
  readonly #waiting = new Set<AbortController>();
  #shuttingDown = false;

  constructor(waitersMax: number) {
    this.#waitersMax = waitersMax;
  }

  get count(): number {
    return this.#waiting.size;
  }

  get shuttingDown(): boolean {
    return this.#shuttingDown;
  }

  /** Errors: Overloaded when there are as many as may be, ShuttingDown. */
  enter(reply: FastifyReply): Waiter {
    if (this.#shuttingDown) throw new ShuttingDown();
    if (this.#waiting.size >= this.#waitersMax) {
      throw new Overloaded('This process serves as many waiting requests as it may: repeat the call.', { waitersMax: this.#waitersMax });
    }
    const controller = new AbortController();
    const gone = (): void => {
      controller.abort();
    };
    this.#waiting.add(controller);
    // The connection's own end: an answer that waits behind others of its connection does not hear of it, and one that has heard does not say so twice.
    const { socket } = reply.request.raw;
    socket.setMaxListeners(0); // as many as the requests that a client sends without waiting for answers; waitersMax bounds them
    socket.once('close', gone);
    if (socket.destroyed) gone();
    return {
      signal: controller.signal,
      leave: () => {
        socket.off('close', gone);
        this.#waiting.delete(controller);
      },
    };
  }

  /** Runs a long poll as one waiter. With `waitMs` 0 it does not wait, and counts for nothing. */
  async poll<T>(reply: FastifyReply, waitMs: number, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    if (waitMs === 0 || this.#shuttingDown) return work(AbortSignal.abort());
    const waiter = this.enter(reply);
    try {
      return await work(waiter.signal);
    } finally {
      waiter.leave();
    }
  }

  /** Everybody who waits is answered now; nobody may wait any more. */
  shutdown(): void {
    this.#shuttingDown = true;
    for (const controller of this.#waiting) controller.abort();
  }
}
