import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import type { RetentionPolicy } from '@runplane/contracts';
import type { Db, SqlExecutor } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import type { ArchiveSink } from './archive-sink';
import { pruneRunEventsOnce, pruneRunsOnce } from './prune-runs';
import { archiveKeyOf, readArchivedRun } from './run-archive';
import { refusal, useRetention } from './testing/retention';

if (process.env['DEATHS'] === 'all') jest.setTimeout(600_000);
const t = useDatabase();
const { stage, dbAhead, pass, anEndedRun, rowsOf, count } = useRetention(t);
let { tenantId, later, dir, archive } = stage;
beforeEach(() => {
  ({ tenantId, later, dir, archive } = stage);
});

describe('an archive that fails', () => {
  let other: string | undefined;
  const flipped = async (key: string) => {
    const file = path.join(dir, key);
    const bytes = await readFile(file);
    bytes[20] = (bytes[20] ?? 0) ^ 1;
    await writeFile(file, bytes);
  };

  test.each<[string, () => ArchiveSink, RegExp]>([
    [
      'does not take the copy',
      () => ({ ...archive, put: () => Promise.reject(new Error('disk full, token=sk-live-aaaabbbbccccdddd')) }),
      /disk full/,
    ],
    [
      'has another copy than was written: one bit',
      () => ({ put: async (key, content) => archive.put(key, content).finally(() => flipped(key)), get: archive.get }),
      /damaged/,
    ],
    ['has a copy of another run', () => ({ put: archive.put, get: async () => archive.get(other ?? '') }), /another copy/],
    [
      'loses the copy',
      () => ({ put: async (key, content) => archive.put(key, content).finally(() => rm(path.join(dir, key))), get: archive.get }),
      /no archive/,
    ],
    ['ends the copy before its end', () => ({ put: async () => ({ bytes: 0, sha256: '' }), get: archive.get }), /did not read the stream/],
  ])('because it %s leaves everything; the next runs go on; it is tried again after a while', async (_what, broken, reason) => {
    const { runId } = await anEndedRun();
    const second = await anEndedRun();
    const before = await rowsOf(runId);
    other ??= archiveKeyOf({ tenantId, ...second }, 'run');
    const sink = broken();
    const onlyFirst: ArchiveSink = {
      put: (key, content) => (key === archiveKeyOf({ tenantId, runId }, 'run') ? sink : archive).put(key, content),
      get: (key) => (key === archiveKeyOf({ tenantId, runId }, 'run') ? sink : archive).get(key),
    };

    const report = await pruneRunsOnce(later, pass({ archive: onlyFirst }));

    expect(report).toMatchObject({
      changed: 1,
      failed: 1,
      tenants: [{ ids: [second.runId], failures: [{ id: runId, reason: expect.stringMatching(reason) }] }],
    });
    expect(await rowsOf(runId)).toEqual(before);
    expect((await pruneRunsOnce(later, pass())).changed).toBe(0);
    const { rows } = await t.db.pool.query(`SELECT data, owner FROM runplane.reservations WHERE owner IS NOT NULL AND tenant_id = $1`, [
      tenantId,
    ]);
    expect(rows).toMatchObject([{ data: { failures: 1, lastError: expect.stringMatching(reason) } }]);
    expect(JSON.stringify(rows)).not.toContain('sk-live');
    const afterwards = await dbAhead(41);
    expect((await pruneRunsOnce(afterwards, pass())).tenants).toMatchObject([{ ids: [runId] }]);
    await afterwards.close();
  });

  test('leaves no half file behind, also of a process that died while it wrote', async () => {
    const { runId } = await anEndedRun();
    const key = archiveKeyOf({ tenantId, runId }, 'run');
    await archive.put(key, Readable.from([Buffer.from('old')]));
    await writeFile(path.join(dir, `${key}.dead.tmp`), 'half');
    const broken = Readable.from(
      (function* () {
        yield Buffer.from('new');
        throw new Error('the source breaks');
      })(),
    );

    expect(await refusal(archive.put(key, broken))).toMatchObject({ message: 'the source breaks' });

    expect(await readFile(path.join(dir, key), 'utf8')).toBe('old');
    expect(await readdir(path.dirname(path.join(dir, key)))).toEqual(['run.jsonl.gz']);
    for (const wrong of ['../x', 'a/../b', '/etc/passwd', '.hidden', '', 'a//b'])
      expect(await refusal(archive.get(wrong))).toMatchObject({ code: 'archive_not_found' });
  });
});

/** DEATHS=all: at every statement; else at some of them, each time others. */
const STEP = process.env['DEATHS'] === 'all' ? 1 : 6;

describe('a process that dies in the middle of a removal', () => {
  /** A store handle that stops working at a statement, as the process would. */
  function dying(db: Db, diesAt: number): { db: Db; statements: () => number } {
    let statements = 0;
    const alive = (): void => {
      statements += 1;
      if (statements >= diesAt) throw new Error('the process is gone');
    };
    const prisma = new Proxy(db.prisma, {
      get: (target, name) =>
        name !== '$transaction'
          ? (Reflect.get(target, name) as unknown)
          : (work: (client: unknown) => Promise<unknown>, options: object) =>
              target.$transaction(
                (client) =>
                  work({
                    $queryRawUnsafe: (text: string, ...values: unknown[]) => {
                      alive();
                      return client.$queryRawUnsafe(text, ...values);
                    },
                  }),
                options,
              ),
    });
    const through = (on: SqlExecutor): SqlExecutor => ({
      query: async (statement) => {
        alive();
        return on.query(statement);
      },
    });
    return { db: { ...db, prisma, sql: through(db.sql), lane: through(db.lane) }, statements: () => statements };
  }

  test.each<[string, typeof pruneRunsOnce, Partial<RetentionPolicy>]>([
    ['runs', pruneRunsOnce, { runsDays: 30 }],
    ['events', pruneRunEventsOnce, { eventsDays: 30 }],
  ])('leaves, whatever its last statement was, %s that a later pass removes', async (_what, prune, policy) => {
    const late = await dbAhead(41);
    let total = Infinity;
    for (let diesAt = 1 + Math.floor(Math.random() * STEP); diesAt < total + STEP; diesAt += STEP) {
      const { runId } = await anEndedRun(5);
      const stood = (await rowsOf(runId))['event'];
      const mortal = dying(later, diesAt);
      const first = await prune(mortal.db, pass({ policy, chunkEvents: 4 })).catch(() => undefined);
      if (first?.changed === 1) total = mortal.statements();

      const second = await prune(late, pass({ policy, chunkEvents: 4 }));

      expect((first?.changed ?? 0) + second.changed).toBeGreaterThanOrEqual(1);
      expect((await readArchivedRun(archive, archiveKeyOf({ tenantId, runId }, 'events'))).rows.event).toEqual(stood);
      expect(await count('run_events', `run_id = '${runId}'`)).toBe(policy.runsDays === undefined ? 1 : 0);
      expect(await count('run_tombstones', `run_id = '${runId}'`)).toBe(policy.runsDays === undefined ? 0 : 1);
    }
    await late.close();
  });
});
