import { IMPORT_BYTES_MAX, IMPORT_LINE_BYTES_MAX, InvalidImport } from '@runplane/contracts';

/**
 * The lines of a file, numbered from 1, while its bytes come: no more than one of them and a chunk is held. An end without a line break is a line
 * as well. Errors: InvalidImport: no UTF-8, an empty line, a line or a file that is too large.
 */
export async function* linesOf(content: AsyncIterable<Uint8Array>): AsyncGenerator<{ number: number; text: string }, void, undefined> {
  let number = 0;
  let bytes = 0;
  let parts: Uint8Array[] = [];
  let held = 0;
  const line = (last: Uint8Array): { number: number; text: string } => {
    number += 1;
    const whole = Buffer.concat([...parts, last]);
    parts = [];
    held = 0;
    if (whole.length === 0) throw refused(number, 'it is empty');
    if (whole.length > IMPORT_LINE_BYTES_MAX) throw refused(number, `it has more than ${IMPORT_LINE_BYTES_MAX} bytes`);
    return { number, text: decoded(whole, number) };
  };
  for await (const chunk of content) {
    bytes += chunk.length;
    if (bytes > IMPORT_BYTES_MAX) throw refused(number + 1, `the file has more than ${IMPORT_BYTES_MAX} bytes`);
    let from = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, from)) {
      yield line(chunk.subarray(from, at));
      from = at + 1;
    }
    if (from === chunk.length) continue;
    parts.push(Buffer.from(chunk.subarray(from)));
    held += chunk.length - from;
    if (held > IMPORT_LINE_BYTES_MAX) throw refused(number + 1, `it has more than ${IMPORT_LINE_BYTES_MAX} bytes`);
  }
  if (held > 0) yield line(new Uint8Array());
}

function decoded(bytes: Uint8Array, number: number): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw refused(number, 'it is no UTF-8');
  }
}

function refused(line: number, reason: string): InvalidImport {
  return new InvalidImport(`Line ${line}: ${reason}.`, { line, reason });
}
