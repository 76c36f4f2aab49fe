import net from 'node:net';

export interface SseFrame {
  readonly id: string | undefined;
  readonly event: string;
  readonly data: unknown;
}

/** Frames of a text, by the letter of the specification of server-sent events. */
export function parseFrames(text: string): { frames: SseFrame[]; comments: number; retries: number[] } {
  const frames: SseFrame[] = [];
  const retries: number[] = [];
  let comments = 0;
  let [id, event, data]: [string | undefined, string, string[]] = [undefined, 'message', []];
  for (const line of text.split(/\r\n|\n|\r/)) {
    if (line === '') {
      if (data.length > 0) frames.push({ id, event, data: JSON.parse(data.join('\n')) });
      [id, event, data] = [undefined, 'message', []];
      continue;
    }
    const [, field = '', value = ''] = /^([^:]*):? ?(.*)$/s.exec(line) ?? [];
    if (line.startsWith(':')) comments += 1;
    else if (field === 'id') id = value;
    else if (field === 'event') event = value;
    else if (field === 'data') data.push(value);
    else if (field === 'retry') retries.push(Number(value));
  }
  return { frames, comments, retries };
}

/** A client of a raw socket: it can be slow, cut the line, or not read at all. */
export class RawClient {
  readonly socket: net.Socket;
  closed = false;
  #received = Buffer.alloc(0);

  constructor(address: string, path: string, headers: Readonly<Record<string, string>>) {
    const { hostname, port } = new URL(address);
    this.socket = net.connect(Number(port), hostname);
    this.socket.on('data', (chunk) => {
      this.#received = Buffer.concat([this.#received, chunk]);
    });
    this.socket.on('close', () => {
      this.closed = true;
    });
    this.socket.on('error', () => undefined);
    const lines = Object.entries({ host: `${hostname}:${port}`, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
    this.socket.write(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`);
  }

  get head(): string {
    return this.#received.toString('latin1').split('\r\n\r\n')[0] ?? '';
  }

  get bytes(): number {
    return this.#received.length;
  }

  /** True when the last chunk has come: the answer is over, the connection may stay. */
  get complete(): boolean {
    return this.#received.includes('\r\n0\r\n\r\n');
  }

  /** The body so far, out of its chunks. */
  get body(): string {
    const start = this.#received.indexOf('\r\n\r\n');
    if (start === -1) return '';
    const parts: Buffer[] = [];
    for (let at = start + 4; at < this.#received.length;) {
      const lineEnd = this.#received.indexOf('\r\n', at);
      if (lineEnd === -1) break;
      const size = Number.parseInt(this.#received.toString('latin1', at, lineEnd), 16);
      if (!(size > 0)) break;
      parts.push(this.#received.subarray(lineEnd + 2, Math.min(lineEnd + 2 + size, this.#received.length)));
      at = lineEnd + 2 + size + 2;
    }
    return Buffer.concat(parts).toString('utf8');
  }

  get frames(): SseFrame[] {
    const { body } = this;
    return parseFrames(body.slice(0, body.lastIndexOf('\n\n') + 2)).frames;
  }

  async until(holds: (client: RawClient) => boolean, what: string, timeoutMs = 30_000): Promise<void> {
    for (const late = Date.now() + timeoutMs; !holds(this); await new Promise((resolve) => setTimeout(resolve, 5))) {
      if (Date.now() > late) throw new Error(`never came: ${what}; received:\n${this.#received.toString('utf8').slice(-1_000)}`);
    }
  }

  cut(): void {
    this.socket.destroy();
  }
}
