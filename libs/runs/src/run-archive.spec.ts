import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { SqlExecutor } from '@runplane/database';
import type { ArchiveSink } from './archive-sink';
import { archiveRun, readArchivedRun } from './run-archive';

/** Keeps what it is given in memory. */
function memorySink(): ArchiveSink {
  const kept = new Map<string, Buffer>();
  return {
    put: async (key, content) => {
      const chunks: Buffer[] = [];
      for await (const chunk of content) chunks.push(chunk as Buffer);
      const all = Buffer.concat(chunks);
      kept.set(key, all);
      return { bytes: all.length, sha256: createHash('sha256').update(all).digest('hex') };
    },
    get: (key) => Promise.resolve(Readable.from([kept.get(key) ?? Buffer.alloc(0)])),
  };
}

test('a whole number that JavaScript cannot hold is read as the text of its digits, everything else as it stands', async () => {
  const row =
    '{"last_tx":9223372036854775807,"low":-9007199254740993,"safe":9007199254740991,"float":0.12345678901234567890,"text":"at 9007199254740993 \\"said\\" \\\\","list":[12345678901234567890,1e300]}';
  const pages: Awaited<ReturnType<SqlExecutor['query']>>[] = [[{ place: 'r', row }]]; // one run, and nothing under it
  const stored = {
    sessionId: null, status: 'completed', finishedAt: '2026-01-01T00:00:00.000Z', eventsPrunedAt: null, prunedThrough: null,
    lastEventSeq: 0, firstEventSeq: null, commands: 0, intents: 0, runnerJobs: 0, cancelRequests: 0, stamp: '',
  } as const; // prettier-ignore
  const sink = memorySink();

  const about = { tenantId: 't', runId: 'r', stored, scope: 'run' as const, alive: () => Promise.resolve() };
  const { key } = await archiveRun({ query: () => Promise.resolve(pages.shift() ?? []) }, sink, about);

  expect((await readArchivedRun(sink, key)).rows.run).toEqual([
    {
      last_tx: '9223372036854775807',
      low: '-9007199254740993',
      safe: 9007199254740991,
      float: 0.12345678901234568,
      text: 'at 9007199254740993 "said" \\',
      list: ['12345678901234567890', 1e300],
    },
  ]);
});
