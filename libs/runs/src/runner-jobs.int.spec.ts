import { contentHash, encodeCursor, REFERENCE_BYTES_MAX, type SaveRunnerJob } from '@runplane/contracts';
import { inTransaction } from '@runplane/database';
import { useDatabase } from '@runplane/database/testing';
import { cancelRun } from './cancel-run';
import { claimDispatchIntents, completeDispatchIntent } from './dispatch-intents';
import {
  getRunnerJob,
  getRunnerJobByIdempotencyKey,
  listRunnerJobs,
  listRunnerJobsForReconciliation,
  mergeRunnerJobResult,
  saveRunnerJob,
  settleRunnerJobs,
} from './runner-jobs';
import { aTurn, makeTenants, TENANT } from './testing';

const t = useDatabase();
beforeAll(() => makeTenants(t.db, 'other'));

const save = (run: { id: string }, job: SaveRunnerJob, idempotencyKey?: string, tenantId = TENANT) =>
  inTransaction(t.db, (tx) => saveRunnerJob(tx, { tenantId, runId: run.id, job, idempotencyKey }));
const cancel = (run: { id: string }) => inTransaction(t.db, (tx) => cancelRun(tx, { tenantId: TENANT, runId: run.id }));
const reconcile = (launcher: string, over: { limit?: number; openOnly?: boolean } = {}) =>
  listRunnerJobsForReconciliation(t.db, { launcher, restMs: 0, ...over });

describe('the record of a launched job', () => {
  test('is made once for a key, and shows no secret', async () => {
    const { run, command } = await aTurn(t.db);
    const job = { commandId: command.id, jobName: 'job-1', namespace: 'agents', result: { phase: 'Pending', apiKey: 'sk-secret' } };

    const first = await save(run, job, 'k1');
    expect(first).toMatchObject({ replayed: false, job: { runId: run.id, commandId: command.id, namespace: 'agents', settledAt: null } });
    expect(JSON.stringify(first)).not.toContain('sk-secret');
    expect(await save(run, { ...job, result: { phase: 'Running' } }, 'k1')).toEqual({ job: first.job, replayed: true });
    await expect(save(run, { ...job, jobName: 'job-2' }, 'k1')).rejects.toMatchObject({ code: 'idempotency_conflict' });

    const key = { tenantId: TENANT, runId: run.id, idempotencyKey: 'k1' };
    expect(await getRunnerJobByIdempotencyKey(t.db, { ...key, payloadHash: first.job.payloadHash ?? '' })).toEqual(first.job);
    expect(await getRunnerJobByIdempotencyKey(t.db, { ...key, idempotencyKey: 'k2' })).toBeNull();
    expect(await getRunnerJobByIdempotencyKey(t.db, { ...key, tenantId: 'other' })).toBeNull();
    await expect(getRunnerJobByIdempotencyKey(t.db, { ...key, payloadHash: 'other' })).rejects.toMatchObject({
      code: 'idempotency_conflict',
    });
  });

  test('is refused for a command of another run, for a foreign run and for input of the wrong shape, and nothing is written', async () => {
    const { run, command } = await aTurn(t.db);
    const other = await aTurn(t.db);
    const job = { commandId: command.id, jobName: 'job-1' };

    await expect(save(run, { ...job, commandId: other.command.id })).rejects.toMatchObject({ code: 'command_not_of_run' });
    await expect(save(run, job, undefined, 'other')).rejects.toMatchObject({ code: 'run_not_found' });
    await expect(save(run, { ...job, jobName: '' })).rejects.toMatchObject({ code: 'invalid_request' });
    await expect(save(run, { ...job, result: { text: 'x'.repeat(REFERENCE_BYTES_MAX) } })).rejects.toMatchObject({
      code: 'payload_too_large',
    });
    expect(await listRunnerJobs(t.db, { tenantId: TENANT, runId: run.id })).toEqual({ jobs: [], cursor: null });
  });

  test('that concurrent twins make is one, by key, by planned id and across runs', async () => {
    const { run, command } = await aTurn(t.db);
    const byKey = await Promise.all(Array.from({ length: 5 }, () => save(run, { commandId: command.id, jobName: 'twin' }, 'twin')));
    expect(byKey.filter(({ replayed }) => !replayed)).toHaveLength(1);
    const byId = await Promise.all(
      Array.from({ length: 5 }, () => save(run, { commandId: command.id, jobName: 'planned', jobId: `${run.id}-planned` })),
    );
    expect(byId.filter(({ replayed }) => !replayed)).toHaveLength(1);

    const turns = await Promise.all([aTurn(t.db), aTurn(t.db)]);
    const shared = await Promise.allSettled(
      turns.map((turn) => save(turn.run, { commandId: turn.command.id, jobName: 'shared', jobId: `${run.id}-shared` })),
    );
    expect(shared.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(shared.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'idempotency_conflict' } });
  });

  test('completes what the dispatcher has recorded under the planned id', async () => {
    const { run, command, intent } = await aTurn(t.db);
    const [claimed] = (await claimDispatchIntents(t.db, { owner: 'd1', limit: 100 })).filter(({ id }) => id === intent?.id);
    if (claimed === undefined) throw new Error('the intent was not due');
    const claim = { ...claimed, intentId: claimed.id, owner: 'd1' };
    const launched = { launcher: 'kubernetes', jobName: 'job-1', result: { uid: 'u1' } };
    await inTransaction(t.db, (tx) => completeDispatchIntent(tx, claim, { outcome: 'created', job: launched }));

    const saved = await save(
      run,
      {
        commandId: command.id,
        jobId: claimed.runnerJobId,
        launcher: 'kubernetes',
        jobName: 'job-1',
        image: 'agent:1',
        result: { node: 'n1' },
      },
      'k1',
    );
    expect(saved).toMatchObject({
      replayed: true,
      job: { intentId: claimed.id, image: 'agent:1', idempotencyKey: 'k1', result: { uid: 'u1', node: 'n1' } },
    });
  });
});

