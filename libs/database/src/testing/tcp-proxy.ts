import { once } from 'node:events';
import net from 'node:net';

/**
 * What becomes of bytes that a client sends: passed on; kept back, with what it sends after them, until `release`; passed on but the answer
 * is lost with the connection; lost with the connection.
 */
export type Fate = 'forward' | 'hold' | 'lose-answer' | 'lose-request';

/** A network between a client and the server, with faults on demand. */
export interface TcpProxy {
  /** The given URL, by way of this proxy. */
  through(url: string): string;
  /** From now on no byte passes in either direction, and nobody is told: a black hole. */
  swallow(): void;
  /** New connections work again; both sides of old ones are told that they are dead. */
  heal(): void;
  /** Decides over each packet of a client. */
  judge(fate: (bytes: Buffer) => Fate): void;
  /** What was kept back is passed on. */
  release(): void;
  close(): Promise<void>;
}

export async function startTcpProxy(target: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(target);
  const open = new Set<net.Socket>();
  const dead = new Set<() => void>();
  const holding = new Set<() => void>();
  let swallowing = false;
  let judged: (bytes: Buffer) => Fate = () => 'forward';

  const server = net.createServer((client) => {
    const upstream = net.connect(Number(port || 5432), hostname);
    let answerLost = false;
    const held: Buffer[] = [];
    const letGo = (): void => {
      for (const bytes of held.splice(0)) upstream.write(bytes);
    };
    const cut = (): void => {
      client.destroy();
      upstream.destroy();
    };
    const isDead = (): boolean => {
      if (swallowing) dead.add(cut);
      return dead.has(cut);
    };
    client.on('data', (bytes) => {
      if (isDead()) return;
      const fate = held.length > 0 ? 'hold' : judged(bytes);
      if (fate === 'hold') {
        held.push(bytes);
        holding.add(letGo);
        return;
      }
      if (fate === 'lose-request') return cut();
      answerLost ||= fate === 'lose-answer';
      upstream.write(bytes);
    });
    upstream.on('data', (bytes) => {
      if (isDead()) return;
      if (answerLost) return cut();
      client.write(bytes);
    });
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on('error', () => undefined);
      socket.on('close', () => {
        open.delete(socket);
        if (!isDead()) cut();
      });
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address() as net.AddressInfo;

  return {
    through(url) {
      const changed = new URL(url);
      changed.host = `127.0.0.1:${address.port}`;
      return changed.toString();
    },
    swallow() {
      swallowing = true;
    },
    heal() {
      swallowing = false;
      for (const cut of dead) cut();
      dead.clear();
    },
    judge(fate) {
      judged = fate;
    },
    release() {
      for (const letGo of holding) letGo();
      holding.clear();
    },
    async close() {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
