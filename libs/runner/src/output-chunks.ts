import { utf8Bytes } from '@runplane/contracts';
import { StringDecoder } from 'node:string_decoder';

export const CHUNK_BYTES_MAX = 64 * 1024;
/** An unfinished line waits so long for its end. */
const FLUSH_MS = 100;

/**
 * Bytes of a program's output as texts for events: whole lines where they come in time, at most CHUNK_BYTES_MAX each, never cut inside a
 * character. `emit` is called in order; its promise holds up the reading.
 */
export class OutputChunks {
  private readonly emit: (text: string, time: string) => Promise<void>;
  private readonly decoder = new StringDecoder('utf8'); // keeps an unfinished character for the next chunk
  private pending = '';
  private pendingSince = '';
  private timer: NodeJS.Timeout | undefined;

  constructor(emit: (text: string, time: string) => Promise<void>) {
    this.emit = emit;
  }

  async write(bytes: Buffer): Promise<void> {
    await this.add(this.decoder.write(bytes));
  }

  async end(): Promise<void> {
    await this.add(this.decoder.end());
    await this.flush();
  }

  private async add(text: string): Promise<void> {
    if (text === '') return;
    if (this.pending === '') this.pendingSince = new Date().toISOString();
    this.pending += text;
    const lineEnd = this.pending.lastIndexOf('\n') + 1;
    if (lineEnd > 0) await this.flush(lineEnd);
    else if (utf8Bytes(this.pending) >= CHUNK_BYTES_MAX) await this.flush();
    if (this.pending !== '') this.timer ??= setTimeout(() => void this.flush().catch(() => undefined), FLUSH_MS); // the next write fails too
  }

  private async flush(length = this.pending.length): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    const text = this.pending.slice(0, length);
    const time = this.pendingSince;
    this.pending = this.pending.slice(length);
    this.pendingSince = new Date().toISOString();
    await Promise.all(splitText(text, CHUNK_BYTES_MAX).map((part) => this.emit(part, time)));
  }
}

/** Parts of at most so many bytes of UTF-8, at the end of a line where there is one in the second half, never inside a character. */
export function splitText(text: string, bytesMax: number): string[] {
  if (text === '') return [];
  if (utf8Bytes(text) <= bytesMax) return [text];
  const bytes = Buffer.from(text, 'utf8');
  const parts: string[] = [];
  for (let start = 0; start < bytes.length;) {
    const end = partEnd(bytes, start, bytesMax);
    parts.push(bytes.toString('utf8', start, end));
    start = end;
  }
  return parts;
}

function partEnd(bytes: Buffer, start: number, bytesMax: number): number {
  if (bytes.length - start <= bytesMax) return bytes.length;
  let end = start + bytesMax;
  const lineEnd = bytes.lastIndexOf(0x0a, end - 1) + 1;
  if (lineEnd > start + bytesMax / 2) return lineEnd;
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1; // a continuation byte: the character began earlier
  return end;
}