test('the jobs of a run come in pages, oldest first; a run that is not there is not an empty page', async () => {
  const { run, command } = await aTurn(t.db);
  const key = { tenantId: TENANT, runId: run.id };
  for (const jobName of ['a', 'b', 'c']) await save(run, { commandId: command.id, jobName });

  const first = await listRunnerJobs(t.db, { ...key, limit: 2 });
  const second = await listRunnerJobs(t.db, { ...key, limit: 2, cursor: first.cursor ?? '' });
  expect([...first.jobs, ...second.jobs].map(({ jobName }) => jobName).sort()).toEqual(['a', 'b', 'c']);
  expect(second.cursor).toBeNull();
  expect((await listRunnerJobs(t.db, { ...key, commandId: 'none' })).jobs).toEqual([]);
  await expect(listRunnerJobs(t.db, { ...key, commandId: command.id, cursor: first.cursor ?? '' })).rejects.toMatchObject({
    code: 'invalid_cursor',
  });
  const { hash } = contentHash({ ...key, commandId: null });
  const forged = encodeCursor('runner-jobs', { createdAt: '0000-01-01T00:00:00.000Z', id: 'x' }, hash);
  await expect(listRunnerJobs(t.db, { ...key, cursor: forged })).rejects.toMatchObject({ code: 'invalid_cursor' });
  await expect(listRunnerJobs(t.db, { ...key, limit: 0 })).rejects.toMatchObject({ code: 'invalid_request' });
  for (const foreign of [
    { ...key, tenantId: 'other' },
    { ...key, runId: 'none' },
  ])
    await expect(listRunnerJobs(t.db, foreign)).rejects.toMatchObject({ code: 'run_not_found' });
});

