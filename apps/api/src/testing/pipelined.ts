import { once } from 'node:events';
import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import type { FastifyReply } from 'fastify';

/** Requests as Node's own server gives them to the app. */
export interface Pipelined {
  readonly socket: net.Socket;
  readonly replies: readonly FastifyReply[];
  close(): void;
}

/** A client that sends so many requests on one connection without waiting for answers; the server answers none of them. */
export async function pipelined(requests: number): Promise<Pipelined> {
  const replies: FastifyReply[] = [];
  const server = http.createServer((request, response) => {
    replies.push({ raw: response, request: { raw: request } } as FastifyReply);
    server.emit('begun');
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const socket = net.connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => undefined);
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n'.repeat(requests));
  while (replies.length < requests) await once(server, 'begun');
  return {
    socket,
    replies,
    close() {
      socket.destroy();
      server.close();
    },
  };
}
