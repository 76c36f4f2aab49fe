import type { RunEvent } from '@runplane/contracts';

export interface Terminal {
  write(text: string): unknown;
  readonly isTTY?: boolean | undefined;
  readonly columns?: number | undefined;
}

/** Writes what happens for a person to watch; in colour on a terminal only. */
export class Timeline {
  private readonly out: Terminal;
  private readonly isColoured: boolean;
  private startedAt = performance.now();

  constructor(out: Terminal) {
    this.out = out;
    this.isColoured = out.isTTY === true && (process.env['NO_COLOR'] ?? '') === '';
  }

  chapter(title: string): void {
    this.startedAt = performance.now();
    this.line(`\n${this.paint(BOLD, title)}`);
  }

  say(text: string): void {
    this.line(`  ${text}`);
  }

  check(text: string): void {
    this.line(`  ${this.paint(GREEN, '✓')} ${text}`);
  }

  event({ seq, type, payload }: RunEvent): void {
    const seconds = ((performance.now() - this.startedAt) / 1_000).toFixed(2).padStart(6);
    const text = summaryOf(type, payload);
    const head = `  ${seconds}s ${`#${seq}`.padStart(4)}  ${type.padEnd(17)} `;
    const room = Math.max(20, (this.out.columns ?? 120) - head.length - 1);
    const [first = '', ...more] = text.split('\n').map((line) => (line.length > room ? `${line.slice(0, room - 1)}…` : line));
    this.line(`${this.paint(DIM, head)}${this.paint(COLOURS[type] ?? PLAIN, first)}`);
    for (const line of more) this.line(`${' '.repeat(head.length)}${this.paint(COLOURS[type] ?? PLAIN, line)}`);
  }

  private line(text: string): void {
    this.out.write(`${text}\n`);
  }

  private paint(code: string, text: string): string {
    return this.isColoured && code !== PLAIN ? `\u001b[${code}m${text}\u001b[0m` : text;
  }
}

const PLAIN = '';
const BOLD = '1';
const DIM = '2';
const GREEN = '32';
const COLOURS: Readonly<Record<string, string>> = {
  user_message: '36',
  command_output: '33',
  terminal_status: '35',
  error: '31',
  backend_status: DIM,
};

/** What a reader wants to see of an event, without what would only move the terminal. */
function summaryOf(type: string, payload: RunEvent['payload']): string {
  const { text, phase, stream, terminalStatus, message, extra } = payload;
  const parts: unknown[] =
    type === 'command_output'
      ? [stream === 'stderr' ? 'stderr:' : '', text]
      : type === 'backend_status'
        ? [phase, extra === undefined ? '' : JSON.stringify(extra)]
        : type === 'terminal_status'
          ? [terminalStatus, message]
          : [text ?? JSON.stringify(payload)];
  return parts
    .filter((part) => typeof part === 'string' && part !== '')
    .join(' ')
    .trimEnd()
    .replace(/[^\P{Cc}\n]/gu, '·');
}
