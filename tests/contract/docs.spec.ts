import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';

const root = path.resolve(__dirname, '../..');
const SKIPPED = new Set(['node_modules', 'dist', 'coverage', '.git', '.nx', '.runplane']);

function documentsUnder(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const file = path.join(folder, entry.name);
    if (entry.isDirectory()) return SKIPPED.has(entry.name) ? [] : documentsUnder(file);
    return entry.name.endsWith('.md') ? [file] : [];
  });
}

const withoutCode = (text: string): string => text.replace(/^```[\s\S]*?^```/gm, '').replace(/`[^`\n]*`/g, 'code');

/** As the usual renderers name a heading. */
const anchorOf = (heading: string): string =>
  heading
    .replaceAll('`', '')
    .toLowerCase()
    .replace(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');

function anchorsOf(file: string): string[] {
  return [...readFileSync(file, 'utf8').matchAll(/^#{1,6} (.+)$/gm)].map(([, heading = '']) => anchorOf(heading));
}

/** Links that lead nowhere, of one document. */
function brokenLinks(document: string): string[] {
  const links = [...withoutCode(readFileSync(document, 'utf8')).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
  return links.filter((link) => {
    if (/^(https?|mailto):/.test(link)) return false;
    const [target = '', anchor] = link.split('#');
    const file = target === '' ? document : path.resolve(path.dirname(document), decodeURIComponent(target));
    if (!existsSync(file)) return true;
    return anchor !== undefined && statSync(file).isFile() && file.endsWith('.md') && !anchorsOf(file).includes(anchor);
  });
}

const documents = documentsUnder(root).map((file) => path.relative(root, file));

describe('the documents', () => {
  test.each(documents)('%s links to what is there', (document) => {
    expect(brokenLinks(path.join(root, document))).toEqual([]);
  });

  test('docs/invariants.md has a chapter on each invariant that is checked', () => {
    const checks = readFileSync(path.join(root, 'tests/support/invariants.sql'), 'utf8');
    const chapters = readFileSync(path.join(root, 'docs/invariants.md'), 'utf8');
    const names = new Set([...checks.matchAll(/SELECT '([A-Z]+-\d)'/g)].map(([, name]) => name));

    expect([...names].filter((name) => !chapters.includes(`## ${name}: `))).toEqual([]);
  });

  test('README.md lists the npm scripts, and only those that there are', () => {
    const { scripts } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> };
    const listed = [...readFileSync(path.join(root, 'README.md'), 'utf8').matchAll(/^\| `npm (?:run )?([\w:]+)[^`]*` \|/gm)].map(
      ([, name]) => name,
    );

    expect(listed.sort()).toEqual(
      Object.keys(scripts)
        .filter((name) => name !== 'prepare')
        .sort(),
    );
  });

  test('README.md shows the examples as they are', () => {
    const blocks = [...readFileSync(path.join(root, 'README.md'), 'utf8').matchAll(/^```ts\n([\s\S]*?)^```/gm)].map(([, code = '']) =>
      code.trim(),
    );
    const examples = readdirSync(path.join(root, 'examples')).filter((name) => name.endsWith('.ts'));
    const sources = examples.map((name) => readFileSync(path.join(root, 'examples', name), 'utf8'));

    expect(blocks).toHaveLength(2);
    expect(blocks.filter((block) => !sources.some((source) => source.includes(block)))).toEqual([]);
  });

  test.each([
    ['docs/sessions.md', 'examples/session-worker.ts'],
    ['docs/feed.md', 'examples/consume-feed.ts'],
  ])('%s shows its example as it is', (document, file) => {
    const blocks = [...readFileSync(path.join(root, document), 'utf8').matchAll(/^```ts\n([\s\S]*?)^```/gm)];
    const example = readFileSync(path.join(root, file), 'utf8');

    expect(blocks.map(([, code = '']) => example.includes(code.trim()))).toEqual([true]);
  });

  test('docs/cases.md quotes tests that exist', () => {
    const cases = readFileSync(path.join(root, 'docs/cases.md'), 'utf8');
    const quotes = [...cases.matchAll(/\]\(\.\.\/([^)]+\.spec\.ts)\)((?:,? “[^”]+”)+)/g)].flatMap(([, file = '', names = '']) =>
      [...names.matchAll(/“([^”]+)”/g)].map(([, name = '']) => ({ file, name })),
    );
    const missing = quotes.filter(({ file, name }) => !readFileSync(path.join(root, file), 'utf8').includes(name));

    expect(missing).toEqual([]);
    expect(quotes.length).toBeGreaterThan(50);
  });

  test('docs/errors.md is what scripts/print-errors.mjs prints', () => {
    const printed = execFileSync(process.execPath, ['scripts/print-errors.mjs'], { cwd: root, encoding: 'utf8' });

    expect(readFileSync(path.join(root, 'docs/errors.md'), 'utf8')).toBe(printed);
  });
});
