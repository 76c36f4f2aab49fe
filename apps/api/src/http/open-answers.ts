import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

/** Answers that have not gone out yet, of connections that are open. One that waits behind another of its connection does not hear of the end of that. */
export class OpenAnswers {
  readonly #byConnection = new WeakMap<Socket, Set<ServerResponse>>();
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Counts it until it has gone out, or its connection has closed. */
  add(answer: ServerResponse, connection: Socket): void {
    if (connection.destroyed) return;
    const open = this.#byConnection.get(connection) ?? this.#follow(connection);
    open.add(answer);
    this.#count += 1;
    const done = (): void => {
      if (open.delete(answer)) this.#count -= 1;
    };
    answer.once('close', done).once('finish', done);
  }

  #follow(connection: Socket): Set<ServerResponse> {
    const open = new Set<ServerResponse>();
    this.#byConnection.set(connection, open);
    connection.once('close', () => {
      this.#count -= open.size;
      open.clear();
    });
    return open;
  }
}