test('results are merged at their top level, redacted and bounded, and two merges both stand', async () => {
  const { run, command } = await aTurn(t.db);
  const { job } = await save(run, { commandId: command.id, jobName: 'j', result: { phase: 'Pending', pods: { a: 1 } } });
  const merge = (patch: Record<string, unknown>, tenantId = TENANT) =>
    mergeRunnerJobResult(t.db, { tenantId, jobId: job.id, patch: patch as Record<string, string> });

  await Promise.all([merge({ phase: 'Running' }), merge({ pods: { b: 2 } }), merge({ password: 'hunter2' })]);
  expect(await getRunnerJob(t.db, { tenantId: TENANT, jobId: job.id })).toMatchObject({
    result: { phase: 'Running', pods: { b: 2 }, password: expect.not.stringContaining('hunter2') as string },
  });
  await merge({ first: 'x'.repeat(REFERENCE_BYTES_MAX / 2) });
  await expect(merge({ second: 'x'.repeat(REFERENCE_BYTES_MAX / 2) })).rejects.toMatchObject({ code: 'payload_too_large' });
  await expect(merge({ phase: 'x' }, 'other')).rejects.toMatchObject({ code: 'runner_job_not_found' });
  await expect(merge([] as never)).rejects.toMatchObject({ code: 'invalid_request' });
});

describe('reconciliation', () => {
  test('takes the least recently checked first, comes round, and lets two passes at once take different jobs', async () => {
    const { run, command } = await aTurn(t.db);
    const launcher = 'round';
    const ids: string[] = [];
    for (const jobName of ['a', 'b', 'c', 'd']) ids.push((await save(run, { commandId: command.id, launcher, jobName })).job.id);

    const [one, another] = await inTransaction(t.db, async (tx) => [
      await listRunnerJobsForReconciliation(tx, { launcher, restMs: 0, limit: 2 }),
      await reconcile(launcher, { limit: 4 }), // while the first pass is not committed
    ]);
    expect([...one, ...another].map(({ id }) => id).sort()).toEqual([...ids].sort());
    const seen = new Set<string>();
    for (let pass = 0; pass < 4; pass += 1) for (const { id } of await reconcile(launcher, { limit: 1 })) seen.add(id);
    expect([...seen].sort()).toEqual([...ids].sort());
    expect(await listRunnerJobsForReconciliation(t.db, { launcher })).toEqual([]); // all of them rest
    for (const limit of [0, 501, 1.5, Number.NaN])
      await expect(reconcile(launcher, { limit })).rejects.toMatchObject({ code: 'invalid_request' });
  });

  test('keeps jobs of ended runs until they are settled, and settles none of an open one', async () => {
    const launcher = 'ends';
    const [open, ended] = [await aTurn(t.db), await aTurn(t.db)];
    const jobs = [];
    for (const { run, command } of [open, ended]) jobs.push((await save(run, { commandId: command.id, launcher, jobName: 'j' })).job);
    await cancel(ended.run);

    expect((await reconcile(launcher)).map(({ runId, isOpen }) => [runId, isOpen])).toEqual(
      expect.arrayContaining([
        [open.run.id, true],
        [ended.run.id, false],
      ]),
    );
    expect((await reconcile(launcher, { openOnly: true })).map(({ runId }) => runId)).toEqual([open.run.id]);
    const keys = jobs.map(({ id: jobId }) => ({ tenantId: TENANT, jobId }));
    expect(await settleRunnerJobs(t.db, { jobs: keys })).toEqual({ settled: [jobs[1]?.id] });
    expect(await settleRunnerJobs(t.db, { jobs: keys })).toEqual({ settled: [] });
    expect((await reconcile(launcher)).map(({ runId }) => runId)).toEqual([open.run.id]);

    await cancel(open.run);
    expect(await settleRunnerJobs(t.db, { jobs: keys })).toEqual({ settled: [jobs[0]?.id] });
    expect(await reconcile(launcher)).toEqual([]);
  });
});
