import type { Stream } from './hub';

/** The NOTIFY channel of a database. */
export const HINT_CHANNEL = 'runplane_changes';

/** PostgreSQL refuses a payload of 8,000 bytes or more. */
const PAYLOAD_BYTES_MAX = 7_900;

/** The payloads that tell other processes of changed streams: JSON arrays, the sender first. A name too long for any payload is left to the safety poll. */
export function encodeHints(sender: string, streams: Iterable<Stream>): string[] {
  const payloads: string[] = [];
  const head = JSON.stringify(sender);
  const room = PAYLOAD_BYTES_MAX - Buffer.byteLength(head) - 2;
  let names: string[] = [];
  let bytes = 0;
  const flush = (): void => {
    if (names.length > 0) payloads.push(`[${[head, ...names].join(',')}]`);
    names = [];
    bytes = 0;
  };
  for (const stream of streams) {
    const name = JSON.stringify(stream);
    const size = Buffer.byteLength(name) + 1;
    if (size > room) continue;
    if (bytes + size > room) flush();
    names.push(name);
    bytes += size;
  }
  flush();
  return payloads;
}

/** What a payload says; undefined for one that is not ours. */
export function decodeHints(payload: string): { sender: string; streams: Stream[] } | undefined {
  try {
    const parsed: unknown = JSON.parse(payload);
    if (!Array.isArray(parsed) || !parsed.every((part): part is string => typeof part === 'string')) return undefined;
    const [sender, ...streams] = parsed;
    return sender === undefined ? undefined : { sender, streams: streams as Stream[] };
  } catch {
    return undefined;
  }
}
