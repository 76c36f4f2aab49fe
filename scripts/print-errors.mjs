// Prints docs/errors.md from the error classes and the status table: node scripts/print-errors.mjs > docs/errors.md
import { readFileSync } from 'node:fs';

const read = (file) => readFileSync(new URL(`../${file}`, import.meta.url), 'utf8');

/** The files of errors, in the order of libs/contracts/src/errors.ts, as one text. */
function readSources() {
  const areas = [...read('libs/contracts/src/errors.ts').matchAll(/^export \* from '\.\/(errors\/\w+)';$/gm)];
  return areas.map(([, area]) => read(`libs/contracts/src/${area}.ts`)).join('\n');
}

/** The classes in their order: what each says about itself. */
function readErrors() {
  const source = readSources();
  const form = /\/\*\* (.+) \*\/\nexport class (\w+)\s+extends DomainError<\s*'(\w+)',([\s\S]*?)>\s*\{\n([\s\S]*?)\n\}/g;
  const found = [...source.matchAll(form)].map(([, meaning, name, code, data, body]) => ({
    meaning,
    name,
    code,
    data: describeData(data),
    failureKind: /failureKind = '([^']+)'/.exec(body)?.[1] ?? 'schema-invalid',
    retryable: /retryable = true/.test(body),
  }));
  const classes = source.match(/^export class /gm)?.length ?? 0;
  if (found.length !== classes) throw new Error(`${classes} error classes, ${found.length} understood`);
  return found;
}

/** `{ runId: string; epoch: number }` without the braces, on one line. */
function describeData(type) {
  const line = type.replace(/\s+/g, ' ').replace(/,? $/, '').trim();
  return line === 'Record<string, never>' ? '' : line.replace(/^\{ | \}$/g, '').replace(/; ?$/, '');
}

function readStatuses() {
  const [, table = ''] = /STATUS_BY_CODE = \{([\s\S]*?)\n\}/.exec(read('apps/api/src/error-status.ts')) ?? [];
  return new Map([...table.matchAll(/^\s*(\w+): (\d{3}),/gm)].map(([, code, status]) => [code, Number(status)]));
}

const cell = (text) => text.replaceAll('|', '\\|');

export function printErrors() {
  const statuses = readStatuses();
  const rows = readErrors().map(({ meaning, name, code, data, failureKind, retryable }) => {
    const status = statuses.get(code);
    if (status === undefined) throw new Error(`${code} has no status`);
    return {
      status,
      line: `| ${status} | \`${code}\` | ${cell(meaning)} | ${data === '' ? '' : `\`${cell(data)}\``} | \`${failureKind}\` | ${retryable ? 'yes' : ''} | \`${name}\` |`,
    };
  });
  const lines = rows.sort((a, b) => a.status - b.status).map(({ line }) => line);
  return `# Errors

Printed by \`node scripts/print-errors.mjs > docs/errors.md\` from [errors.ts](../libs/contracts/src/errors.ts) and [error-status.ts](../apps/api/src/error-status.ts).

Refusals are \`application/problem+json\` (RFC 9457): \`type\`, \`title\`, \`status\`, \`detail\` (for people, never parsed), \`instance\`, \`code\`, \`failureKind\`, \`retryable\`, \`data\`, \`requestId\`. The code is the interface. In the libraries the same
refusals are classes with \`code\`, \`data\`, \`retryable\`. \`retryable\` means: the same call may succeed later without any change. \`Retry-After\` comes with every 503, and with \`session_busy\` and \`run_claimed\` where the time is known.

| status | code | means | data | failure kind | retryable | class |
|---|---|---|---|---|---|---|
${lines.join('\n')}

Besides these: 415 \`unsupported_media_type\` (the body must be JSON) and 500 \`internal_error\`, which says nothing; the log has the reason under the request id.
\`not_in_transaction\` and \`wrong_isolation\` concern embedders only; no route answers with them. A plain \`Error\`, \`LockOrderError\` among them, is a bug.
`;
}

if (process.argv[1] === new URL(import.meta.url).pathname) process.stdout.write(printErrors());
